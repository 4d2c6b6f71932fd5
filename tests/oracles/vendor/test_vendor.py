"""Vendor encoders on their pinned files, in the sandbox. Expected values come from the encoders' own formats."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest

from bellwether.errors import InputUnavailable, OracleError, PinMismatch
from bellwether.materials.archives import read_member
from bellwether.oracles.vendor import ENCODERS, Prompt, VendorEncoder, VendorRefused, open_encoder
from bellwether.params import Manifest, Params, read_manifest, read_params
from support import ROOT, load_checkpoint, package, snapshot

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="code of a vendor's is confined on Linux only")

HELLO = {"messages": [{"role": "user", "content": "Hello, 世界! 12345"}]}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALLED = {
    "messages": [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "abcde1234",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "Lisbon"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "abcde1234", "content": "sunny"},
    ],
    "tools": [TOOL],
}
FILES = {
    "deepseek-v3.2": ("vllm", "vllm-0.33.0/vllm/tokenizers/deepseek_v32_encoding.py"),
    "deepseek-v4": ("vllm", "vllm-0.33.0/vllm/tokenizers/deepseek_v4_encoding.py"),
    "deepseek-v4.1": ("vllm", "vllm-0.33.0/vllm/tokenizers/deepseek_v41_encoding.py"),
    "mistral-v3": ("mistral-common", "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3"),
    "mistral-v7": ("mistral-common", "mistral_common/data/mistral_instruct_tokenizer_241114.model.v7"),
    "tekken": ("mistral-common", "mistral_common/data/tekken_240911.json"),
}
SHA256_HEADS = {"deepseek-v3.2": "1bade676", "deepseek-v4": "aa407637", "deepseek-v4.1": "d648d7bd"}


@functools.cache
def params() -> Params:
    return read_params(ROOT)


def checkpoint_with(folder: Path, files: dict[str, bytes]) -> Manifest:
    """Return a manifest that pins `files`, laid out in `folder`."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    pins = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return dataclasses.replace(read_manifest(ROOT, "qwen3-8b"), slug="probe", inputs=pins)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], VendorEncoder]]:
    """`encoder(name)` → a running encoder, one process each; `mistral-v3`, … are mistral-common with that file."""
    with ExitStack() as stack:

        @functools.cache
        def opened(name: str) -> VendorEncoder:
            if name == "harmony":
                manifest, folder = read_manifest(ROOT, "gpt-oss-20b"), snapshot("gpt-oss-20b")
                return stack.enter_context(open_encoder(name, manifest, params(), folder))
            source, member = FILES[name]
            data = read_member(package(source), member)
            assert hashlib.sha256(data).hexdigest().startswith(SHA256_HEADS.get(name, ""))
            folder = tmp_path_factory.mktemp("inputs")
            manifest = checkpoint_with(folder, {f"vendor/{Path(member).name}": data})
            kind = name if name in ENCODERS else "mistral-common"
            return stack.enter_context(open_encoder(kind, manifest, params(), folder))

        yield opened


def text(one: VendorEncoder, request: dict) -> str:
    return one.prompt(request).text


# ── DeepSeek ─────────────────────────────────────────────────────────────────────────────────────────────────────────

BOS, USER, ASSISTANT = "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"


@pytest.mark.parametrize("name", ["deepseek-v3.2", "deepseek-v4", "deepseek-v4.1"])
def test_a_plain_chat_without_thinking(encoder: Callable, name: str) -> None:
    """All three generations: BOS, the user's turn, the assistant's with its thinking closed. They write no ids."""
    request = {**HELLO, "chat_template_kwargs": {"thinking": False}}
    assert encoder(name).prompt(request) == Prompt(f"{BOS}{USER}Hello, 世界! 12345{ASSISTANT}</think>", None)


def test_v3_2_thinks_only_when_asked_to(encoder: Callable) -> None:
    """Its front end leaves thinking off by default; either of two names switches it on."""
    one = encoder("deepseek-v3.2")
    assert text(one, HELLO).endswith(f"{ASSISTANT}</think>")
    for name in ("thinking", "enable_thinking"):
        assert text(one, {**HELLO, "chat_template_kwargs": {name: True}}).endswith(f"{ASSISTANT}<think>")


