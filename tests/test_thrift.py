"""A recording process without pandas, whose garbage collector leaves alone what loading made."""

from __future__ import annotations

import subprocess
import sys
import textwrap

SETTLED = """
    import gc, importlib.util, sys
    import pyarrow as pa
    from bellwether.thrift import settle

    assert importlib.util.find_spec("pandas") is not None, "nothing to spare here"
    settle()
    settle()
    assert gc.get_freeze_count() > 10_000
    assert pa.array(["a", None], pa.string()).to_pylist() == ["a", None]
    assert pa.RecordBatch.from_pylist([{"a": [1]}]).to_pylist() == [{"a": [1]}]
    assert "pandas" not in sys.modules
    assert [type(finder).__name__ for finder in sys.meta_path].count("_NoPandas") == 1
    try:
        import pandas
    except ModuleNotFoundError as error:
        print(error)
    import decimal, xml.dom  # others are found as ever
"""


def test_settled_process_never_imports_pandas():
    """pyarrow converts without it; loading's objects are frozen; to settle twice is to settle once."""
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(SETTLED)], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("a recording process has no use for pandas\n", "")
