"""Test `Trace.repetitions` of the Python API against the command."""

from __future__ import annotations

import pytest

import torchprof_tui as tt
from tests.helpers.command_line import read_json_answer
from torchprof_samples import find


def test_repetitions_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    path = find("train_gpt_stack_memory").path
    patterns = read_json_answer(capsys, "table", path, "--of", "repetitions", "--json")["totals"]["patterns"]
    with tt.open(str(path)) as trace:
        found = trace.repetitions
        assert [each.label for each in found] == [pattern["label"] for pattern in patterns]
        for each, pattern in zip(found, patterns, strict=True):
            assert isinstance(each, tt.Repetition)
            assert (len(each), each.parent, each.events) == (
                pattern["repetitions"],
                pattern["parent"],
                pattern["events"],
            )
            assert each.p50_ns / 1000 == pytest.approx(pattern["p50_us"])
            assert each.p95_ns / 1000 == pytest.approx(pattern["p95_us"])
            assert int(each.differs.sum()) == pattern["differing"]
            assert trace.events.start_ns[each.first].tolist() == each.start_ns.tolist()
            assert [row["start_ns"] for row in each.to_records()] == each.start_ns.tolist()
            assert f"{len(each)} × {each.events}" in repr(each)


def test_a_trace_without_any() -> None:
    with tt.open("sample:linear_eager") as trace:
        assert trace.repetitions == ()
