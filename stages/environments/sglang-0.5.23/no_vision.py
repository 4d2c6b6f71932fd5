"""Imported before SGLang: lets it be imported where there is no graphics card and no torchvision.

Modules of vision models import torchvision. They find one that holds nothing; transformers, which asks whether there is
one, is imported before that.
"""

from __future__ import annotations

import os

os.environ |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import importlib.abc
import importlib.machinery
import logging
import sys
from types import ModuleType
from unittest.mock import MagicMock

import torch  # noqa: F401
import transformers  # noqa: F401


class NoVision(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torchvision: modules that hold nothing."""

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return MagicMock(name=spec.name, __path__=[], __spec__=spec)

    def exec_module(self, module: ModuleType) -> None:
        pass


sys.meta_path.append(NoVision())
logging.disable(logging.CRITICAL)
