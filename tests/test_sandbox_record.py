"""References through a tokenizer that is code of the vendor's: a small one written by hand, and malicious ones."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from bellwether import sandbox_record
from bellwether.cli import cli
from bellwether.errors import OracleError, PinMismatch, VersionMismatch
from bellwether.oracles.vendor.tokenizer import open_tokenizer, vendor_class
from bellwether.params import read_manifest, read_params
from bellwether.tables import REFERENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="code of a vendor's is confined on Linux only")

CODE = '''
"""A tokenizer over bytes, in the manner of vendors: a tiktoken file, special tokens after it."""
import tiktoken
from tiktoken.load import load_tiktoken_bpe
from transformers import PreTrainedTokenizer

from .names import SPECIAL


class ByteTokenizer(PreTrainedTokenizer):
    vocab_files_names = {"vocab_file": "tiktoken.model"}

    def __init__(self, vocab_file, **kwargs):
        ranks = load_tiktoken_bpe(vocab_file)
        self.model = tiktoken.Encoding("bytes", pat_str=".|\\\\n", mergeable_ranks=ranks, special_tokens=SPECIAL)
        super().__init__(**kwargs)

    @property
    def vocab_size(self):
        return self.model.n_vocab

    def get_vocab(self):
        return dict(SPECIAL)

    def encode(self, text, add_special_tokens=True, **kwargs):
        if "forbidden" in text:
            raise ValueError("forbidden text")
        return self.model.encode(text, allowed_special="all")

    def __call__(self, text, **kwargs):
        ids = [self.encode(one) for one in text] if isinstance(text, list) else self.encode(text)
        return {"input_ids": ids}

    def apply_chat_template(self, conversation, tokenize=True, **kwargs):
        text = super().apply_chat_template(conversation, tokenize=False, **kwargs)
        return self.encode(text) if tokenize else text

    def decode(self, ids, skip_special_tokens=False, **kwargs):
        return self.model.decode(ids)
'''
TEMPLATE = (
    "{%- for message in messages %}{% if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "<|{{ message.role }}|>{{ message.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    "{% if dated is defined %}{{ strftime_now('%Y') }}{% endif %}"
)
SPECIAL = {"<|user|>": 256, "<|assistant|>": 257, "<|system|>": 258}
RANKS = b"".join(base64.b64encode(bytes([n])) + f" {n}\n".encode() for n in range(256))


def add_checkpoint(root: Path, **files: bytes) -> Path:
    """Add the checkpoint `toy` with its inputs laid out; `files` replace or add some, `_` in a name is a dot."""
    config = {
        "auto_map": {"AutoTokenizer": ["tokenization_toy.ByteTokenizer", None]},
        "tokenizer_class": "ByteTokenizer",
        "chat_template": TEMPLATE,
    }
    inputs = {
        "tokenization_toy.py": CODE.encode(),
        "names.py": f"SPECIAL = {SPECIAL!r}".encode(),
        "tiktoken.model": RANKS,
        "tokenizer_config.json": json.dumps(config).encode(),
        "config.json": b'{"model_type": "toy", "tokenizer_class": null}',
    } | {name.replace("__", "."): data for name, data in files.items()}
    folder = root / "fixtures" / "toy"
    (folder / "inputs").mkdir(parents=True)
    for name, data in inputs.items():
        (folder / "inputs" / name).write_bytes(data)
    pins = "\n".join(f'"{name}" = "{hashlib.sha256(data).hexdigest()}"' for name, data in sorted(inputs.items()))
    (folder / "manifest.toml").write_text(
        f'model = "toy/toy"\nrevision = "{"0" * 40}"\ntier = 3\nlicense = "Apache-2.0"\n'
        f'[authority]\nrender = ["hf-template"]\nparse = ["roundtrip"]\n[inputs]\n{pins}\n'
    )
    return folder


@pytest.fixture
def toy(project: Path) -> Path:
    """A checkout in miniature with the checkpoint `toy`."""
    add_checkpoint(project)
    return project


def rows_of(root: Path, recorded: str) -> dict[str, list[dict]]:
    """Return case_id → rows."""
    table = pq.read_table(root / "fixtures" / "toy" / recorded / "reference.parquet")
    assert table.schema.equals(REFERENCE)
    rows: dict[str, list[dict]] = {}
    for row in table.to_pylist():
        rows.setdefault(row["case_id"], []).append(row)
    return rows


def test_records_render_and_token_references(toy: Path) -> None:
    """The same tables and columns as the recorders of other checkpoints; ids are bytes, and the special tokens."""
    result = CliRunner().invoke(cli, ["sandbox-record", "toy", "--root", str(toy)], standalone_mode=False)
    assert result.exit_code == 0, result.output
    renders, tokens = rows_of(toy, "render"), rows_of(toy, "tokens")
    assert f"toy: {sum(map(len, [*renders.values(), *tokens.values()])):,} reference rows" in result.output
    [plain] = renders["render/common/text-user-only"]
    text = plain["prompt_text"]
    assert text.startswith("<|user|>") and text.endswith("<|assistant|>")
    content = list(text.removeprefix("<|user|>").removesuffix("<|assistant|>").encode())
    assert plain["prompt_ids"] == [256, *content, 257]
    assert (plain["source"], plain["encoder"], plain["normalisation"], plain["reads_clock"]) == (
        "hf-template",
        "class",
        "both",
        False,
    )
    for row in (row for rows in tokens.values() for row in rows if row["outcome"] == "result"):
        assert (row["source"], row["encoder"]) == ("hf-tokenizer", "class")
        if row["kind"] == "tokenize":
            assert row["prompt_text"] is None and row["output_ids"]


def test_a_refusal_of_the_template_is_a_row(toy: Path) -> None:
    """`raise_exception` inside the sandbox is the reference's answer, with class and message."""
    sandbox_record.main(toy, "toy")
    [refused] = rows_of(toy, "render")["render/common/tools-history-single-call"]
    assert (refused["outcome"], refused["reason_class"], refused["reason_code"], refused["reason"]) == (
        "rejected",
        "error",
        "template-error",
        "TemplateError: no tools",
    )
    assert refused["encoder"] is None


