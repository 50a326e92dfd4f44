"""Tests of commands whose files are cut short by another program after the trace was opened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.trace_builder import kernel, runtime
from torchprof_tui.commands.common.load import CUT_FILE_LINE

_RUN_AND_CUT = """
import os, sys
from dataclasses import replace
from torchprof_tui import cli
from torchprof_tui.trace.loading import load_in_process as load

load_opened_trace = load.load_opened_trace

def load_and_cut(spec, report=None, cache=True):
    opened = load_opened_trace(spec, report, cache)
    os.truncate(spec if os.environ["CUT"] == "trace" else opened.cache_entry.folder / "columns", 0)
    return opened

load.load_opened_trace = load_and_cut
sys.exit(cli.main(sys.argv[1:]))
"""

COMMANDS = {
    "check": ["check", "{}"],
    "table": ["table", "{}"],
    "info": ["info", "{}"],
    "diff": ["diff", "{}", "{}"],
    "slice": ["slice", "{}", "--range", "0:1ms", "-o", "{}.part.json"],
    "chain": ["chain", "{}", "--event", "gemm"],
}


def run_and_cut(command: str, cut: str, folder: Path) -> subprocess.CompletedProcess[str]:
    entries = [runtime("cudaLaunchKernel", 10, 5, corr=3), kernel("gemm", 20, 30, corr=3)]
    path = folder / "a.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": entries}))
    return subprocess.run(
        [sys.executable, "-c", _RUN_AND_CUT, *(word.format(path) for word in COMMANDS[command])],
        env={**os.environ, "CUT": cut, "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="other systems may keep the pages")
@pytest.mark.parametrize("command", keep_some(COMMANDS, 1))
def test_cached_columns_that_are_cut_short_are_one_line(command: str, tmp_path: Path) -> None:
    ended = run_and_cut(command, "columns", tmp_path)
    assert ended.returncode == 128 + signal.SIGBUS
    assert ended.stderr.strip().splitlines() == [CUT_FILE_LINE]


@pytest.mark.parametrize("command", keep_some(COMMANDS, 1))
def test_a_trace_that_is_cut_short_is_a_result_or_one_line(command: str, tmp_path: Path) -> None:
    ended = run_and_cut(command, "trace", tmp_path)
    assert ended.returncode in (0, 1, 2)
    assert len(ended.stderr.strip().splitlines()) <= 1
    if ended.returncode == 2:
        assert ended.stderr.startswith("torchprof-tui: ")
