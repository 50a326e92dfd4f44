"""Test crash reports: what stands in them, what must not, and how many are kept."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.helpers.command_line import PROGRAM, call_main, read_error_line, run_program
from tests.helpers.terminal import Terminal
from torchprof_samples import find
from torchprof_tui.commands.info import main as info
from torchprof_tui.program.crash_report import (
    FOLDER_NAME,
    MAX_REPORTS,
    format_report,
    format_traceback,
    write_report,
)
from torchprof_tui.program.phase_log import note_phase

SAMPLE = find("matmul_add_64_cold_eager").path

BROKEN_APP = """
import sys
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
def fail(self, *words):
    raise ValueError("".join(["sec", "ret::kernel"]))
ExplorerScreen.action_fit_all = fail
from torchprof_tui.cli import main
sys.exit(main())
"""


def format_crash_report(error: BaseException, details: Sequence[str] = ()) -> str:
    return format_report("traceback", format_traceback(error), details)


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the reports, which does not exist yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "torchprof-tui" / FOLDER_NAME


def fail(error: Exception) -> Exception:
    """Return the error with a traceback."""
    try:
        raise error
    except Exception as raised:
        return raised


@pytest.fixture
def _info_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command `info` raise KeyError."""

    def run(options: object) -> int:
        raise KeyError("".join(["sec", "ret::kernel"]))

    monkeypatch.setattr(info, "run", run)


def test_a_report_says_what_is_needed_and_nothing_of_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/me/bin/torchprof-tui", "check", "/home/me/secret_run/trace.json"])
    note_phase("load: reading", bytes=12)
    text = format_crash_report(fail(KeyError("".join(["sec", "ret::kernel"]))), ["app 80x24, screens ExplorerScreen"])
    for wanted in ("torchprof-tui 0.", "Python 3.", "textual 8", "TERM", "ExplorerScreen", "load: reading bytes=12"):
        assert wanted in text
    assert "test_crash_report.py" in text
    assert "in fail" in text
    assert "command check" in text
    assert "secret" not in text
    assert "/home/me" not in text


def test_messages_about_code_are_kept() -> None:
    text = format_crash_report(fail(AttributeError("'NoneType' object has no attribute 'lanes'")))
    assert "AttributeError: 'NoneType' object has no attribute 'lanes'" in text
    assert "secret_folder" not in format_crash_report(fail(TypeError("/secret_folder/a.json is no number")))


def test_a_cause_comes_before_its_effect() -> None:
    error = fail(RuntimeError("later"))
    error.__cause__ = fail(IndexError("index 5 is out of bounds"))
    text = format_crash_report(error)
    assert text.index("IndexError: index 5") < text.index("RuntimeError: (message left out")


def test_endless_recursion_is_a_short_report() -> None:
    def recurse() -> None:
        recurse()

    with pytest.raises(RecursionError) as raised:
        recurse()
    assert len(format_crash_report(raised.value).splitlines()) < 800


def test_old_reports_are_removed(reports: Path) -> None:
    for _ in range(MAX_REPORTS + 3):
        last = Path(write_report("traceback", format_traceback(fail(ValueError("x")))))
    kept = list(reports.iterdir())
    assert len(kept) == MAX_REPORTS
    assert last in kept
    assert last.stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("_info_fails")
def test_a_command_that_fails_by_a_bug_names_the_report(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = read_error_line(capsys, "info", SAMPLE).rstrip()
    (report,) = reports.iterdir()
    assert line == f"torchprof-tui: crashed (KeyError); please report it, the details are in {report}"
    assert "secret" not in report.read_text(encoding="utf-8")


@pytest.mark.usefixtures("_info_fails")
def test_debug_still_raises_the_error(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError, match="secret::kernel"):
        call_main(capsys, "info", SAMPLE, "--debug")
    assert not reports.exists()


def test_an_app_that_crashes_restores_the_terminal_and_names_the_report(reports: Path) -> None:
    command = [sys.executable, "-c", BROKEN_APP, str(SAMPLE), "--no-cache"]
    with Terminal(command, columns=160, XDG_STATE_HOME=os.environ["XDG_STATE_HOME"]) as terminal:
        terminal.wait_for("ProfilerStep#2", "stream 7")
        terminal.send("0")
        terminal.wait_for("crashed (ValueError); please report it")
        assert terminal.wait_for_end() == 2
        assert not terminal.is_raw()
        assert "secret" not in terminal.text
    (report,) = reports.iterdir()
    text = report.read_text(encoding="utf-8")
    assert "app 160x40, screens Screen > ExplorerScreen" in text
    assert "lanes on screen" in text
    assert "action_fit_all" in text or "in fail" in text
    assert "secret" not in text


def test_the_log_has_versions_and_phases_and_no_names(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    result = run_program("info", SAMPLE, "--no-cache", "--log", log)
    assert result.returncode == 0
    lines = log.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("torchprof-tui 0.")
    phases = [line.split("s  ", 1)[1] for line in lines if " s  " in line]
    assert phases[0] == "command info"
    assert "load: reading bytes=0 events=0" in phases
    assert phases[-1] == "end status=0"
    assert any(phase.startswith("trace opened events=34 cached=False") for phase in phases)
    assert "aten" not in log.read_text(encoding="utf-8")
    assert SAMPLE.name not in log.read_text(encoding="utf-8")


@pytest.mark.long
def test_the_log_of_the_app(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    with Terminal([*PROGRAM, str(SAMPLE), "--log", str(log)]) as terminal:
        terminal.wait_for("ProfilerStep#2", "stream 7")
        terminal.send("q")
        assert terminal.wait_for_end() == 0
    text = log.read_text(encoding="utf-8")
    for phase in (
        "app imported",
        "first screen columns=120 lines=40",
        "trace opened",
        "lanes on screen",
        "end status=0",
    ):
        assert phase in text


def test_a_log_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = call_main(capsys, "info", SAMPLE, "--log", tmp_path)
    assert status == 2
    assert "--log" in err
    assert err.count("\n") == 1
