"""Tests that share what takes long to make run in one process, or each process would make it again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

GROUPED = """
import os, pathlib, time, pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(6))
def test_of_a_group(number):
    time.sleep(0.1)
    pathlib.Path(__file__).with_name(f"{number}").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


def test_a_group_of_tests_runs_in_one_process(tmp_path: Path) -> None:
    """As `make test` runs them: with pytest 9.2 and pytest-xdist 3.8 groups were torn apart, without a word."""
    file = tmp_path / "test_grouped.py"
    file.write_text(GROUPED)
    options = ("-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path))
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    subprocess.run([sys.executable, "-m", "pytest", *options, str(file)], check=True, capture_output=True, env=own)
    assert len({(tmp_path / f"{number}").read_text() for number in range(6)}) == 1
