"""A checkpoint of which only the Hub has the files, from its name to its tables, by the commands a person types.

The hub is a real server on loopback that the Hub's own client talks to; the files are a real checkpoint's.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bellwether.params import read_manifest
from local_hub import DeadEnd, LocalHub, environment
from support import ROOT, miniature, snapshot

BELLWETHER = Path(sys.executable).with_name("bellwether")
pytestmark = pytest.mark.xdist_group("hub")  # one recording for all tests of this file

REAL = "smollm2-135m-instruct"
MODEL = "owner/Tiny_Chat-1B"
SLUG = "tiny-chat-1b"
REVISION = "0123456789abcdef0123456789abcdef01234567"

TEMPLATE = b"{{ messages }}\n"
SETTINGS = b'{"tokenizer_class": "PreTrainedTokenizerFast"}'
TOKENIZER = b'{"version": "1.0", "model": {}}'
SMALL = {"chat_template.jinja": TEMPLATE, "tokenizer.json": TOKENIZER, "tokenizer_config.json": SETTINGS}
GENERATION = {"bos_token_id": 1, "eos_token_id": [2, 7], "pad_token_id": None}
NO_PACKAGE = "package: no package is known to hold it"
"""What the package route says of a file without a plan."""


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


@dataclass
class Project:
    """A checkout, and commands run in it against a hub; the client's and our caches are its own."""

    root: Path
    home: Path
    hub: LocalHub

    def run(self, *arguments: str, endpoint: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command; a traceback is never an answer."""
        done = subprocess.run(
            [BELLWETHER, *arguments],
            cwd=self.root,
            env=environment(endpoint or self.hub.url, self.home, **more),
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr
        return done

    def hold(self, files: Mapping[str, bytes], model: str = MODEL, revision: str = REVISION) -> None:
        """Put files on the hub."""
        self.hub.files |= {(model, revision, name): data for name, data in files.items()}

    def pin(self, files: Mapping[str, bytes]) -> None:
        """Write a manifest without any way to the files but the hub."""
        folder = self.root / "fixtures" / SLUG
        folder.mkdir(parents=True)
        pins = "".join(f'"{name}" = "{digest(data)}"\n' for name, data in files.items())
        (folder / "manifest.toml").write_text(
            f'model = "{MODEL}"\nrevision = "{REVISION}"\ntier = 3\nlicense = "MIT"\n[authority]\n'
            f'render = ["hf-template"]\nparse = ["roundtrip"]\n[inputs]\n{pins}',
            "utf-8",
        )

    def pins(self, slug: str = SLUG) -> dict[str, str]:
        return dict(read_manifest(self.root, slug).inputs)

    def laid_out(self, slug: str = SLUG) -> dict[str, bytes]:
        folder = self.root / "fixtures" / slug / "inputs"
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A checkout without checkpoints, and an empty hub."""
    root = tmp_path / "project"
    (root / "fixtures").mkdir(parents=True)
    _, _, oracle = (ROOT / "params.yaml").read_text("utf-8").partition("oracle:")
    (root / "params.yaml").write_text(f"checkpoints: []\ncorpora: [handmade]\noracle:{oracle}", "utf-8")
    (root / "fixtures" / "packages.toml").write_text("", "utf-8")
    with LocalHub() as hub:
        yield Project(root, tmp_path / "home", hub)


def failed(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Lines of a refusal: exit 2, nothing on standard output, a next step last. Lines of the Hub's client are not."""
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    begin = next(place for place, line in enumerate(lines) if line.startswith("error: "))
    assert lines[-1].startswith("next:  ")
    return lines[begin:]


# ── from a name to tables ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A real checkpoint that was pinned from the hub, laid out and recorded, each by its command, in this order."""
    home = tmp_path_factory.mktemp("recorded")
    original = read_manifest(ROOT, REAL)
    with LocalHub() as hub:
        (home / "project" / "fixtures").mkdir(parents=True)
        project = Project(miniature(home / "project", []), home / "home", hub)
        for pins in (ROOT / "fixtures").glob("*.toml"):
            shutil.copy(pins, project.root / "fixtures")
        files = {name: (snapshot(REAL) / name).read_bytes() for name in original.inputs}
        for name in ("config.json", "generation_config.json"):  # laid out narrowed; the Hub has whole ones
            whole = {"transformers_version": "4.42.3", "hidden_size": 576, "temperature": 0.2} | json.loads(files[name])
            files[name] = json.dumps(whole, indent=2).encode()
        weights = {"model.safetensors": b"w", "README.md": b"#", "onnx/config.json": b"{}", "training_args.bin": b"t"}
        project.hold(files | weights, original.model, original.revision)
        hub.large.add("tokenizer.json")
        hub.cards[original.model] = {"license": "apache-2.0"}
        for arguments in (
            ["manifests", "add", f"{original.model}@{original.revision}"],
            ["inputs", REAL],
            ["record", REAL],
        ):
            if arguments[0] == "inputs":
                params = project.root / "params.yaml"
                params.write_text(
                    params.read_text("utf-8").replace("checkpoints: []", f"checkpoints: [{REAL}]"), "utf-8"
                )
            done = project.run(*arguments)
            assert done.returncode == 0, done.stderr
        yield project


def test_a_checkpoint_pinned_from_the_hub_has_the_pins_of_the_same_one_pinned_by_hand(recorded: Project):
    """Model, revision, licence, every sha256 and the sources: those of the manifest in Git, narrowed configs too.
    Weights, cards and configs of other folders are no oracle inputs."""
    original = read_manifest(ROOT, REAL)
    pinned = read_manifest(recorded.root, REAL)
    assert (pinned.model, pinned.revision, pinned.license) == (original.model, original.revision, original.license)
    assert pinned.inputs == original.inputs
    assert pinned.authority == original.authority
    assert {file.transform for file in pinned.files.values()} == {None}


def test_what_the_hub_gave_is_laid_out_as_from_packages(recorded: Project):
    """Byte for byte the folder that the package routes give, its large file through a redirect."""
    folder = snapshot(REAL)
    assert recorded.laid_out(REAL) == {name: (folder / name).read_bytes() for name in read_manifest(ROOT, REAL).inputs}
    assert any(path.startswith("/storage/") for path in recorded.hub.asked("GET"))


def test_weights_are_never_asked_for(recorded: Project):
    """The hub hears of oracle inputs only."""
    asked = {path.rpartition("/")[2] for path in recorded.hub.asked("GET") if "/resolve/" in path}
    assert asked <= set(read_manifest(ROOT, REAL).inputs)
    assert not {"model.safetensors", "README.md", "training_args.bin"} & asked


def test_a_checkpoint_from_the_hub_is_recorded_by_the_usual_commands(recorded: Project):
    """Prompts, outputs and pieces; SmolLM2's prompt of one user message is known from its template."""
    tables = {
        kind: pq.read_table(recorded.root / "fixtures" / REAL / kind / "reference.parquet").to_pylist()
        for kind in ("render", "parse", "tokens")
    }
    assert all("result" in {row["outcome"] for row in rows} for rows in tables.values())
    prompts = {row["case_id"]: row["prompt_text"] for row in tables["render"] if row["prompt_text"]}
    assert prompts["render/common/text-user-only"] == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhich planet has the shortest day?<|im_end|>\n<|im_start|>assistant\n"
    )


# ── pinning a new checkpoint ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_manifest_pins_the_files_there_are(project: Project):
    """More templates too; of the generation config the ids, of the config its identity alone."""
    config = b'{"model_type": "tiny", "eos_token_id": 9, "hidden_size": 8}'
    generation = json.dumps({**GENERATION, "top_p": 0.9}).encode()
    more = {
        "additional_chat_templates/tool.jinja": b"t",
        "additional_chat_templates/deep/x.jinja": b"no",
        "tool.py": b"no",
    }
    project.hold(SMALL | more | {"config.json": config, "generation_config.json": generation})
    project.hub.cards[MODEL] = {"license": "other", "license_name": "Tiny Terms 1.0"}
    done = project.run("manifests", "add", f"{MODEL}@{REVISION}", "--tier", "2")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"fixtures/{SLUG}/manifest.toml: new\n1 manifests, 1 groups\n",
        "",
    )
    manifest = read_manifest(project.root, SLUG)
    assert (manifest.model, manifest.revision, manifest.tier) == (MODEL, REVISION, 2)
    assert manifest.license == "LicenseRef-Tiny-Terms-1.0"
    assert manifest.inputs == {
        "additional_chat_templates/tool.jinja": digest(b"t"),
        "chat_template.jinja": digest(TEMPLATE),
        "config.json": digest(b'{"model_type": "tiny", "tokenizer_class": null}'),
        "generation_config.json": digest(b'{"bos_token_id": 1, "eos_token_id": [2, 7], "pad_token_id": null}'),
        "tokenizer.json": digest(TOKENIZER),
        "tokenizer_config.json": digest(SETTINGS),
    }


