"""The README's examples are true: each command is run, and what it prints is compared with the text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT

EXAMPLES = re.findall(r"```console\n\$ (.+?)\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)


def test_there_are_examples():
    """An empty list would test nothing."""
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize(("command", "expected"), EXAMPLES)
def test_example(command, expected):
    """The command prints exactly what the README shows."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", expected)
