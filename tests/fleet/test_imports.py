"""What `fleet` imports: each process pays for it, and a sketch takes less time than some of these modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.command_line import read_error_line
from tests.helpers.paths import SAMPLES

pytest.importorskip("pyarrow")

RUN = SAMPLES / "train_gpt_2ranks"

FLEET = """
import contextlib, io, sys
from torchprof_tui.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    status = main(["fleet", sys.argv[1], "--json", "--jobs", "1"])
assert not status, status
print(*sys.modules)
"""

SKETCH = """
import sys
from torchprof_fleet.analysis.sketch_trace import sketch_file
assert sketch_file(sys.argv[1]).data
print(*sys.modules)
"""


def list_modules(script: str, argument: Path, cache: Path) -> set[str]:
    environment = os.environ | {"TORCHPROF_TUI_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(argument)], env=environment, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.long
def test_comparing_imports_neither_decoders_nor_pandas_nor_rich(tmp_path: Path) -> None:
    modules = list_modules(FLEET, RUN, tmp_path)
    assert "torchprof_fleet.analysis.report" in modules
    slow = ("pandas", "pyarrow.compute", "rich", "textual", "torchprof_tui.trace.decode", "torchprof_tui.trace.build")
    assert not modules.intersection(slow)
    assert "torchprof_tui.analysis.patterns.engine.checker" not in modules


@pytest.mark.long
def test_sketching_does_not_import_pandas(tmp_path: Path) -> None:
    modules = list_modules(SKETCH, RUN / "rank0.pt.trace.json.gz", tmp_path)
    assert not modules.intersection(("pandas", "pyarrow.compute", "rich", "textual"))


def test_without_pyarrow_the_extra_of_the_documents_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'torchprof-tui[fleet]'" in read_error_line(capsys, "fleet", RUN)