@pytest.mark.parametrize(
    ("config", "value"),
    [
        pytest.param(
            {"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text", "eos_token_id": 248044}},
            '{"bos_token_id": null, "eos_token_id": 248044, "model_type": "qwen3_5", "pad_token_id": null, '
            '"tokenizer_class": null}',
            id="one level down",
        ),
        pytest.param(
            {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4},
            '{"bos_token_id": 1, "eos_token_id": 2, "model_type": "llama", "pad_token_id": null, '
            '"tokenizer_class": null}',
            id="defaults of the config class",
        ),
        pytest.param(
            {"model_type": "mistral", "tokenizer_class": "T", "eos_token_id": [5, 6], "pad_token_id": 0},
            '{"bos_token_id": 1, "eos_token_id": [5, 6], "model_type": "mistral", "pad_token_id": 0, '
            '"tokenizer_class": "T"}',
            id="its own, the rest by default",
        ),
    ],
)
def test_without_a_generation_config_the_ids_are_those_transformers_derives(project: Project, config: dict, value: str):
    """LlamaConfig's defaults are 1 and 2; Qwen3.5-9B's value has the published pin. What is pinned is laid out."""
    project.hold(SMALL | {"config.json": json.dumps(config).encode()})
    assert project.run("manifests", "add", f"{MODEL}@{REVISION}").returncode == 0
    assert project.pins()["config.json"] == digest(value.encode())
    if config["model_type"] == "qwen3_5":
        assert digest(value.encode()) == "35e1cee5383d93737dff5f52533413433fcc119f9a7722e485deca14a5045650"
    done = project.run("inputs", SLUG)
    assert (done.returncode, done.stdout) == (0, f"{SLUG}: 4 files laid out\n"), done.stderr
    assert project.laid_out() == SMALL | {"config.json": value.encode()}