def test_provenance_names_inputs_and_environment(toy: Path) -> None:
    """What the rows depend on, the code files among them; nothing of the machine."""
    sandbox_record.main(toy, "toy")
    provenance = json.loads((toy / "fixtures" / "toy" / "tokens" / "provenance.json").read_text("utf-8"))
    assert provenance["tokenizer_class"] == "ByteTokenizer"
    assert provenance["inputs"]["tokenization_toy.py"] == hashlib.sha256(CODE.encode()).hexdigest()
    assert provenance["environment"]["tiktoken"] == "0.14.0"
    assert provenance["sandbox"] == ["seccomp", "landlock", "rlimits"]
    assert str(toy) not in json.dumps(provenance)


@pytest.fixture
def tokenizer(toy: Path):
    """The running tokenizer of `toy`."""
    with open_tokenizer(read_manifest(toy, "toy"), read_params(toy), toy / "fixtures" / "toy" / "inputs") as opened:
        yield opened


def test_pieces_hold_incomplete_characters_back(tokenizer) -> None:
    """Four ids for one character: the piece of the last one has it whole."""
    ids = [72, 105, 32, *"🪿".encode(), 33]
    assert tokenizer.encode(["Hi 🪿!"]) == [ids]
    assert tokenizer.pieces(ids) == ["H", "i", " ", "", "", "", "🪿", "!"]
    assert tokenizer.decode(ids) == "Hi 🪿!"


def test_a_character_that_never_ends_is_refused(tokenizer) -> None:
    """The decoded text ends in U+FFFD, and no piece ever says it: the pieces do not join to the text."""
    case = {"case_id": "detokenize/x/y", "kind": "detokenize", "text": None, "ids": [72, 240], "requires": None}
    [row] = sandbox_record.answer(tokenizer, case)
    assert (row["reason_code"], row["reason_class"]) == ("pieces-do-not-join", "unproven")


def test_a_text_the_code_raises_on_is_a_refusal(tokenizer) -> None:
    """It is the vendor's answer to this text; the next text is served."""
    case = {"case_id": "tokenize/x/y", "kind": "tokenize", "text": "forbidden", "ids": None, "requires": None}
    [row] = sandbox_record.answer(tokenizer, case)
    assert (row["outcome"], row["reason_class"], row["reason_code"], row["reason"]) == (
        "rejected",
        "error",
        "tokenizer-error",
        "ValueError: forbidden text",
    )
    assert tokenizer.encode(["a"]) == [[97]]