@pytest.mark.parametrize("name", ["deepseek-v4", "deepseek-v4.1"])
def test_v4_thinks_by_default(encoder: Callable, name: str) -> None:
    """No kwarg: on. One of the two names false and the other not given: off. One true: on. Effort `none`: off."""
    one = encoder(name)

    def thinks(**request: object) -> bool:
        return text(one, {**HELLO, **request}).endswith("<think>")

    assert thinks()
    assert not thinks(chat_template_kwargs={"enable_thinking": False})
    assert thinks(chat_template_kwargs={"enable_thinking": False, "thinking": True})
    assert not thinks(reasoning_effort="none")
    assert thinks(reasoning_effort="low")


def test_v4_ends_with_the_opening_think_token(encoder: Callable) -> None:
    """The checkpoint's tokenizer gives 128821 for `<think>` and 128822 for `</think>`."""
    [tokenizer] = load_checkpoint("deepseek-v4").encoders
    one = encoder("deepseek-v4")
    thinking, closed = tokenizer.encode([text(one, HELLO), text(one, {**HELLO, "reasoning_effort": "none"})])
    assert (thinking[-1], closed[-1]) == (128821, 128822)


def test_v4_writes_the_effort_in_front(encoder: Callable) -> None:
    """high and max have an instruction of their own after BOS; medium and minimal are low, which has the encoder's."""
    one = encoder("deepseek-v4")
    prompts = {effort: text(one, {**HELLO, "reasoning_effort": effort}) for effort in ("low", "medium", "high", "max")}
    assert prompts["low"] == prompts["medium"]
    assert len({prompts["low"], prompts["high"], prompts["max"]}) == 3
    assert prompts["high"] == text(one, HELLO)


def test_v4_1_counts_the_effort(encoder: Callable) -> None:
    """low 50, high 75, max 100, or a number; anything else is refused by the front end."""
    one = encoder("deepseek-v4.1")
    for effort, budget in {"low": 50, "high": 75, "max": 100}.items():
        assert f"Reasoning Effort: {budget} " in text(one, {**HELLO, "reasoning_effort": effort})
    assert "Reasoning Effort: 7 " in text(one, {**HELLO, "chat_template_kwargs": {"reasoning_effort": 7}})
    for wrong in ("medium", 0, 101, True):
        with pytest.raises(VendorRefused, match="reasoning_effort"):
            one.prompt({**HELLO, "chat_template_kwargs": {"reasoning_effort": wrong}})


@pytest.mark.parametrize("name", ["deepseek-v3.2", "deepseek-v4", "deepseek-v4.1"])
def test_tools_stand_as_sent_in_a_system_turn(encoder: Callable, name: str) -> None:
    """The function object as JSON, key order and all, before the user's turn; nothing is added to it."""
    prompt = text(encoder(name), {**HELLO, "tools": [TOOL]})
    before, _, _ = prompt.partition(USER)
    assert json.dumps(TOOL["function"], ensure_ascii=False) in before


def test_tools_go_to_the_first_system_message(encoder: Callable) -> None:
    """V4: to the one there is; V3.2: always to a new one in front."""
    request = {"messages": [{"role": "system", "content": "Be brief."}, *HELLO["messages"]], "tools": [TOOL]}
    v4, v32 = (text(encoder(name), request) for name in ("deepseek-v4", "deepseek-v3.2"))
    assert v4.index("Be brief.") < v4.index('"get_weather"')
    assert v32.index('"get_weather"') < v32.index("Be brief.")


@pytest.mark.parametrize("name", ["deepseek-v3.2", "deepseek-v4", "deepseek-v4.1"])
def test_arguments_of_calls_are_written_as_parameters(encoder: Callable, name: str) -> None:
    """JSON text or object: the same prompt, one parameter per key; what is no object has no parameter at all."""
    one = encoder(name)
    as_object = json.loads(json.dumps(CALLED))
    as_object["messages"][1]["tool_calls"][0]["function"]["arguments"] = {"city": "Lisbon"}
    assert text(one, CALLED) == text(one, as_object)
    assert 'parameter name="city" string="true">Lisbon<' in text(one, CALLED)
    as_object["messages"][1]["tool_calls"][0]["function"]["arguments"] = "[1]"
    assert 'parameter name="city"' not in text(one, as_object)