def test_a_model_type_transformers_does_not_know_cannot_be_derived(project: Project):
    """No guess: another class might have other defaults. Nothing is written."""
    project.hold(SMALL | {"config.json": b'{"model_type": "tiny9", "eos_token_id": 7}'})
    lines = failed(project.run("manifests", "add", f"{MODEL}@{REVISION}"))
    assert lines[0] == (
        "error: transformers has no config class for model type 'tiny9', so the token ids cannot be derived"
    )
    assert list((project.root / "fixtures").iterdir()) == [project.root / "fixtures" / "packages.toml"]


def test_a_tokenizer_that_is_code_of_the_repository_is_pinned_with_its_code(project: Project):
    """Every Python file and the ranks it reads."""
    settings = b'{"auto_map": {"AutoTokenizer": ["tokenization_tiny.Tiny", null]}}'
    code = {"tokenization_tiny.py": b"import tool\n", "tool.py": b"", "sub/more.py": b"", "tiktoken.model": b"IQ== 0\n"}
    project.hold({"tokenizer_config.json": settings, "LICENSE": b"x"} | code)
    assert project.run("manifests", "add", f"{MODEL}@{REVISION}").returncode == 0
    assert project.pins() == {
        name: digest(data) for name, data in sorted(({"tokenizer_config.json": settings} | code).items())
    }


