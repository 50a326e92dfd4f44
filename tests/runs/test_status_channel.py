"""What a run says, from the harness's own writer to our reader."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from torchprof_runs.recorder.status_messages import PARENT_VARIABLE as THEIR_PARENT
from torchprof_runs.recorder.status_messages import STATUS_VARIABLE as THEIRS
from torchprof_runs.recorder.status_messages import Reporter
from torchprof_tui.runs.status_channel import PARENT_VARIABLE, STATUS_VARIABLE, StatusChannel, StatusMessage


@pytest.fixture
def channel() -> Iterator[StatusChannel]:
    with contextlib.closing(StatusChannel()) as made:
        yield made


def test_both_sides_mean_the_same() -> None:
    assert (STATUS_VARIABLE, PARENT_VARIABLE) == (THEIRS, THEIR_PARENT)


def test_what_is_written_is_read(channel: StatusChannel) -> None:
    writers = [Reporter(rank, channel.environment[STATUS_VARIABLE]) for rank in (0, 1)]
    assert channel.read() == []
    writers[0].report_phase("starting", folder="/runs/a")
    writers[1].report_phase("recording", step=2, of=3, cycle=1, cycles=1)
    writers[0].log("kept it")
    said = channel.read()
    assert [(each.rank, each.phase, each.log) for each in said] == [
        (0, "starting", ""), (1, "recording", ""), (0, "", "kept it"),
    ]  # fmt: skip
    assert channel.folder == "/runs/a"
    assert said[1].text == "recording, step 2 of 3"
    writers[0].report_phase("done", exit_status=3)
    assert [each.details["exit_status"] for each in channel.read()] == [3]


def test_a_line_that_comes_in_two_parts(channel: StatusChannel) -> None:
    writer = os.open(channel.environment[STATUS_VARIABLE], os.O_WRONLY)
    os.write(writer, b'{"time": 1, "rank": 0, "pha')
    assert channel.read() == []
    os.write(writer, b'se": "waiting"}\nnot ours\n[1]\n{"time": "x", "rank": 0}\n')
    assert [each.phase for each in channel.read()] == ["waiting"]
    os.close(writer)
    assert channel.read() == []  # nobody writes any more: not the end of the pipe


def test_nothing_is_left(channel: StatusChannel) -> None:
    path = StatusChannel()
    place = path.environment[STATUS_VARIABLE]
    path.close()
    assert not os.path.exists(os.path.dirname(place))
    Reporter(0, place).log("nobody is there")  # and no file is made in its place
    assert not os.path.exists(place)


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
    assert StatusMessage(0.0, 0, phase, "", facts).text == text
