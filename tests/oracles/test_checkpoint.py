"""Checkpoints as oracles: loading, stop ids, the fixed clock, and what a template may and may not do."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import signal
from datetime import datetime

import pytest

from bellwether.errors import OracleError, PinMismatch, TemplateTimeout, VersionMismatch
from bellwether.oracles.checkpoint import StopIds, load, stop_ids
from bellwether.oracles.limits import time_limit
from bellwether.oracles.prompts import CollidingVariable, TemplateError
from bellwether.params import read_manifest
from support import chat_template, load_checkpoint, snapshot

HELLO = [{"role": "user", "content": "Hello, 世界! 12345"}]

TOKENS = {
    "qwen3-8b": 19,
    "hermes-4-14b": 33,
    "qwen3.5-9b": 21,
    "deepseek-v3-0324": 11,
    "glm-4.6": 12,
    "gpt-oss-20b": 74,
    "kimi-k2-instruct": 34,
    "smollm2-135m-instruct": 45,
    "qwq-32b": 21,
    "qwen2.5-7b-instruct": 40,
    "qwen3-coder-30b-a3b-instruct": 19,
    "qwen3.6-27b": 21,
    "deepseek-v3.1": 12,
    "deepseek-v4": 12,
    "gemma-3-it": 19,
    "gemma-4-e4b-it": 19,
    "kimi-k3": 96,
    "llama-3-8b-instruct": 17,
    "llama-3.1-8b-instruct": 42,
    "mistral-7b-instruct-v0.3": 15,
    "phi-4": 17,
    "command-r": 50,
    # Measured at 48 with other names of four added tokens: <functions> and </functions> were four tokens, now two.
    "olmo-3-7b-instruct": 46,
    # Measured at 13 without the <s> that a tokenizer_config.json gives the template; the vendor's encoder says 14 too.
    "mistral-nemo-instruct-2407": 14,
    # By hand, from the family's figures: <think> and a newline in the place of </think>; a shorter system prompt; a
    # newline that Phi-4, whose vocabulary it is, does not write.
    "deepseek-r1": 13,
    "qwen2.5-7b-instruct-1m": 30,
    "granite-4.1-3b": 18,
}
"""Checkpoint → tokens of HELLO with generation prompt, measured independently of this project."""

STOPS = {
    "qwen3-8b": StopIds((151643, 151645), (151643, 151645), "generation_config.json"),
    "hermes-4-14b": StopIds((151643, 151645), (151643,), "generation_config.json"),
    "deepseek-v3-0324": StopIds((1,), (1,), "config.json"),
    "gpt-oss-20b": StopIds((199999, 200002, 200012), (199999, 200002, 200012), "generation_config.json"),
    "kimi-k2-instruct": StopIds((163586,), (163586,), "generation_config.json"),
    "glm-4.6": StopIds((151329, 151336, 151338), (151329, 151336, 151338), "generation_config.json"),
    "qwen3.5-9b": StopIds((248044, 248046), (248044,), "config.json"),
    "smollm2-135m-instruct": StopIds((2,), (2,), "generation_config.json"),
    "qwq-32b": StopIds((151643, 151645), (151643, 151645), "generation_config.json"),
    "qwen2.5-7b-instruct": StopIds((151643, 151645), (151643, 151645), "generation_config.json"),
    "qwen2.5-7b-instruct-1m": StopIds((151643, 151645), (151643, 151645), "generation_config.json"),
    "qwen3-coder-30b-a3b-instruct": StopIds((151643, 151645), (151643, 151645), "generation_config.json"),
    "qwen3.6-27b": StopIds((248044, 248046), (248044, 248046), "generation_config.json"),
    "deepseek-v3.1": StopIds((1,), (1,), "generation_config.json"),
    "deepseek-v4": StopIds((1,), (1,), "generation_config.json"),
    "deepseek-r1": StopIds((1,), (1,), "generation_config.json"),
    "gemma-3-it": StopIds((1, 106), (1, 106), "generation_config.json"),
    "gemma-4-e4b-it": StopIds((1, 50, 106), (1, 50, 106), "generation_config.json"),
    "kimi-k3": StopIds((163585, 163586), (163586,), "generation_config.json"),
    "llama-3-8b-instruct": StopIds((128001, 128009), (128001, 128009), "generation_config.json"),
    "llama-3.1-8b-instruct": StopIds((128001, 128008, 128009), (128001, 128008, 128009), "generation_config.json"),
    "mistral-7b-instruct-v0.3": StopIds((2,), (2,), "generation_config.json"),
    "mistral-nemo-instruct-2407": StopIds((2,), (2,), "generation_config.json"),
    "phi-4": StopIds((100265,), (100265,), "generation_config.json"),
    "command-r": StopIds((255001,), (255001,), "generation_config.json"),
    "olmo-3-7b-instruct": StopIds((100257, 100265), (100257, 100265), "generation_config.json"),
    "granite-4.1-3b": StopIds((100257,), (100257,), "generation_config.json"),
}
"""Checkpoint → the ids of its config files, with the tokenizer's own end-of-text id for parsing."""