@pytest.mark.parametrize(
    ("card", "license"),
    [
        (None, "NOASSERTION"),
        ({"tags": ["chat"]}, "NOASSERTION"),
        ({"license": "mit"}, "MIT"),
        ({"license": "llama3.1"}, "LicenseRef-llama3.1"),
        ({"license": "other"}, "NOASSERTION"),
    ],
)
def test_the_licence_is_the_card_s(project: Project, card: dict | None, license: str):
    """As SPDX writes it; a vendor's own terms by their name, and no licence is not invented."""
    project.hold(SMALL)
    if card is not None:
        project.hub.cards[MODEL] = card
    assert project.run("manifests", "add", f"{MODEL}@{REVISION}").returncode == 0
    assert read_manifest(project.root, SLUG).license == license


def test_a_new_checkpoint_with_the_inputs_of_another_becomes_a_member(project: Project):
    """Both are written in one run, and the first repository name is the primary's."""
    project.hold(SMALL)
    project.hold(SMALL, "another/Same-2B")
    done = project.run("manifests", "add", f"{MODEL}@{REVISION}", f"another/Same-2B@{REVISION}")
    assert done.stdout.splitlines() == [
        f"fixtures/{SLUG}/manifest.toml: new, a member of same-2b",
        "fixtures/same-2b/manifest.toml: new",
        "2 manifests, 1 groups",
    ], done.stderr
    assert read_manifest(project.root, SLUG).group == "same-2b"
    assert project.run("manifests", "--check").returncode == 0


@pytest.mark.parametrize("revision", ["", "main", "v1.0", REVISION[:8], REVISION.upper()])
def test_a_revision_that_can_move_is_refused_with_the_way_to_the_commit(project: Project, revision: str):
    """Branches, tags and short ids; the hub is not asked."""
    text = f"{MODEL}@{revision}" if revision else MODEL
    lines = failed(project.run("manifests", "add", text))
    assert lines[0].startswith(f"error: {text!r}: ")
    assert f"`hf models info {MODEL}` shows the commit as `sha`" in lines[1]
    assert project.hub.requests == []


@pytest.mark.parametrize("text", ["tiny", "a/b/c", "/", "owner/na me", f"@{REVISION}", f"https://hub/o/m@{REVISION}"])
def test_what_names_no_repository_is_refused(project: Project, text: str):
    """Exit 2 with the form that is meant."""
    assert failed(project.run("manifests", "add", text)) == [
        f"error: {text!r} names no checkpoint",
        "next:  Write OWNER/NAME@REVISION.",
    ]


def test_a_slug_that_is_taken_is_refused(project: Project):
    """A pinned revision never moves by itself, and two owners' checkpoints never share a folder."""
    project.hold(SMALL)
    project.pin(SMALL)
    before = (project.root / "fixtures" / SLUG / "manifest.toml").read_bytes()
    for text in (f"{MODEL}@{'f' * 40}", f"other/TINY_CHAT-1B@{REVISION}"):
        assert failed(project.run("manifests", "add", text))[0] == (
            f"error: {text}: fixtures/{SLUG}/manifest.toml is taken"
        )
    assert (project.root / "fixtures" / SLUG / "manifest.toml").read_bytes() == before


def test_one_checkpoint_that_cannot_be_read_leaves_all_unwritten(project: Project):
    """The first could be pinned; the second's revision is not there."""
    project.hold(SMALL)
    lines = failed(project.run("manifests", "add", f"{MODEL}@{REVISION}", f"owner/Gone@{REVISION}"))
    assert lines[0].startswith(f"error: owner/Gone@{REVISION} cannot be read: ")
    assert not (project.root / "fixtures" / SLUG).exists()


def test_a_repository_without_oracle_inputs_is_refused(project: Project):
    """Weights alone say nothing about prompts."""
    project.hold({"model.safetensors": b"w"})
    assert failed(project.run("manifests", "add", f"{MODEL}@{REVISION}"))[0] == (
        f"error: {MODEL}@{REVISION} holds no oracle input"
    )


