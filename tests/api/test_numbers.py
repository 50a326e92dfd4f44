"""Property: the Python API gives the numbers that the commands print as JSON, on samples and on shared traces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torchprof_tui as tt
from tests.helpers.command_line import call_main, read_json_answer
from tests.helpers.paths import SHARED_TRACES
from torchprof_samples import SAMPLES

GROUPINGS = ("name", "shape", "stack", "module", "class", "step")
_SHARED = ("gpt2_train_stack_memory.pt.trace.json.gz", "multi_stream_overlap.pt.trace.json.gz", "ddp_4ranks")


def list_inputs() -> Iterator[Any]:
    for sample in SAMPLES:
        yield pytest.param(f"sample:{sample.name}", id=sample.name)
    for name in _SHARED:
        missing = pytest.mark.skipif(not (SHARED_TRACES / name).exists(), reason="needs the shared traces")
        yield pytest.param(str(SHARED_TRACES / name), id=Path(name).name, marks=missing)


@pytest.fixture(params=list_inputs())
def spec(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def list_rows(answer: Any) -> list[dict[str, Any]]:
    """Return the rows of `table --json`: the list itself, or those of an object."""
    return list(answer if isinstance(answer, list) else answer["rows"])


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("by", GROUPINGS)
def test_tables(capsys: pytest.CaptureFixture[str], spec: str, by: str) -> None:
    trace = tt.open(spec)
    status, out, err = call_main(capsys, "table", spec, "--by", by, "--json")
    if status:
        with pytest.raises(tt.TraceError) as error:
            trace.table(by=by)  # type: ignore[arg-type]
        assert str(error.value) in err
        return
    rows, table = list_rows(json.loads(out)), trace.table(by=by)  # type: ignore[arg-type]
    assert len(rows) == len(table)
    assert rows or by == "class"  # without a GPU there is no GPU work to classify
    for told, row in zip(rows, table.to_records(), strict=True):
        said = {key: plain(value) for key, value in row.items()}
        # A call without frames has an empty list here, and an empty text there.
        assert {key: said[key] or None for key in told} == {key: value or None for key, value in told.items()}
        assert all(value is None for key, value in said.items() if key not in told)


def test_flops_and_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    trace, spec = tt.open("sample:train_gpt_stack_memory"), "sample:train_gpt_stack_memory"
    number = trace.steps[0].number
    rows = list_rows(read_json_answer(capsys, "table", spec, "--step", number, "--flops", "--json"))
    table = trace.table(step=number, flops=True)
    assert [(row.name, row.calls, row.flops, row.tflops) for row in table] == [
        (row["name"], row["calls"], row["flops"], row["tflops"]) for row in rows
    ]
    assert table.step == number
    assert any(row.flops for row in table)


def test_memory(capsys: pytest.CaptureFixture[str]) -> None:
    spec = "sample:train_gpt_stack_memory"
    rows = list_rows(read_json_answer(capsys, "table", spec, "--of", "memory", "--json"))
    memory = tt.open(spec).memory()
    keys = ["name", "device", "allocations", "frees"]
    keys += [f"{name}_bytes" for name in ("allocated", "held", "freed", "net", "largest")]
    told = sorted([tuple(str(row[key]) for key in keys) for row in rows])
    assert sorted(tuple(str(getattr(row, key)) for key in keys) for row in memory.rows) == told
    gpu = next(peak for peak in memory.peaks if peak.device == "GPU 0")
    assert gpu.allocated_bytes is not None
    assert gpu.reserved_bytes is not None
    assert 0 < gpu.allocated_bytes <= gpu.reserved_bytes


@pytest.mark.parametrize(("at", "by"), [("peak", "category"), ("half", "op"), ("end", "line")])
def test_memory_at_a_time(capsys: pytest.CaptureFixture[str], spec: str, at: str, by: Any) -> None:
    trace = tt.open(spec)
    time: int | str = trace.duration_ns // 2 if at == "half" else at
    words = ("memory", spec, "--by", by, "--at", f"{time}ns" if at == "half" else at, "--json")
    told = ask_both(capsys, words, lambda: trace.memory_at(time, by=by))
    if told is None:
        return
    answer, alive = told
    assert (alive.device, alive.time_ns, alive.allocated_bytes, alive.reserved_bytes) == (
        answer["device"],
        *(answer["at"][key] for key in ("time_ns", "alive_bytes", "reserved_bytes")),
    )
    assert [(each.label, each.bytes, each.allocations) for each in alive.groups] == [
        tuple(each[key] for key in ("label", "bytes", "allocations")) for each in answer["groups"]
    ]
    assert sum(each.bytes for each in alive.groups) == alive.allocated_bytes


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


@pytest.mark.parametrize("changes", [["cpu=0.5"], ["gpu=0.5", "sync=0"]], ids=",".join)
def test_predictions(capsys: pytest.CaptureFixture[str], spec: str, changes: list[str]) -> None:
    words = ("what-if", spec, *(word for change in changes for word in ("--set", change)), "--json")
    told = ask_both(capsys, words, lambda: tt.open(spec).what_if(changes))
    if told is None:
        return
    answer, forecast = told
    times = (forecast.recorded, forecast.replayed, forecast.before, forecast.after, forecast.alone)
    assert tuple(time / 1000 for time in times) == tuple(
        answer[f"{name}_us"] for name in ("duration", "replay", "before", "after", "alone")
    )
    assert (forecast.step, forecast.replay_error, forecast.is_trusted) == tuple(
        answer[key] for key in ("step", "replay_error", "trusted")
    )
    assert [(each.label, each.time / 1000, each.share) for each in forecast.path] == [
        tuple(each[key] for key in ("kind", "us", "share")) for each in answer["path"]
    ]


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
    scope = told["scope"]
    assert (check.start_ns, check.duration_ns) == (scope["start_ns"], scope["duration_ns"])
    verdict = check.verdict
    assert (verdict.regime, verdict.gpu_busy, verdict.first) == tuple(
        told["verdict"][key] for key in ("regime", "gpu_busy", "first")
    )
    assert [(part.cause, part.us) for part in verdict.time] == [
        (part["cause"], part["us"]) for part in told["verdict"]["causes"]
    ]
    assert len(told["patterns"]) == len(check.findings)
    for said, found in zip(told["patterns"], check.findings, strict=True):
        assert (found.id, found.state, found.severity) == (said["id"], said["state"], said["severity"])
        assert (found.seen, found.at_stake_us, found.line) == (said["seen"], said["at_stake_us"], said["line"])
        assert round(found.share, 6) == said["share"]
        assert found.own_us == said.get("own_us")
        assert len(found.events) == said["evidence_count"]
        assert found.events[:50].tolist() == [event["event"] for event in said["evidence"]]
    assert [(gap.start_ns, gap.duration_ns, gap.cause, gap.line) for gap in check.gaps] == [
        (gap["start_ns"], gap["duration_ns"], gap["cause"], gap["line"]) for gap in told["gaps"]
    ]
    assert [each.first for each in check.verdicts[1:]] == [
        each["verdict"]["first"] for each in told.get("ranks", [])[1:]
    ]


def test_chains(capsys: pytest.CaptureFixture[str], spec: str) -> None:
    trace = tt.open(spec)
    if trace.ranks:
        trace = trace.select_rank(trace.ranks[0])
    events = trace.events
    of_kind = {kind: np.flatnonzero(events.kind.to_numpy() == kind).tolist() for kind in ("kernel", "op", "runtime")}
    for row in [row for rows in of_kind.values() for row in {*rows[:1], *rows[-1:]}]:
        event, chain = events[row], trace.chain(row)
        nth = events.find(event.name).tolist().index(row)
        told = read_json_answer(capsys, "chain", spec, "--event", event.name, "--nth", nth, "--json")
        assert [(hop.role, hop.name, hop.start_ns, hop.duration_ns, hop.self_ns) for hop in chain.hops] == [
            tuple(hop[key] for key in ("role", "name", "start_ns", "duration_ns", "self_ns")) for hop in told["chain"]
        ]
        for key in ("joined_by", "launch_latency_ns", "queue_delay_ns", "held_up_ns", "held_up_by", "line", "note"):
            assert getattr(chain, key) == told[key]
        assert (chain.gpu_work_count, chain.gpu_work_ns) == (told["gpu_work"]["count"], told["gpu_work"]["total_ns"])
        assert [(piece.name, piece.duration_ns, piece.share) for piece in chain.gpu_work] == [
            (piece["name"], piece["duration_ns"], piece["share"]) for piece in told["gpu_work"]["heaviest"]
        ]
        if chain.footprint is not None:
            assert list(chain.footprint.grid or ()) == (told["footprint"]["grid"] or [])
            assert chain.footprint.theoretical_occupancy == told["footprint"]["theoretical_occupancy"]


def test_what_info_says(capsys: pytest.CaptureFixture[str], spec: str) -> None:
    told, trace = read_json_answer(capsys, "info", spec, "--json"), tt.open(spec)
    assert len(trace.events) == sum(lane["events"] for lane in told["lanes"])
    assert (trace.duration_ns, trace.rank) == (told["duration_ns"], told["rank"])
    assert [(step.name, step.start_ns, step.duration_ns) for step in trace.steps] == [
        (step["name"], step["start_ns"], step["duration_ns"]) for step in told["steps"]
    ]
    assert [(remark.kind, remark.count) for remark in trace.remarks()] == [
        (remark["kind"], remark["count"]) for remark in told["doctor"]
    ]


@pytest.mark.parametrize("by", ["op", "module", "kernel"])
def test_diffs(capsys: pytest.CaptureFixture[str], by: Any) -> None:
    a, b = "sample:geglu_mlp_eager", "sample:geglu_mlp_compile"
    told, diff = read_json_answer(capsys, "diff", a, b, "--by", by, "--json"), tt.open(a).diff(tt.open(b), by=by)
    step = told["step_us"]
    assert (diff.step_us_a, diff.step_us_b, diff.delta_us, diff.noise_us, diff.within_noise) == tuple(
        step[key] for key in ("a", "b", "delta", "noise", "within_noise")
    )
    assert (diff.headline, diff.is_same_recording) == (told["verdict"]["first"], told["same_recording"])
    assert [(part.id, part.delta_us, part.noise_us) for part in diff.parts] == [
        (part["id"], part["delta_us"], part["noise_us"]) for part in told["parts"]
    ]
    keys = ("status", "name_a", "name_b", "calls_a", "calls_b", "cpu_us_a", "gpu_us_b", "delta_us")
    assert [tuple(getattr(row, key) for key in keys) for row in diff.rows] == [
        tuple(row[key] for key in keys) for row in told["ops"]
    ]
    assert diff.total.delta_us == told["ops_total"]["delta_us"]
    assert [(each.what, each.consequence) for each in diff.differences] == [
        (each["what"], each["consequence"]) for each in told["comparable"]
    ]


def test_ranks_of_two_runs_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    if not (SHARED_TRACES / "ddp_4ranks").exists():
        pytest.skip("needs the shared traces")
    a, b = str(SHARED_TRACES / "ddp_4ranks"), str(SHARED_TRACES / "fsdp_4ranks")
    told = read_json_answer(capsys, "diff", a, b, "--rank", "1/2", "--json")
    diff = tt.open(a).diff(tt.open(b), ranks=(1, 2))
    assert (diff.delta_us, diff.steps_a, diff.steps_b) == (
        told["step_us"]["delta"],
        tuple(told["a"]["steps"]),
        tuple(told["b"]["steps"]),
    )