@pytest.mark.parametrize("slug", TOKENS)
def test_real_checkpoint_renders_as_measured(checkpoint, slug):
    """Every checkpoint loads from its verified folder and gives a prompt of the known length under each encoder."""
    loaded = checkpoint(slug)
    text = loaded.render(HELLO, None, {}, add_generation_prompt=True)
    assert [len(encoder.encode([text])[0]) for encoder in loaded.encoders] == [TOKENS[slug]] * len(loaded.encoders)


@pytest.mark.parametrize("slug", STOPS)
def test_stop_ids(checkpoint, slug):
    """generation_config.json decides, else config.json; the tokenizer's eos counts for parsing only."""
    assert checkpoint(slug).stop_ids == STOPS[slug]


def test_every_checkpoint_in_scope_is_covered_here(params):
    """A checkpoint that is added gets its figures in this file."""
    assert set(params.checkpoints) <= set(TOKENS) == set(STOPS)


@pytest.mark.parametrize("slug", TOKENS)
def test_render_equals_transformers_to_the_id(checkpoint, slug):
    """Encoding the rendered text gives the ids that transformers' own tokenize=True gives."""
    loaded = checkpoint(slug)
    text = loaded.render(HELLO, None, {}, add_generation_prompt=True)
    theirs = loaded.tokenizer.apply_chat_template(HELLO, tokenize=True, add_generation_prompt=True, return_dict=False)
    if not loaded.reads_clock(None):
        assert loaded.encoders[0].encode([text]) == [theirs]


def test_stop_ids_of_an_empty_set_are_an_error(checkpoint, tmp_path):
    """Without a stop id no output ever ends, so the checkpoint is no oracle."""
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": null}')
    manifest = dataclasses.replace(checkpoint("qwen3-8b").manifest, inputs={"generation_config.json": "0" * 64})
    with pytest.raises(OracleError, match="no stop id"):
        stop_ids(manifest, tmp_path, None)


def test_generation_config_that_was_not_obtained_is_an_error(checkpoint):
    """Not looked at is not the same as not there."""
    manifest = checkpoint("deepseek-v3-0324").manifest
    blind = dataclasses.replace(manifest, unreached={"generation_config.json": "0" * 64})
    with pytest.raises(OracleError, match="was not obtained"):
        stop_ids(blind, snapshot("deepseek-v3-0324"), 1)


def test_changed_input_is_refused_before_anything_is_read(params, root):
    """A recorder names the file, the pinned and the actual sha256, and stops."""
    manifest = read_manifest(root, "smollm2-135m-instruct")
    changed = dataclasses.replace(manifest, inputs={**manifest.inputs, "tokenizer.json": "0" * 64})
    said = f"tokenizer.json: expected sha256 {'0' * 64}, got {manifest.inputs['tokenizer.json']}"
    with pytest.raises(PinMismatch, match=re.escape(said)):
        load(changed, params, snapshot("smollm2-135m-instruct"))


@pytest.mark.parametrize(("library", "version"), [("transformers", "5.0.0"), ("jinja2", "2.0"), ("no-such-thing", "1")])
def test_oracle_library_at_another_version_is_refused(params, root, library, version):
    """transformers, tokenizers and jinja2 compute the reference, so their versions are pins too."""
    other = dataclasses.replace(params, versions={**params.versions, library: version})
    with pytest.raises(VersionMismatch, match=f"{library}: expected {version}, found "):
        load(read_manifest(root, "qwen3-8b"), other, snapshot("qwen3-8b"))


def test_tokenizer_that_is_no_tokenizer_is_an_error(params, root, tmp_path):
    """Garbage in a vendor's file ends in a sentence, not in a traceback of a library."""
    manifest = read_manifest(root, "qwen3-8b")
    (tmp_path / "tokenizer.json").write_text("{}")
    sha = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # of the two bytes {}
    with pytest.raises(OracleError, match="transformers cannot load"):
        load(dataclasses.replace(manifest, inputs={"tokenizer.json": sha}), params, tmp_path)