@pytest.mark.parametrize("name", ["deepseek-v3.2", "deepseek-v4", "deepseek-v4.1"])
def test_reasoning_has_two_names(encoder: Callable, name: str) -> None:
    """`reasoning_content` is renamed by the API layer; after a tool's result it stays in the prompt."""
    one = encoder(name)
    prompts = set()
    for key in ("reasoning", "reasoning_content"):
        request = json.loads(json.dumps({**CALLED, "chat_template_kwargs": {"thinking": True}}))
        request["messages"][1][key] = "I must look."
        prompts.add(text(one, request))
    assert len(prompts) == 1
    assert "I must look.</think>" in prompts.pop()


def test_parts_are_joined_by_each_generations_rule(encoder: Callable) -> None:
    """V3.2 by a line end, V4 and V4.1 by an empty line."""
    request = {"messages": [{"role": "user", "content": [{"type": "text", "text": one} for one in ("a", "", "b")]}]}
    assert f"{USER}a\nb{ASSISTANT}" in text(encoder("deepseek-v3.2"), request)
    for name in ("deepseek-v4", "deepseek-v4.1"):
        assert f"{USER}a\n\n\n\nb{ASSISTANT}" in text(encoder(name), request)


def test_the_encoder_itself_refuses(encoder: Callable) -> None:
    """A tool's result without a call: V3.2 raises ValueError, and class and message are the refusal."""
    with pytest.raises(VendorRefused, match=r"^ValueError: "):
        encoder("deepseek-v3.2").prompt({"messages": [{"role": "tool", "tool_call_id": "x", "content": "sunny"}]})


def test_a_text_with_the_image_token_is_refused(encoder: Callable) -> None:
    """V4.1's front end takes images as parts only."""
    with pytest.raises(VendorRefused, match="image token"):
        encoder("deepseek-v4.1").prompt({"messages": [{"role": "user", "content": "<｜deepseek_image｜>"}]})


@pytest.mark.parametrize("name", ["deepseek-v3.2", "deepseek-v4", "deepseek-v4.1", "harmony", "tekken"])
@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"messages": []},
        {"messages": ["x"]},
        {"messages": [{"content": "x"}]},
        {"messages": [{"role": "oracle", "content": "x"}]},
    ],
    ids=["no messages", "none at all", "no object", "no role", "an unknown role"],
)
def test_a_request_without_a_prompt_is_refused(encoder: Callable, name: str, request_: dict) -> None:
    """Refusals of front end and encoder are one kind of evidence; the process serves the next request."""
    with pytest.raises(VendorRefused):
        encoder(name).prompt(request_)
    assert text(encoder(name), HELLO)


@pytest.mark.parametrize("name", ["deepseek-v3.2", "deepseek-v4", "deepseek-v4.1", "harmony"])
def test_half_a_character_has_no_prompt(encoder: Callable, name: str) -> None:
    """JSON can say a lone surrogate, UTF-8 cannot: no table could hold the text."""
    with pytest.raises(VendorRefused):
        encoder(name).prompt({"messages": [{"role": "user", "content": "\ud800"}]})


def test_half_a_character_is_a_replacement_character_to_mistral(encoder: Callable) -> None:
    """Its tokenizer replaces what it cannot encode, so this prompt exists."""
    half, replaced = ({"messages": [{"role": "user", "content": text}]} for text in ("\ud800", "\ufffd"))
    assert encoder("tekken").prompt(half) == encoder("tekken").prompt(replaced)


# ── Mistral ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "plain", "with_tool"), [("mistral-v3", 15, 73), ("mistral-v7", 15, 73), ("tekken", 14, 71)]
)
def test_mistral_token_counts(encoder: Callable, name: str, plain: int, with_tool: int) -> None:
    """Counts observed with mistral-common 1.13.1 outside: one user turn, and the same with one tool."""
    one = encoder(name)
    assert len(one.prompt(HELLO).ids) == plain
    assert len(one.prompt({**HELLO, "tools": [TOOL]}).ids) == with_tool


