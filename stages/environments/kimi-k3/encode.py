"""Runs inside the sandbox: Kimi K3's own tokenizer code, whose `apply_chat_template` writes the prompt as ids."""

from __future__ import annotations

import importlib
import sys
import types


def start(settings: dict) -> tuple:
    """Load the class `settings["class"]` of the module `settings["module"]` from `settings["folder"]`."""
    package = types.ModuleType("vendor")
    package.__path__ = [settings["folder"]]  # so that its files may import each other, and nothing else of the folder
    sys.modules["vendor"] = package
    module = importlib.import_module(f"vendor.{settings['module']}")
    tokenizer = getattr(module, settings["class"]).from_pretrained(settings["folder"], local_files_only=True)

    def answer(request: dict) -> dict:
        ids = tokenizer.apply_chat_template(request["messages"], tokenize=True, **request["arguments"])
        ids = [int(token) for token in ids]
        return {"text": tokenizer.decode(ids, skip_special_tokens=False), "ids": ids}

    return answer, {"class": type(tokenizer).__name__}
