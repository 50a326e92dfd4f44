"""Call the command line in this process or in another one, and check the form of its answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.warm_program import WarmPopen
from torchprof_tui.cli import main

PROGRAM = [sys.executable, "-m", "torchprof_tui"]


def run_program(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own, with its output captured; `options` go to `WarmPopen`."""
    sent, seconds = options.pop("input", None), options.pop("timeout", 120)
    streams = {"stdin": subprocess.DEVNULL if sent is None else subprocess.PIPE}
    streams |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with WarmPopen([*PROGRAM, *map(str, arguments)], **{"text": True, **streams, **options}) as process:
        try:
            out, err = process.communicate(sent, seconds)
        finally:
            process.kill()  # no longer running, but for a timeout
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def call_main(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Call the program in this process; return its exit status, stdout and stderr."""
    status = main([str(argument) for argument in arguments])
    return status, *capsys.readouterr()


def read_json_answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """Call the program, which must succeed, and parse its stdout as one JSON document."""
    status, out, _ = call_main(capsys, *arguments)
    assert status == 0
    return json.loads(out)


def read_table_rows(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    """Call `table` with `--json` and these arguments; return its rows."""
    rows: list[dict[str, Any]] = read_json_answer(capsys, "table", *arguments, "--json")["rows"]
    return rows


def read_error_line(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Call the program, which must fail with exit status 2 and one line on stderr; return that line."""
    status, out, err = call_main(capsys, *arguments)
    assert status == 2
    assert out == ""
    assert err.startswith("torchprof-tui: ")
    assert err.count("\n") == 1
    return err