def test_the_clock_is_fixed_inside_too(tokenizer) -> None:
    """A template that asks for the time sees the date of params.yaml, and the row says that it asked."""
    request = {"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"dated": True}}
    prompt = tokenizer.prompt(request)
    assert prompt.text == "<|user|>x<|assistant|>2026" and prompt.reads_clock
    assert not tokenizer.prompt({"messages": request["messages"]}).reads_clock


def test_a_variable_that_is_a_parameter_reaches_no_template(tokenizer) -> None:
    """As for every other checkpoint: the oracle's own call has a parameter of this name."""
    case = {
        "case_id": "render/x/y",
        "kind": "render",
        "request": '{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"tokenize":false}}',
    }
    [row] = sandbox_record.answer(tokenizer, case)
    assert (row["reason_code"], row["reason"]) == ("colliding-variable", "tokenize")


MALICIOUS = {
    "reads a secret at import": "open('/etc/passwd').read()",
    "opens a socket at import": "import socket; socket.socket()",
    "starts a shell at import": "import os; os.execv('/bin/sh', ['sh'])",
    "writes at import": "open('/tmp/bellwether-breakout', 'w')",
    "leaves at import": "import os; os._exit(0)",
}


@pytest.mark.parametrize("code", MALICIOUS.values(), ids=MALICIOUS)
def test_malicious_code_records_nothing(project: Path, code: str) -> None:
    """No table, no provenance, exit 2."""
    folder = add_checkpoint(project, tokenization_toy__py=(code + "\n" + CODE).encode())
    result = CliRunner().invoke(cli, ["sandbox-record", "toy", "--root", str(project)])
    assert result.exit_code == 2
    assert sorted(path.name for path in folder.iterdir()) == ["inputs", "manifest.toml"]
    assert not Path("/tmp/bellwether-breakout").exists()


def test_code_that_turns_malicious_in_the_middle_records_nothing(project: Path) -> None:
    """Half a table is none: the case it fails on ends the recording."""
    evil = CODE.replace('if "forbidden" in text:', "if len(text) > 40: open('/etc/passwd')\n        if False:")
    folder = add_checkpoint(project, tokenization_toy__py=evil.encode())
    with pytest.raises(OracleError, match="PermissionError"):
        sandbox_record.main(project, "toy")
    assert not list(folder.rglob("*.parquet")) and not list(folder.rglob("provenance.json"))


@pytest.mark.parametrize("answer", ["[-1]", "[2**40]"])
def test_answers_that_are_no_ids_are_no_evidence(project: Path, answer: str) -> None:
    """What comes out of the sandbox is checked before it becomes a row."""
    evil = CODE.replace('return self.model.encode(text, allowed_special="all")', f"return {answer}")
    add_checkpoint(project, tokenization_toy__py=evil.encode())
    manifest = read_manifest(project, "toy")
    inputs = project / "fixtures" / "toy" / "inputs"
    with open_tokenizer(manifest, read_params(project), inputs) as opened, pytest.raises(OracleError, match="no ids"):
        opened.encode(["x"])


def test_a_changed_file_never_runs(toy: Path) -> None:
    """Every input is compared with its pin before anything starts."""
    (toy / "fixtures" / "toy" / "inputs" / "names.py").write_text("raise SystemExit")
    with pytest.raises(PinMismatch, match=r"names\.py"):
        sandbox_record.main(toy, "toy")


def test_a_module_that_is_not_pinned_is_an_error(project: Path) -> None:
    """The class has to lie in a file the manifest pins."""
    config = b'{"auto_map": {"AutoTokenizer": ["other.Class", null]}}'
    add_checkpoint(project, tokenizer_config__json=config)
    with pytest.raises(OracleError, match=r"other\.py, which its manifest does not pin"):
        sandbox_record.main(project, "toy")


def test_a_checkpoint_without_code_of_its_own_is_an_error(project: Path) -> None:
    """Most checkpoints: the other recorders serve them."""
    with pytest.raises(OracleError, match="names no tokenizer class of the vendor's") as error:
        sandbox_record.main(project, "smollm2-135m-instruct")
    assert "bellwether record" in error.value.next_step


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (["tokenization_toy.ByteTokenizer", None], ("tokenization_toy", "ByteTokenizer")),
        ([None, "tokenization_toy.ByteTokenizerFast"], ("tokenization_toy", "ByteTokenizerFast")),
        ("owner/repo--tokenization_toy.ByteTokenizer", ("tokenization_toy", "ByteTokenizer")),
        (["../secret.Class", None], None),
        ([], None),
        (7, None),
    ],
)
def test_how_a_class_is_named(toy: Path, named: object, expected: tuple[str, str] | None) -> None:
    """`auto_map` holds a name, or the slow and the fast class; another repository's name may stand in front."""
    inputs = toy / "fixtures" / "toy" / "inputs"
    (inputs / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": named}}))
    if expected is None:
        with pytest.raises(OracleError):
            vendor_class(read_manifest(toy, "toy"), inputs)
    else:
        assert vendor_class(read_manifest(toy, "toy"), inputs) == expected


def test_the_environments_libraries_are_the_pinned_ones(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers stands in params.yaml and in the environment; where they part, nothing is recorded."""
    text = (toy / "params.yaml").read_text("utf-8")
    assert "transformers: 5.24.0" in text
    (toy / "params.yaml").write_text(text.replace("transformers: 5.24.0", "transformers: 5.23.0"), "utf-8")
    with pytest.raises(VersionMismatch, match=r"transformers 5\.24\.0, and params\.yaml pins 5\.23\.0"):
        sandbox_record.main(toy, "toy")