def test_checkpoint_without_template_is_an_error(params, root, tmp_path):
    """No chat template is an error of the whole group, never a refusal per case."""
    manifest = read_manifest(root, "smollm2-135m-instruct")
    folder = tmp_path / "bare"
    shutil.copytree(snapshot("smollm2-135m-instruct"), folder)
    (folder / "chat_template.jinja").unlink()
    inputs = {name: sha for name, sha in manifest.inputs.items() if name != "chat_template.jinja"}
    with pytest.raises(OracleError, match="has no chat template"):
        load(dataclasses.replace(manifest, inputs=inputs), params, folder)


# ── the clock ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_template_sees_the_fixed_clock(checkpoint):
    """gpt-oss writes today's date; a recording writes the date of params.yaml, or the one it is asked for."""
    gpt = checkpoint("gpt-oss-20b")
    assert "Current date: 2026-01-15\n" in gpt.render(HELLO, None, {}, add_generation_prompt=True)
    other = gpt.render(HELLO, None, {}, add_generation_prompt=True, moment=datetime(2031, 7, 4))
    assert "Current date: 2031-07-04\n" in other


def test_only_gpt_oss_can_read_the_clock(checkpoint, params):
    """Of the checkpoints in scope, one template spells the function that reads the time."""
    assert [slug for slug in params.checkpoints if checkpoint(slug).reads_clock(None)] == ["gpt-oss-20b"]


# ── templates are untrusted ──────────────────────────────────────────────────────────────────────────────────────────


def test_template_that_never_ends_is_stopped(with_template):
    """Two nested loops run for days; the limit ends them with the case's name and the next step."""
    endless = with_template("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
    with pytest.raises(TemplateTimeout, match=r"did not end within 0\.2 s on this case"), time_limit(0.2, "this case"):
        endless.render(HELLO, None, {}, add_generation_prompt=True)


def test_time_limit_leaves_no_alarm_behind():
    """After the body, no alarm is pending and the earlier handler is back."""
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(60, "x"):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ raise_exception.__globals__.os }}",
        "{% include '/etc/passwd' %}",
        "{{ messages.append(1) }}",
    ],
)
def test_template_cannot_leave_its_sandbox(with_template, template):
    """Python's internals, files and the caller's lists are out of reach; the attempt is an error of the template."""
    with pytest.raises(TemplateError):
        with_template(template).render(HELLO, None, {}, add_generation_prompt=True)


@pytest.mark.parametrize("key", ["tokenize", "chat_template", "conversation", "return_dict", "continue_final_message"])
def test_request_cannot_reach_parameters_of_the_library(checkpoint, key):
    """chat_template_kwargs are template variables; a name that would steer transformers is refused."""
    with pytest.raises(CollidingVariable, match=key):
        checkpoint("qwen3-8b").render(HELLO, None, {key: "x"}, add_generation_prompt=True)


def test_reasons_hold_no_addresses(with_template):
    """A reason that differs between two runs would make two recordings differ."""
    with pytest.raises(TemplateError) as caught:
        with_template("{{ raise_exception(namespace ~ '') }}").render(HELLO, None, {}, add_generation_prompt=True)
    assert "0x…" in str(caught.value) or "0x" not in str(caught.value)


def test_long_reasons_are_cut(with_template):
    """transformers repeats the whole prompt in some messages; a reason keeps its beginning."""
    with pytest.raises(TemplateError) as caught:
        with_template("{{ raise_exception('a' * 9000) }}").render(HELLO, None, {}, add_generation_prompt=True)
    assert len(str(caught.value)) == 501


def test_template_for_tools_is_the_one_used(with_template):
    """A checkpoint may ship a second template for requests with tools; the oracle uses it as transformers does."""
    plain = with_template("plain")
    plain.tokenizer.chat_template = {"default": "plain", "tool_use": "with tools {{ strftime_now('%Y') }}"}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert plain.render(HELLO, None, {}, add_generation_prompt=True) == "plain"
    assert plain.render(HELLO, tools, {}, add_generation_prompt=True) == "with tools 2026"
    assert (plain.reads_clock(None), plain.reads_clock(tools)) == (False, True)


def test_provenance_is_equal_on_every_machine(checkpoint):
    """Provenance holds pins and versions only: no path, host, time or Python version."""
    provenance = checkpoint("gpt-oss-20b").provenance
    assert json.loads(json.dumps(provenance)) == provenance
    assert provenance["chat_template_sha256"] == "a4c9919cbbd4acdd51ccffe22da049264b1b73e59055fa58811a99efbd7c8146"
    assert provenance["tokenizer_class"] == "TokenizersBackend"
    assert provenance["other_clock"] == "2027-10-02T23:30:00"
    assert load_checkpoint("qwen3-8b").provenance["other_clock"] is None
    assert chat_template("openai-gpt-oss-120b") == checkpoint("gpt-oss-20b").template
