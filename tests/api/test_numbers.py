"""Property: the Python API gives the numbers that the commands print as JSON, on samples and on shared traces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import torchprof_tui as tt
from tests.helpers.command_line import call_main, read_json_answer
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SHARED_TRACES
from torchprof_samples import SAMPLES
from torchprof_tui.answers.record import as_fields

GROUPINGS = ("name", "shape", "stack", "module", "class", "step")
_SHARED = ("gpt2_train_stack_memory.pt.trace.json.gz", "multi_stream_overlap.pt.trace.json.gz", "ddp_4ranks")
_ON_EACH_PUSH = ("train_gpt_stack_memory", "train_gpt_2ranks")
"""With one kernel, with memory and stacks, without a GPU, of two ranks."""


def list_inputs() -> Iterator[Any]:
    for sample in SAMPLES:
        marks = () if sample.name in _ON_EACH_PUSH else pytest.mark.long
        yield pytest.param(f"sample:{sample.name}", id=sample.name, marks=marks)
    for name in _SHARED:
        missing = pytest.mark.skipif(not (SHARED_TRACES / name).exists(), reason="needs the shared traces")
        yield pytest.param(str(SHARED_TRACES / name), id=Path(name).name, marks=(missing, pytest.mark.long))


@pytest.fixture(params=list_inputs())
def spec(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def assert_same(answer: Any, told: dict[str, Any]) -> None:
    """Check that what Python returns is what a command printed, field by field."""
    assert json.loads(json.dumps(as_fields(answer))) == told


@pytest.mark.parametrize("by", keep_some(GROUPINGS, 2))
def test_tables(capsys: pytest.CaptureFixture[str], spec: str, by: str) -> None:
    trace = tt.open(spec)
    status, out, err = call_main(capsys, "table", spec, "--by", by, "--json")
    if status:
        with pytest.raises(tt.TraceError) as error:
            trace.table(by=by)  # type: ignore[arg-type]
        assert str(error.value) in err
        return
    table = trace.table(by=by)  # type: ignore[arg-type]
    assert_same(table, json.loads(out))
    assert len(table) == len(table.to_records())
    assert table.rows or by == "class"  # without a GPU there is no GPU work to classify
    for index in range(min(len(table), 3)):
        assert by in ("step", "module") or len(table.events_of(index)) == table[index].calls


def test_flops_and_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    trace, spec = tt.open("sample:train_gpt_stack_memory"), "sample:train_gpt_stack_memory"
    number = trace.steps[0].number
    table = trace.table(step=number, flops=True)
    assert_same(table, read_json_answer(capsys, "table", spec, "--step", number, "--flops", "--json"))
    assert any(row.flops for row in table)


def test_memory(capsys: pytest.CaptureFixture[str]) -> None:
    spec = "sample:train_gpt_stack_memory"
    told, memory = read_json_answer(capsys, "table", spec, "--of", "memory", "--json"), tt.open(spec).memory()
    told["rows"].sort(key=lambda row: (row["name"], row["device"]))
    rows = sorted(memory.rows, key=lambda row: (row.name, row.device))
    assert_same(msgspec.structs.replace(memory, rows=rows), told)
    gpu = next(peak for peak in memory.peaks if peak.device == "GPU 0")
    assert gpu.allocated_bytes is not None
    assert gpu.reserved_bytes is not None
    assert 0 < gpu.allocated_bytes <= gpu.reserved_bytes


@pytest.mark.parametrize(("at", "by"), keep_some([("peak", "category"), ("half", "op"), ("end", "line")], 1))
def test_memory_at_a_time(capsys: pytest.CaptureFixture[str], spec: str, at: str, by: Any) -> None:
    trace = tt.open(spec)
    time: int | str = trace.duration_ns // 2 if at == "half" else at
    words = ("memory", spec, "--by", by, "--at", f"{time}ns" if at == "half" else at, "--json")
    told = ask_both(capsys, words, lambda: trace.memory_at(time, by=by))
    if told is None:
        return
    answer, alive = told
    assert_same(alive, answer)
    assert sum(each.bytes for each in alive.groups) == alive.at.alive_bytes


def test_critical_paths(capsys: pytest.CaptureFixture[str], spec: str) -> None:
    trace = tt.open(spec)
    told = ask_both(capsys, ("critical-path", spec, "--json"), trace.critical_path)
    if told is None:
        return
    answer, path = told
    assert (path.window.start, path.duration / 1000, path.replayed / 1000, path.replay_error, path.inferred) == tuple(
        answer[key] for key in ("start_ns", "duration_us", "replay_us", "replay_error", "inferred")
    )
    assert [(each.label, each.time / 1000, each.share, each.count) for each in path.shares] == [
        tuple(each[key] for key in ("kind", "us", "share", "count")) for each in answer["segments"]
    ]
    assert [(trace.events[each.event].name, each.time) for each in path.find_longest(len(answer["events"]))] == [
        (each["name"], each["on_path_ns"]) for each in answer["events"]
    ]


@pytest.mark.parametrize("changes", keep_some([["cpu=0.5"], ["gpu=0.5", "sync=0"]], 3), ids=",".join)
def test_predictions(capsys: pytest.CaptureFixture[str], spec: str, changes: list[str]) -> None:
    words = ("what-if", spec, *(word for change in changes for word in ("--set", change)), "--json")
    told = ask_both(capsys, words, lambda: tt.open(spec).what_if(changes))
    if told is None:
        return
    answer, forecast = told
    assert_same(forecast, answer)


def ask_both(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], ask: Callable[[], Any]) -> Any:
    """Return the answers of a command and of the API, or None where both say for the same reason that there is none."""
    status, out, err = call_main(capsys, *words)
    if not status:
        answer = json.loads(out)
        if answer.get("cannot_tell") is None:
            return answer, ask()
        err = answer["cannot_tell"]
    with pytest.raises(tt.TraceError) as error:
        ask()
    assert str(error.value).removeprefix("--set ").rpartition(": ")[2].strip() in err
    return None


def test_checks(capsys: pytest.CaptureFixture[str], spec: str) -> None:
    told, check = read_json_answer(capsys, "check", spec, "--json"), tt.open(spec).check()
    assert_same(check, told)
    for found in (*check.patterns, *check.notes):
        assert len(found.events) == found.evidence_count
        assert found.events[:50].tolist() == [event.event for event in found.evidence]
        assert check.finding(found.id) is found
    assert check.problems == [found for found in check.patterns if found.significant]


def test_chains(capsys: pytest.CaptureFixture[str], spec: str) -> None:
    trace = tt.open(spec)
    if trace.ranks:
        trace = trace.select_rank(trace.ranks[0])
    events = trace.events
    of_kind = {kind: np.flatnonzero(events.kind.to_numpy() == kind).tolist() for kind in ("kernel", "op", "runtime")}
    for row in [row for rows in of_kind.values() for row in {*rows[:1], *rows[-1:]}]:
        event, chain = events[row], trace.chain(row)
        told = read_json_answer(capsys, "chain", spec, "--event", event.name, "--nth", chain.nth, "--json")
        told.pop("rank", None)  # this trace is that rank alone
        assert_same(chain, told)
        assert [trace.events[hop.event].name for hop in chain.chain if hop.event is not None] == [
            hop.name for hop in chain.chain if hop.event is not None
        ]


def test_what_info_says(capsys: pytest.CaptureFixture[str], spec: str) -> None:
    told, trace = read_json_answer(capsys, "info", spec, "--json"), tt.open(spec)
    assert len(trace.events) == sum(lane["events"] for lane in told["lanes"])
    assert (trace.duration_ns, trace.rank) == (told["duration_ns"], told["rank"])
    assert [{**as_fields(step), "rank": None} for step in trace.steps] == [
        {**step, "rank": None} for step in told["steps"]
    ]
    assert [(remark.kind, remark.count) for remark in trace.remarks()] == [
        (remark["kind"], remark["count"]) for remark in told["doctor"]
    ]


@pytest.mark.parametrize("by", keep_some(["op", "module", "kernel"], 1))
def test_diffs(capsys: pytest.CaptureFixture[str], by: Any) -> None:
    a, b = "sample:geglu_mlp_eager", "sample:geglu_mlp_compile"
    told, diff = read_json_answer(capsys, "diff", a, b, "--by", by, "--json"), tt.open(a).diff(tt.open(b), by=by)
    told["a"]["label"], told["b"]["label"] = diff.a.label, diff.b.label  # as named on the command line
    assert_same(diff, told)


@pytest.mark.long
def test_ranks_of_two_runs_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    run = "sample:train_gpt_2ranks"
    told = read_json_answer(capsys, "diff", run, run, "--rank", "1/0", "--json")
    diff = tt.open(run).diff(tt.open(run), ranks=(1, 0))
    assert diff.step_us.delta
    assert (diff.step_us.delta, diff.a.steps, diff.b.steps) == (
        told["step_us"]["delta"],
        told["a"]["steps"],
        told["b"]["steps"],
    )