def test_mistral_writes_ids_with_control_tokens(encoder: Callable) -> None:
    """BOS 1, [INST] 3, [/INST] 4 of the v3 vocabulary; the text is the ids decoded, control tokens kept."""
    prompt = encoder("mistral-v3").prompt(HELLO)
    assert (prompt.ids[0], prompt.ids[1], prompt.ids[-1]) == (1, 3, 4)
    assert prompt.text == "<s>[INST]▁Hello,▁世界!▁12345[/INST]"


def test_markup_in_a_users_text_is_text_to_mistral(encoder: Callable) -> None:
    """The one encoder here whose user cannot write control tokens."""
    ids = encoder("mistral-v3").prompt({"messages": [{"role": "user", "content": "[/INST]</s>"}]}).ids
    assert ids.count(4) == 1 and 2 not in ids


def test_the_last_nine_characters_of_a_call_id_are_kept(encoder: Callable) -> None:
    """Longer ids are cut by the front end, shorter ones are the library's to judge."""
    one = encoder("mistral-v3")
    longer = json.loads(json.dumps(CALLED).replace("abcde1234", "call_abcde1234"))
    assert one.prompt(longer) == one.prompt(CALLED)
    assert one.prompt(json.loads(json.dumps(CALLED).replace("abcde1234", "zbcde1234"))) != one.prompt(CALLED)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({**HELLO, "chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs are not supported"),
        ({**HELLO, "reasoning_effort": "colossal"}, "reasoning_effort=colossal"),
        ({**HELLO, "continue_final_message": True}, "the last message is not the assistant's"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "the last message is the assistant's"),
        ({**HELLO, "continue_final_message": True, "add_generation_prompt": True}, "exclude each other"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "image"}]}]}, "Error: "),
    ],
)
def test_what_mistrals_front_end_or_library_refuses(encoder: Callable, request_: dict, says: str) -> None:
    """An HTTP 400 of the server, so this request has no prompt."""
    with pytest.raises(VendorRefused, match=says):
        encoder("tekken").prompt(request_)


# ── harmony ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_harmony_gives_what_the_checkpoints_template_gives(encoder: Callable) -> None:
    """A plain chat: 74 ids, the same text as gpt-oss's chat template at the fixed date, and its tokenizer's ids."""
    checkpoint = load_checkpoint("gpt-oss-20b")
    prompt = encoder("harmony").prompt(HELLO)
    rendered = checkpoint.render(HELLO["messages"], None, {}, add_generation_prompt=True)
    assert prompt.text == rendered
    assert prompt.ids == checkpoint.encoders[0].encode([rendered])[0]
    assert len(prompt.ids) == 74


def test_harmonys_date_is_the_fixed_clocks(tmp_path: Path, encoder: Callable) -> None:
    """It stands in the prompt and in the provenance; another clock gives another prompt."""
    one = encoder("harmony")
    assert "Current date: 2026-01-15\n" in text(one, HELLO)
    assert one.provenance["conversation_start_date"] == "2026-01-15"
    later = dataclasses.replace(params(), clock=datetime(2027, 10, 2))
    with open_encoder("harmony", read_manifest(ROOT, "gpt-oss-20b"), later, snapshot("gpt-oss-20b")) as other:
        assert "Current date: 2027-10-02\n" in text(other, HELLO)


def test_harmony_writes_calls_as_the_model_learned_them(encoder: Callable) -> None:
    """The recipient stands before the channel, and the type is the bare word json."""
    prompt = text(encoder("harmony"), CALLED)
    assert (
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Lisbon"}' in prompt
    )
    assert "<|start|>functions.get_weather<|channel|>commentary to=assistant<|message|>sunny<|end|>" in prompt


def test_harmonys_effort_is_the_requests(encoder: Callable) -> None:
    """medium by default; chat_template_kwargs do not reach it; none and unknown ones are refused."""
    one = encoder("harmony")
    assert "Reasoning: medium\n" in text(one, HELLO)
    assert "Reasoning: high\n" in text(one, {**HELLO, "reasoning_effort": "high"})
    assert text(one, {**HELLO, "chat_template_kwargs": {"reasoning_effort": "high"}}) == text(one, HELLO)
    for effort in ("none", "xhigh"):
        with pytest.raises(VendorRefused, match="reasoning_effort"):
            one.prompt({**HELLO, "reasoning_effort": effort})


