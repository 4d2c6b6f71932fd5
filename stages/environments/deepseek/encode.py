"""Runs inside the sandbox: DeepSeek's prompt encoder, one file that needs the standard library only."""

from __future__ import annotations

import importlib.util
from types import ModuleType


def start(settings: dict) -> tuple:
    """Load the encoder at `settings["file"]`; facts are the constants of it that its caller has to know."""
    encoder = load(settings["file"])

    def answer(request: dict) -> dict:
        return {"text": encoder.encode_messages(request["messages"], **request["arguments"]), "ids": None}

    efforts = getattr(encoder, "REASONING_EFFORT_MAPPINGS", {})
    return answer, {"image": getattr(encoder, "IMAGE_PLACEHOLDER", None), "efforts": sorted(efforts)}


def load(file: str) -> ModuleType:
    """Return the module at `file`, under a name of its own: its folder is on no path."""
    spec = importlib.util.spec_from_file_location("vendor_encoder", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
