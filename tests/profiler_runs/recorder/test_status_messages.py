"""Status of a run: log lines without control characters, and JSON lines whose writing never blocks."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from torchprof_runs.recorder.status_messages import MAX_LINE_BYTES, Reporter, escape_control_characters


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_no_control_character_reaches_a_terminal(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    reporter = Reporter(rank=2)
    reporter.open_log(str(tmp_path / "log.txt"))
    reporter.log("a\x1b[2Jb\nc é")
    assert capfd.readouterr().err == "torchprof[rank 2]: a\\x1b[2Jb\\nc é\n"
    assert (tmp_path / "log.txt").read_text() == "torchprof[rank 2]: a\\x1b[2Jb\\nc é\n"
    assert escape_control_characters("\x9b\u202e") == "\\x9b\\u202e"


def test_steps_that_follow_each_other_quickly_are_reported_at_intervals(tmp_path: Path) -> None:
    reporter = Reporter(channel=str(tmp_path / "status"))
    start = time.monotonic()
    for step in range(20_000):
        reporter.report_phase("waiting", step=step)
    elapsed = time.monotonic() - start
    reporter.report_phase("recording", step=1)
    reporter.report_phase("exporting")
    messages = lines(tmp_path / "status")
    assert [message["phase"] for message in messages][-2:] == ["recording", "exporting"]  # a new phase: always
    assert len(messages) <= elapsed / 0.05 + 4
    assert messages[0] == {**messages[0], "phase": "waiting", "step": 0, "rank": 0, "pid": os.getpid()}


def test_writing_to_a_descriptor_never_blocks() -> None:
    read_fd, write_fd = os.pipe()
    reporter = Reporter(channel=str(write_fd))
    for _ in range(5_000):  # far more than a pipe can buffer, without a reader
        reporter.log("x" * 500)
    received = os.read(read_fd, 1 << 20).splitlines()
    assert json.loads(received[0])["log"] == "x" * 500
    assert all(json.loads(line) for line in received)
    os.close(read_fd)
    reporter.log("the reader is gone")


def test_a_long_line_stays_short_enough_for_a_pipe(tmp_path: Path) -> None:
    reporter = Reporter(channel=str(tmp_path / "status"))
    reporter.log("\U0001f4a9" * 3_000)
    reporter.report_phase("done", kept=["x" * 5_000])
    reporter.report_phase("waiting")
    raw = (tmp_path / "status").read_bytes().splitlines()
    assert json.loads(raw[-1])["phase"] == "waiting"
    assert all(len(line) < MAX_LINE_BYTES for line in raw)


def test_a_channel_that_cannot_be_opened_is_ignored(tmp_path: Path) -> None:
    for channel in ("", None, str(tmp_path / "no" / "such"), "987"):
        Reporter(channel=channel).report_phase("done")