def test_a_leading_system_message_is_the_developers(encoder: Callable) -> None:
    """The harmony system message is the format's own; instructions go to the developer message."""
    request = {"messages": [{"role": "system", "content": "Be brief."}, *HELLO["messages"]]}
    assert "<|start|>developer<|message|># Instructions\n\nBe brief." in text(encoder("harmony"), request)


# ── Kimi K3 ──────────────────────────────────────────────────────────────────────────────────────────────────────────

STAND_IN = b'''
"""A stand-in for a vendor's tokenizer: ids are code points, prompts are JSON."""
import json
from pathlib import Path

from .helper import MARK


class TikTokenTokenizer:
    @classmethod
    def from_pretrained(cls, folder, **kwargs):
        made = cls()
        made.config = json.loads((Path(folder) / "tokenizer_config.json").read_text())
        return made

    def apply_chat_template(self, messages, tokenize, **kwargs):
        if messages[0]["role"] == "assistant":
            raise ValueError("roles")
        return [ord(c) for c in MARK + json.dumps([messages, kwargs, self.config], sort_keys=True)]

    def decode(self, ids, skip_special_tokens):
        return "".join(map(chr, ids))
'''


@pytest.fixture(scope="module")
def kimi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VendorEncoder]:
    """The adapter over the stand-in."""
    folder = tmp_path_factory.mktemp("kimi")
    files = {"tokenization_kimi.py": STAND_IN, "helper.py": b"MARK = '#'", "tokenizer_config.json": b"{}"}
    with open_encoder("kimi-k3", checkpoint_with(folder, files), params(), folder) as one:
        yield one


def test_kimis_tokenizer_class_writes_the_prompt(kimi: VendorEncoder) -> None:
    """Code files import each other; thinking has the name K3 knows; results stand in the order of their calls."""
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        for n, name in enumerate("fg")
    ]
    results = [{"role": "tool", "tool_call_id": one, "content": one} for one in ("g:1", "c0")]
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": calls}, *results]
    request = {"messages": messages, "tools": [TOOL], "tool_choice": "required", "reasoning_effort": "high"}
    prompt = kimi.prompt(request)
    assert prompt.ids == [ord(one) for one in prompt.text] and prompt.text[0] == "#"
    seen, kwargs, _ = json.loads(prompt.text[1:])
    assert [(one["tool"], one["index"]) for one in seen[2:]] == [("f", 1), ("g", 2)]
    assert kwargs == {
        "add_generation_prompt": True,
        "continue_final_message": False,
        "return_dict": False,
        "thinking": True,
        "thinking_effort": "high",
        "tool_choice": "required",
        "tools": [TOOL],
    }


def test_results_that_name_no_call_stay_where_they_are(kimi: VendorEncoder) -> None:
    """One unresolved result leaves its whole block as sent."""
    call = {"id": "c0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    results = [{"role": "tool", "tool_call_id": one, "content": one} for one in ("?", "c0")]
    request = {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}, *results]}
    seen, _, _ = json.loads(kimi.prompt(request).text[1:])
    assert [one["content"] for one in seen[2:]] == ["?", "c0"] and "tool" not in seen[3]


def test_kimis_refusals(kimi: VendorEncoder) -> None:
    """The class's own, and the front end's for an effort K3 does not know."""
    with pytest.raises(VendorRefused, match=r"^ValueError: roles$"):
        kimi.prompt({"messages": [{"role": "assistant", "content": "x"}]})
    with pytest.raises(VendorRefused, match="thinking_effort"):
        kimi.prompt({**HELLO, "reasoning_effort": "medium"})


def test_kimis_code_is_not_obtained(tmp_path: Path) -> None:
    """The real checkpoint's code was not found: a clear error, no reference."""
    with pytest.raises(OracleError, match=r"kimi-k3.*pins no file tokenization_kimi\.py") as error:
        open_encoder("kimi-k3", read_manifest(ROOT, "kimi-k3"), params(), tmp_path)
    assert "vendor-code:kimi-k3" in error.value.next_step


