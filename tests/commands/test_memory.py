"""Test `memory`: its text, its JSON against the API and against torch's numbers, and what it refuses."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import torchprof_tui as tt
from tests.helpers.command_line import call_main, read_error_line, read_json_answer
from tests.helpers.json_schemas import find_violation
from tests.helpers.long_run import keep_some
from tests.helpers.memory_fixtures import MEMORY, read_numbers

START = MEMORY / "start.pt.trace.json.xz"
SAMPLE = "sample:train_gpt_stack_memory"
GROUPINGS = ("category", "op", "module", "line", "phase", "shape")


@pytest.mark.parametrize("by", keep_some(GROUPINGS, 6))
@pytest.mark.parametrize("at", ["peak", "end", "2ms"])
def test_parts_sum_to_what_is_alive(capsys: pytest.CaptureFixture[str], by: str, at: str) -> None:
    answer = read_json_answer(capsys, "memory", SAMPLE, "--by", by, "--at", at, "--top", "3", "--json")
    assert find_violation(answer, "AliveMemory") == ""
    total = answer["at"]["alive_bytes"]
    assert sum(group["bytes"] for group in answer["groups"]) == total
    assert sum(answer["categories"].values()) + answer["unaccounted_bytes"] == total
    listed = sum(each["bytes"] for each in answer["alive"])
    assert listed + answer["rest_bytes"] + answer["before_window_bytes"] + answer["unaccounted_bytes"] == total
    assert sum(part["bytes"] for part in answer["before_window"]) == answer["before_window_bytes"]
    assert len(answer["alive"]) <= 3
    assert set(answer["rules"]) == set(answer["categories"])


def test_the_peak_is_that_of_torch(capsys: pytest.CaptureFixture[str]) -> None:
    answer = read_json_answer(capsys, "memory", START, "--json")
    stats = read_numbers()["start_stats"]
    assert answer["device"] == "GPU 0"
    assert answer["peak"]["allocated_bytes"] == answer["at"]["alive_bytes"] == stats["allocated_bytes.all.peak"]
    assert answer["peak"]["reserved_bytes"] <= stats["reserved_bytes.all.peak"]
    assert answer["cannot_tell"] is None
    assert [each["device"] for each in answer["devices"]] == ["GPU 0", "CPU"]


def test_the_api_has_the_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with tt.open(SAMPLE) as trace:
        for by in GROUPINGS:
            answer = read_json_answer(capsys, "memory", SAMPLE, "--by", by, "--json")
            alive = trace.memory_at(by=by)  # type: ignore[arg-type]
            assert alive.at.alive_bytes == answer["at"]["alive_bytes"]
            assert [(each.label, each.bytes) for each in alive.groups] == [
                (each["label"], each["bytes"]) for each in answer["groups"]
            ]
            assert [(each.bytes, each.op, each.category) for each in alive.alive] == [
                (each["bytes"], each["op"], each["category"]) for each in answer["alive"]
            ]
        assert trace.memory_at("end", device="cpu").device == "CPU"
        curve = trace.memory_curve()
        assert int(curve.allocated_bytes.max()) == trace.memory_at().at.alive_bytes
        for wrong in ({"by": "colour"}, {"device": "GPU 9"}, {"at": "noon"}):
            with pytest.raises(tt.TraceError):
                trace.memory_at(**wrong)  # type: ignore[arg-type]


def test_text_names_the_peak_the_groups_and_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call_main(capsys, "memory", START, "--top", "4")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("GPU 0: peak 192 MiB at ")
    assert any(line.rstrip().endswith("activation") for line in lines)
    assert any("aten::nll_loss_backward" in line and "record.py:" in line for line in lines)
    assert "groups: 3 more (--top 0 shows all)" in lines
    assert any(line.startswith("optimizer state: allocated in Optimizer.step") for line in lines)


def test_what_was_not_recorded_is_named_with_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert "profile_memory=True" in read_error_line(capsys, "memory", "sample:matmul_add_64_cold_eager")
    with tt.open("sample:matmul_add_64_cold_eager") as trace, pytest.raises(tt.TraceError, match="profile_memory=True"):
        trace.memory_at()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--at", "noon"], "--at noon: not a time"),
        (["--device", "GPU7"], "there is GPU0, CPU"),
        (["--by", "stack"], "of a trace, --by line"),
        (["--by", "colour"], "invalid choice"),
        (["--top", "-1"], "not a number of rows"),
        (["--rank", "3"], "no such rank"),
    ],
)
def test_wrong_calls(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert message in read_error_line(capsys, "memory", SAMPLE, *words)


@pytest.mark.parametrize("by", keep_some(["line", "stack"], 4))
@pytest.mark.parametrize("at", ["peak", "end", "100us"])
@pytest.mark.parametrize("name", ["snapshot", "oom"])
def test_a_snapshot(capsys: pytest.CaptureFixture[str], name: str, at: str, by: str) -> None:
    answer = read_json_answer(capsys, "memory", MEMORY / f"{name}.pickle.gz", "--at", at, "--by", by, "--json")
    assert find_violation(answer, "Snapshot") == ""
    stats, totals = read_numbers()[f"{name}_stats"], answer["totals"]
    assert totals["reserved_bytes"] == stats["reserved_bytes.all.current"]
    assert sum(segment["total_bytes"] for segment in answer["segments"]) == totals["reserved_bytes"]
    assert sum(segment["allocated_bytes"] for segment in answer["segments"]) == totals["allocated_bytes"]
    requested = totals["requested_bytes"] if at == "end" else answer["at"]["requested_bytes"]
    assert sum(group["bytes"] for group in answer["groups"]) + answer["older_bytes"] == requested
    assert len(answer["out_of_memory"]) == (name == "oom")
    status, out, _ = call_main(capsys, "memory", MEMORY / f"{name}.pickle.gz", "--at", at, "--by", by, "--top", "2")
    assert status == 0
    assert out.startswith("GPU 0: ")
    assert ("Out of memory at" in out) == (name == "oom")


def write(path: Path, content: Any) -> Path:
    path.write_bytes(pickle.dumps(content))
    return path


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("it ran",)


def test_hostile_and_other_pickles_get_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hostile = write(tmp_path / "a.pickle", {"segments": _Runs()})
    line = read_error_line(capsys, "memory", hostile)
    assert "it holds STACK_GLOBAL at byte" in line
    assert "dicts, lists, texts and numbers only" in line
    assert "not a memory snapshot" in read_error_line(capsys, "memory", write(tmp_path / "b.pickle", [1]))
    empty = write(tmp_path / "c.pickle", {"segments": [], "device_traces": [[]]})
    assert "the snapshot is empty" in read_error_line(capsys, "memory", empty)


def test_wrong_calls_with_a_snapshot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = MEMORY / "oom.pickle.gz"
    assert "lines and stacks only" in read_error_line(capsys, "memory", path, "--by", "op")
    assert "one snapshot at a time" in read_error_line(capsys, "memory", path, path)
    assert "there is GPU0" in read_error_line(capsys, "memory", path, "--device", "GPU1")
    assert "--rank" in read_error_line(capsys, "memory", path, "--rank", "0")
    block = {"size": 4, "state": "active_allocated", "frames": []}
    plain = {"segments": [{"device": 0, "total_size": 4, "blocks": [block]}]}
    without = write(tmp_path / "d.pickle", plain)
    assert "_record_memory_history" in read_error_line(capsys, "memory", without, "--at", "1ms")
    status, out, _ = call_main(capsys, "memory", without)
    assert status == 0
    assert "(no stack recorded)" in out
    assert "no history" in out


def test_texts_of_a_snapshot_are_escaped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    frames = [{"name": "f\x1b[31m", "filename": "a\nb.py", "line": 1}]
    block = {"size": 4, "state": "active_allocated", "frames": frames}
    content = {"segments": [{"device": 0, "total_size": 4, "segment_type": "x\x1b[2J", "blocks": [block]}]}
    _, out, _ = call_main(capsys, "memory", write(tmp_path / "e.pickle", content))
    assert "\x1b" not in out


@pytest.mark.parametrize("frames", [0, None, {}, "text", [7], [{"filename": 1}]])
@pytest.mark.parametrize("action", ["oom", "alloc"])
def test_frames_of_another_type_are_left_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, action: str, frames: Any
) -> None:
    entry = {"action": action, "addr": 1, "size": 512, "time_us": 10, "frames": frames}
    path = write(tmp_path / "x.pickle", {"segments": [], "device_traces": [[entry]]})
    for by in ("line", "stack"):
        status, _, err = call_main(capsys, "memory", path, "--by", by)
        assert (status, err.count("\n")) in ((0, 0), (2, 1))
        assert "Traceback" not in err


def test_nothing_alive_has_no_shares(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    entries = [{"action": "alloc", "addr": 1, "size": 512, "time_us": time} for time in (10, -10)]
    path = write(tmp_path / "x.pickle", {"segments": [], "device_traces": [entries]})
    for at in ("peak", "end"):
        status, _, err = call_main(capsys, "memory", path, "--at", at)
        assert status in (0, 2)
        assert "Traceback" not in err
        assert "internal" not in err