# ── what goes wrong on the way ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_repository_says_how_to_get_in(project: Project, status: int):
    """Asked once, though there are three files; each is listed with its reason."""
    project.pin(SMALL)
    project.hold(SMALL)
    project.hub.refused[MODEL] = (status, {"X-Error-Code": "GatedRepo"})
    lines = failed(project.run("inputs", SLUG))
    steps = f"accept its terms at {project.hub.url}/{MODEL}, then set HF_TOKEN or run `hf auth login`"
    assert lines[0] == f"error: {SLUG}: 3 of 3 files cannot be laid out"
    assert [line.strip() for line in lines[1:-1]] == [
        line
        for name in SMALL
        for line in (f"{SLUG}/{name} cannot be obtained", f"hub: {MODEL} is gated: {steps}", NO_PACKAGE)
    ]
    assert len([path for path in project.hub.asked("HEAD") if "/resolve/" in path]) == 1
    assert project.laid_out() == {}


def test_a_revision_that_vanished_is_named(project: Project):
    """The repository is there, rewritten; the pinned commit is not."""
    project.pin(SMALL)
    project.hold(SMALL, revision="f" * 40)
    lines = failed(project.run("inputs", SLUG))
    assert f"hub: {MODEL} has no revision {REVISION}: never made, or made and removed" in [x.strip() for x in lines]


def test_a_file_that_vanished_is_named_alone(project: Project):
    """The others are fetched; nothing is laid out without it."""
    project.pin(SMALL)
    project.hold({name: data for name, data in SMALL.items() if name != "tokenizer.json"})
    assert failed(project.run("inputs", SLUG))[:2] == [
        f"error: {SLUG}/tokenizer.json cannot be obtained",
        f"  hub: {MODEL} has no file tokenizer.json at revision {REVISION}",
    ]
    assert project.laid_out() == {}


def test_bytes_with_another_sha256_are_named_with_both(project: Project):
    """File, expected, actual, next step; files that only cannot be had are listed beside it."""
    project.pin(SMALL)
    project.hold({"tokenizer.json": b"other", "tokenizer_config.json": SETTINGS})
    lines = [line.strip() for line in failed(project.run("inputs", SLUG))]
    assert lines == [
        f"error: {SLUG}: 2 of 3 files cannot be laid out",
        f"{SLUG}/chat_template.jinja cannot be obtained",
        f"hub: {MODEL} has no file chat_template.jinja at revision {REVISION}",
        NO_PACKAGE,
        f"{SLUG}/tokenizer.json: no route gives the pinned bytes",
        f"hub: expected sha256 {digest(TOKENIZER)}, got {digest(b'other')}",
        NO_PACKAGE,
        f"next:  If the new bytes are right, change the pin in fixtures/{SLUG}/manifest.toml.",
    ]


def test_a_large_file_comes_from_the_storage_and_no_token_goes_there(project: Project):
    """The hub redirects to another host name; the token is for the hub alone."""
    project.pin(SMALL)
    project.hold(SMALL)
    project.hub.large.add("tokenizer.json")
    done = project.run("inputs", SLUG, HF_TOKEN="hf_secret")
    assert (done.returncode, done.stdout) == (0, f"{SLUG}: 3 files laid out\n"), done.stderr
    assert project.laid_out() == SMALL
    storage = f"/storage/{digest(TOKENIZER)}"
    assert storage in project.hub.asked("GET")
    assert project.hub.authorized
    assert storage not in project.hub.authorized


@pytest.mark.parametrize("large", [True, False])
def test_a_body_that_breaks_off_is_no_file(project: Project, large: bool):
    """The client asks for the rest again and again; what there is, is never taken for the whole."""
    project.pin(SMALL)
    project.hold(SMALL)
    project.hub.large |= {"tokenizer.json"} if large else set()
    project.hub.cut["tokenizer.json"] = 20
    lines = failed(project.run("inputs", SLUG))
    assert lines[0] == f"error: {SLUG}: 2 of 3 files cannot be laid out"
    assert (
        f"hub: RemoteProtocolError: peer closed connection without sending complete message body (received 20 bytes, "
        f"expected {len(TOKENIZER)}) (about tokenizer.json; the Hub is not asked again)"
    ) in [line.strip() for line in lines]
    assert project.laid_out() == {}


