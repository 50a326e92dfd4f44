"""Status messages of a run, from the harness's writer to the viewer's reader."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import msgspec
import pytest

from torchprof_runs.recorder import status_messages
from torchprof_runs.recorder.status_messages import Reporter
from torchprof_tui.runs.status_channel import (
    MAX_LINE_BYTES,
    MAX_READ_BYTES,
    PARENT_VARIABLE,
    STATUS_VARIABLE,
    StatusChannel,
    StatusMessage,
)


@pytest.fixture
def channel() -> Iterator[StatusChannel]:
    with contextlib.closing(StatusChannel()) as opened:
        yield opened


def test_both_sides_use_the_same_variables() -> None:
    assert status_messages.STATUS_VARIABLE == STATUS_VARIABLE
    assert status_messages.PARENT_VARIABLE == PARENT_VARIABLE


def test_what_is_written_is_read(channel: StatusChannel) -> None:
    writers = [Reporter(rank, channel.environment[STATUS_VARIABLE]) for rank in (0, 1)]
    assert channel.read() == []
    writers[0].report_phase("starting", folder="/runs/a")
    writers[1].report_phase("recording", step=2, of=3, cycle=1, cycles=1)
    writers[0].log("kept it")
    messages = channel.read()
    assert [(message.rank, message.phase, message.log) for message in messages] == [
        (0, "starting", ""), (1, "recording", ""), (0, "", "kept it"),
    ]  # fmt: skip
    assert channel.folder == "/runs/a"
    assert messages[1].text == "recording, step 2 of 3"
    writers[0].report_phase("done", exit_status=3)
    assert [message.phase for message in channel.read()] == ["done"]


def test_a_line_that_comes_in_two_parts(channel: StatusChannel) -> None:
    writer = os.open(channel.environment[STATUS_VARIABLE], os.O_WRONLY)
    os.write(writer, b'{"time": 1, "rank": 0, "pha')
    assert channel.read() == []
    os.write(writer, b'se": "waiting"}\nnot ours\n[1]\n{"time": "x", "rank": 0}\n')
    assert [message.phase for message in channel.read()] == ["waiting"]
    os.close(writer)
    assert channel.read() == []  # without writers, the pipe is not at its end


def test_closing_removes_the_pipe() -> None:
    channel = StatusChannel()
    path = channel.environment[STATUS_VARIABLE]
    channel.close()
    assert not os.path.exists(os.path.dirname(path))
    Reporter(0, path).log("no reader")  # does not create a file at the pipe's path
    assert not os.path.exists(path)


@pytest.mark.parametrize(
    ("phase", "facts", "text"),
    [
        ("exporting", {"file": "x"}, "exporting"),
        ("waiting", {"after_s": 2.5, "for_s": 1.0, "step": 0}, "waiting for 2.5 s"),
        ("recording", {"after_s": 0.0, "for_s": 1.0}, "recording for 1 s"),
        ("recording", {"after_s": 0.0, "for_s": None, "step": 4, "of": 0}, "recording, step 4"),
        ("recording", {"step": 1, "of": 3, "cycle": 2, "cycles": 4}, "recording, step 1 of 3, cycle 2 of 4"),
        ("recording", {"step": 1, "of": 3, "cycle": 2, "cycles": 0}, "recording, step 1 of 3, cycle 2"),
    ],
)
def test_a_phase_in_words(phase: str, facts: dict[str, object], text: str) -> None:
    message = msgspec.convert({"time": 0.0, "rank": 0, "phase": phase, **facts}, StatusMessage)
    assert message.text == text


def test_questions_and_the_progress_of_a_save(channel: StatusChannel) -> None:
    writer = Reporter(0, channel.environment[STATUS_VARIABLE])
    writer.report_phase("asking", choices={"y": "record all", "n": "stop"})
    writer.report_phase("exporting", raw="/r/a.json", expected=None, cycle=2)
    writer.report_phase("exporting", compressed=5, total=10)
    asking, writing, compressing = channel.read()
    assert (asking.choices, writing.choices) == ({"y": "record all", "n": "stop"}, {})
    assert (writing.raw, writing.expected, writing.text) == ("/r/a.json", None, "exporting")
    assert (compressing.compressed, compressing.total) == (5, 10)


@pytest.mark.parametrize(
    "line",
    [
        b'{"time": "1", "rank": 0, "phase": "recording"}',
        b'{"time": 1, "rank": "zero"}',
        b'{"time": 1e400, "rank": 0}',
        b'{"time": 1, "rank": 0, "phase": "waiting", "after_s": "2"}',
        b'{"time": 1, "rank": 0, "phase": null}',
        b'{"time": 1, "rank": 0, "cycles": {}}',
        b'{"time": 1, "rank": 0, "choices": {"yes": "more than a letter"}}',
        b'{"time": 1, "rank": 0, "choices": {"y": 1}}',
        b'{"time": 1, "rank": 0, "choices": []}',
        b'{"time": 1, "rank": 0, "total": -1}',
        rb'{"time": 1, "rank": 0, "folder": "/a\u0000b"}',
        b"[" * 4000,
        b'{"time": 1, "rank": 0, "x":' + b"[" * 3000 + b"]" * 3000 + b"}",
    ],
)
def test_a_line_of_the_program_itself_is_ignored(channel: StatusChannel, line: bytes) -> None:
    writer = os.open(channel.environment[STATUS_VARIABLE], os.O_WRONLY)
    os.write(writer, line + b'\n{"time": 1, "rank": 0, "phase": "done", "folder": "relative"}\n')
    assert [message.text for message in channel.read()] == ["done"]
    assert channel.folder is None
    os.close(writer)


def test_an_unknown_phase_with_missing_fields_has_a_text(channel: StatusChannel) -> None:
    writer = os.open(channel.environment[STATUS_VARIABLE], os.O_WRONLY)
    os.write(writer, b'{"time": 1, "rank": 0, "phase": "thinking", "cycles": 3, "of": 4}\n')
    assert [message.text for message in channel.read()] == ["thinking"]
    os.close(writer)


def test_a_line_without_end_is_not_kept(channel: StatusChannel) -> None:
    writer = os.open(channel.environment[STATUS_VARIABLE], os.O_WRONLY | os.O_NONBLOCK)
    for _ in range(40):
        os.write(writer, b"x" * 50_000)
        assert channel.read() == []
        assert len(channel._partial_line) <= MAX_LINE_BYTES + 1
    os.write(writer, b'\n{"time": 1, "rank": 0, "log": "after it"}\n')
    assert [message.log for message in channel.read()] == ["after it"]
    os.close(writer)


def test_one_read_is_limited(channel: StatusChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that writes faster than it is read does not keep the reader for ever."""
    line = b'{"time": 1, "rank": 0, "log": "x"}\n' * 1000
    monkeypatch.setattr(os, "read", lambda *_: line)
    assert len(channel.read()) == 1000 * -(-MAX_READ_BYTES // len(line))