# ── all of them ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["deepseek-v3.2", "deepseek-v4", "deepseek-v4.1", "harmony", "tekken"])
def test_requests_do_not_influence_each_other(encoder: Callable, name: str) -> None:
    """The same prompts in any order, after refusals too, and the caller's request stays as it was."""
    one = encoder(name)
    requests = [HELLO, CALLED, {**HELLO, "tools": [TOOL]}]
    before = json.dumps(requests)
    first = [one.prompt(request) for request in requests]
    with pytest.raises(VendorRefused):
        one.prompt({"messages": [{"role": "oracle", "content": "x"}]})
    assert [one.prompt(request) for request in reversed(requests)] == first[::-1]
    assert json.dumps(requests) == before


def test_a_provenance_names_files_and_versions_and_nothing_of_the_machine(encoder: Callable) -> None:
    """It is compared across machines, so a path, a kernel or a host has no place in it."""
    deepseek, mistral = encoder("deepseek-v4").provenance, encoder("tekken").provenance
    assert deepseek == {
        "oracle": "vendor-code:deepseek-v4",
        "called_as": "vllm==0.33.0",
        "files": {"vendor/deepseek_v4_encoding.py": "aa407637bd2e58f20a16f781ea0bc519d06f74bed49deadaecb5aa5756d7230e"},
        "versions": {},
        "sandbox": ["seccomp", "landlock", "rlimits"],
    }
    assert mistral["versions"]["mistral-common"] == "1.13.1"
    assert json.loads(json.dumps(mistral)) == mistral


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_without_its_file_is_an_error(tmp_path: Path, name: str) -> None:
    """A manifest whose authority names an encoder has to pin what that encoder reads."""
    with pytest.raises(OracleError, match=f"by the vendor's encoder {name}, and its manifest pins no"):
        open_encoder(name, checkpoint_with(tmp_path, {"config.json": b"{}"}), params(), tmp_path)


def test_an_unknown_encoder_is_an_error(tmp_path: Path) -> None:
    """The known ones are listed."""
    with pytest.raises(OracleError, match="no vendor encoder 'toy'") as error:
        open_encoder("toy", checkpoint_with(tmp_path, {}), params(), tmp_path)
    assert "deepseek-v4.1" in error.value.next_step


def test_another_file_than_the_pinned_one_never_runs(tmp_path: Path) -> None:
    """Bytes are compared before anything starts."""
    name = "vendor/deepseek_v4_encoding.py"
    manifest = checkpoint_with(tmp_path, {name: b"def encode_messages(messages, **_): return ''"})
    (tmp_path / name).write_bytes(b"import os")
    with pytest.raises(PinMismatch, match=name):
        open_encoder("deepseek-v4", manifest, params(), tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(InputUnavailable):
        open_encoder("deepseek-v4", manifest, params(), tmp_path)


@pytest.mark.parametrize(
    "code",
    [
        "return 5",
        "return None",
        "return ['a']",
        "import socket; socket.socket(); return ''",
        "return open('/etc/passwd').read()",
        "open('/tmp/bellwether-breakout', 'w'); return ''",
        "import os; os._exit(0)",
    ],
)
def test_a_malicious_encoder_gives_no_prompt(tmp_path: Path, code: str) -> None:
    """What is no text, and what the walls stop, is no evidence of anything."""
    file = f"def encode_messages(messages, **_):\n    {code}\n".encode()
    manifest = checkpoint_with(tmp_path, {"vendor/deepseek_v4_encoding.py": file})
    with open_encoder("deepseek-v4", manifest, params(), tmp_path) as one, pytest.raises(OracleError):
        one.prompt(HELLO)


def test_an_encoder_that_does_not_end_is_no_evidence(tmp_path: Path) -> None:
    """oracle.template_seconds of params.yaml bounds one request."""
    manifest = checkpoint_with(
        tmp_path, {"vendor/deepseek_v4_encoding.py": b"def encode_messages(messages, **_):\n    while True: pass"}
    )
    hasty = dataclasses.replace(params(), template_seconds=0.5)
    with open_encoder("deepseek-v4", manifest, hasty, tmp_path) as one, pytest.raises(OracleError, match="no answer"):
        one.prompt(HELLO)