def test_a_size_other_than_announced_is_no_file(project: Project):
    """The storage gives a whole body, of another length than the hub said."""
    project.pin(SMALL)
    project.hold(SMALL)
    project.hub.large.add("tokenizer.json")
    project.hub.sizes["tokenizer.json"] = 20
    lines = failed(project.run("inputs", SLUG))
    assert lines[0] == f"error: {SLUG}/tokenizer.json cannot be obtained"
    assert f"should be of size 20 but has size {len(TOKENIZER)}" in lines[1]


def test_files_the_hub_announces_as_chunked_come_by_plain_http(project: Project):
    """The chunk store needs hosts of its own; this hub has none, and is not asked for a token to it."""
    project.pin(SMALL)
    project.hold(SMALL)
    project.hub.large.add("tokenizer.json")
    project.hub.xet.add("tokenizer.json")
    done = project.run("inputs", SLUG)
    assert (done.returncode, project.laid_out()) == (0, SMALL), done.stderr
    assert not any("xet" in path for _, path in project.hub.requests)


def test_a_hub_that_fails_for_files_is_given_up_once(project: Project):
    """The front page answers, files do not: the client tries six times for the first one, and not for the others."""
    project.pin(SMALL)
    project.hold(SMALL)
    project.hub.refused[MODEL] = (503, {"Retry-After": "0"})
    lines = failed(project.run("inputs", SLUG))
    assert lines[0] == f"error: {SLUG}: 3 of 3 files cannot be laid out"
    assert f"hub: {project.hub.url} answers with status 503 about chat_template.jinja" in [x.strip() for x in lines]
    files = [path for path in project.hub.asked("HEAD") if "/resolve/" in path]
    assert len(files) == 7  # one question, and six with patience
    assert {path.rpartition("/")[2] for path in files} == {"chat_template.jinja"}


def test_without_a_hub_every_file_is_listed_after_one_attempt(project: Project):
    """As on a machine behind a firewall: all files, why, and what would help; one connection."""
    project.pin(SMALL)
    with DeadEnd() as dead_end:
        lines = failed(project.run("inputs", SLUG, endpoint=dead_end.url))
        assert dead_end.connections == 1
    assert lines[0] == f"error: {SLUG}: 3 of 3 files cannot be laid out"
    assert [line.strip() for line in lines if "cannot be obtained" in line] == [
        f"{SLUG}/{name} cannot be obtained" for name in SMALL
    ]
    assert sum("is unreachable" in line for line in lines) == 3
    assert "BELLWETHER_MIRROR" in lines[-1]


def test_no_package_is_downloaded_while_a_file_only_the_hub_has_is_missing(project: Project):
    """The manifest names a package for one file; its name is not even looked up."""
    project.pin(SMALL)
    manifest = project.root / "fixtures" / SLUG / "manifest.toml"
    plan = '[files."chat_template.jinja"]\nproof = "identical"\ntransform = "copy"\nsources = ["ghost:member"]\n'
    manifest.write_text(manifest.read_text("utf-8") + plan, "utf-8")
    project.hold({"tokenizer.json": TOKENIZER})
    lines = failed(project.run("inputs", SLUG))
    assert lines[0] == f"error: {SLUG}/tokenizer_config.json cannot be obtained"
    assert not any("ghost" in line for line in lines)


def test_a_narrowed_config_that_differs_is_named(project: Project):
    """Another end of turn than was pinned: the sha256s are those of the narrowed values."""
    project.hold(SMALL | {"generation_config.json": json.dumps(GENERATION).encode()})
    assert project.run("manifests", "add", f"{MODEL}@{REVISION}").returncode == 0
    moved = GENERATION | {"eos_token_id": 2}
    project.hold({"generation_config.json": json.dumps(moved).encode()})
    lines = failed(project.run("inputs", SLUG, HF_HOME=str(project.home / "other")))
    expected, actual = (digest(json.dumps(value, sort_keys=True).encode()) for value in (GENERATION, moved))
    assert lines[:2] == [
        f"error: {SLUG}/generation_config.json: no route gives the pinned bytes",
        f"  hub: expected sha256 {expected}, got {actual}",
    ]
