"""llama.cpp's own template engine as a witness of prompts: its rendered text of a checkpoint's chat template.

The engine is the C++ code of llama.cpp, build b10775, compiled to WebAssembly by the authors of ggufdoctor; no more
of that package runs here. It does what llama.cpp does with any template that has no handler of its own: probes what
the template can do, brings messages into the form it takes (parts of text joined with a newline, null content as empty
text), and renders. What is true of llama.cpp is true of it: `tools: []` is no tools, `enable_thinking` is always
defined, and true where the request does not say.

Its clock is compiled in (2026-01-01 00:00), so it is no witness of prompts that show the date.

| export | what it does |
|---|---|
| `_initialize()` | once per instance |
| `gd_alloc(size) → address`, `gd_free(address)` | room for the question |
| `gd_render(address, size) → address` | renders the JSON object `{"template", "context", "normalize"}` |
| `gd_out_len() → size` | of the answer: `{"ok": true, "text"}`, or `{"ok": false, "stage", "error"}` |
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import wasmtime
from serve import Refused, beside

chat_template = beside("chat_template")

BUILD = "b10775"
WASM = "4de88e68f8792347f1328be3ea377aa15100f2df7d2daf07fa6bee067d9c516f"
"""sha256 of the module."""
FUEL = 20_000_000_000
"""Instructions per render, some seconds' worth. Real prompts take less than a twentieth."""
MEMORY_BYTES = 512 << 20
OUT_OF_MEMORY = "std::bad_alloc"
"""How the engine says that it got no more memory."""
UNREADABLE = {"lexer", "parser"}
"""Stages at which a template is not one to the engine, whatever the request."""


class EngineFailed(Exception):
    """Raised when the engine ends without an answer: out of instructions or memory, or a fault of its own."""


@dataclass(frozen=True, slots=True)
class Module:
    """The compiled engine."""

    engine: wasmtime.Engine
    code: wasmtime.Module
    linker: wasmtime.Linker


def compiled() -> Module:
    """Return the engine, compiled once per process tree.

    Raises:
        ValueError: the package holds another module than the pinned one.
    """
    code = files("ggufdoctor.engine_data").joinpath("llamacpp-jinja.wasm").read_bytes()
    if (found := hashlib.sha256(code).hexdigest()) != WASM:
        raise ValueError(f"the WebAssembly module has sha256 {found}, expected {WASM}")
    config = wasmtime.Config()
    config.wasm_exceptions = True  # C++ exceptions are compiled to them
    config.consume_fuel = True
    engine = wasmtime.Engine(config)
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    return Module(engine, wasmtime.Module(engine, code), linker)


MODULE = compiled()


def load(settings: dict) -> tuple[Callable[[dict], dict], dict]:
    """Return the answerer of a checkpoint, and how it is set up.

    Raises:
        ValueError: there is no template, or the engine does not know the syntax of one.
        EngineFailed: it does not come to that.
    """
    found = chat_template.templates(Path(settings["model"]))
    for name, text in found.named.items():
        said = run(MODULE, text, {"messages": [{"role": "user", "content": "Probe."}]})
        if said.get("stage") in UNREADABLE:
            raise ValueError(f"the {name} template is not one to the engine: {last_line(said['error'])}")

    def answer(question: dict) -> dict:
        if question["kind"] != "render":
            raise chat_template.NoMeasurement(f"a template engine has no answer to {question['kind']}")
        asked = chat_template.asked(question["request"])
        said = run(MODULE, found.named[found.name_for(asked.tools)], context(asked, found.tokens))
        return {"prompt_ids": None, "prompt_text": text_of(said)}

    facts = {
        "llama.cpp": BUILD,
        "wasm_sha256": WASM,
        "ggufdoctor": version("ggufdoctor"),
        "wasmtime": version("wasmtime"),
        "enable_thinking": "true where the request does not say",
        "chat_templates": found.digests,
    }
    return answer, facts


def context(asked: chat_template.Asked, tokens: dict[str, str]) -> dict:
    """Return what llama.cpp gives a template; chat_template_kwargs go over it."""
    context = {
        "messages": asked.messages,
        "bos_token": tokens.get("bos_token", ""),
        "eos_token": tokens.get("eos_token", ""),
        "enable_thinking": True,
        "add_generation_prompt": asked.add_generation_prompt,
    }
    tools = {"tools": asked.tools} if asked.tools else {}
    return {**context, **tools, **asked.kwargs}


def run(module: Module, template: str, context: dict) -> dict:
    """Return what the engine says, from an instance of its own.

    Raises:
        EngineFailed: it ended without an answer.
    """
    asked = json.dumps({"template": template, "context": context, "normalize": True}).encode()
    store = wasmtime.Store(module.engine)
    store.set_fuel(FUEL)
    store.set_limits(memory_size=MEMORY_BYTES)
    store.set_wasi(wasmtime.WasiConfig())
    try:
        exports = module.linker.instantiate(store, module.code).exports(store)
        exports["_initialize"](store)
        memory, place = exports["memory"], exports["gd_alloc"](store, len(asked))
        memory.write(store, asked, place)
        answer = exports["gd_render"](store, place, len(asked))
        return json.loads(bytes(memory.read(store, answer, answer + exports["gd_out_len"](store))))
    except (wasmtime.WasmtimeError, wasmtime.Trap, ValueError) as error:
        raise EngineFailed(last_line(str(error))) from None
    finally:
        store.close()


def text_of(said: dict) -> str:
    """Return the rendered text.

    Raises:
        Refused: the template or the engine refuses.
        EngineFailed: the engine says something else.
    """
    match said:
        case {"ok": True, "text": str(text)}:
            return text
        case {"ok": False, "stage": "raise", "error": str(error)}:
            raise Refused("template-error", error)
        case {"ok": False, "stage": "render", "error": str(error), "caps": dict(caps)} if caps:
            if error.endswith(OUT_OF_MEMORY):  # our bound, not the engine's
                raise EngineFailed(f"more than {MEMORY_BYTES:,} bytes")
            raise Refused("template-error", last_line(error))
    raise EngineFailed(str(said))


def last_line(text: str) -> str:
    """Return the last line that says something: what the engine complains about, without where it stands."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it does not say why")
