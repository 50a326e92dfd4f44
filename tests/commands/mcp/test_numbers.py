"""Property: tools give the numbers that the commands print as JSON, and the Python API returns, on all samples."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

import torchprof_tui as tt
from tests.helpers.command_line import call_main, read_json_answer
from tests.helpers.long_run import keep_some
from tests.helpers.mcp_sessions import Session
from torchprof_samples import SAMPLES

SOME_SPECS = keep_some([f"sample:{sample.name}" for sample in SAMPLES], 8)
ADDED = ("longest_row", "longest_start_ns", "row", "start_ns")
MANY = 50_000


def unpack_records(packed: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records of a table of columns and rows."""
    return [dict(zip(packed["columns"], row, strict=True)) for row in packed["rows"]]


def digits(value: Any, key: str = "") -> Any:
    """Round fractions to the four digits that answers have; times of events stay."""
    if isinstance(value, dict):
        return {name: digits(each, name) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(digits(each) for each in value)
    return float(f"{value:.4g}") if isinstance(value, float) and not key.endswith("start_us") else value


def repeat(capsys: pytest.CaptureFixture[str], command: str) -> Any:
    """Run the command that an answer names."""
    program, *words = shlex.split(command)
    assert program == "torchprof-tui"
    return digits(read_json_answer(capsys, *words))


def drop_null(record: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if value is not None and key not in names}


@pytest.mark.parametrize("spec", keep_some(SOME_SPECS, 1))
async def test_findings_are_those_of_check(capsys: pytest.CaptureFixture[str], spec: str) -> None:
    said = await Session(["."]).ask("findings", trace=spec, max_tokens=MANY, full_names=True)
    told, api = repeat(capsys, said["command"]), tt.open(spec).check()
    fired = [each for each in told["patterns"] if each["state"] == "fired"]
    assert [each["id"] for each in said["fired"]] == [each["id"] for each in fired]
    for mine, theirs in zip(said["fired"], fired, strict=True):
        assert all(mine[key] == theirs[key] for key in mine if key != "evidence")
        events = unpack_records(mine["evidence"])
        assert [(each["row"], each["start_ns"]) for each in events] == [
            (each["event"], each["start_ns"]) for each in theirs["evidence"][:3]
        ]
    undecided = {each["id"]: each["reason"] for each in told["patterns"] if each["state"] == "cannot_tell"}
    assert {name: each["reason"] for each in said["cannot_tell"] for name in each["patterns"].split()} == undecided
    assert said["verdict"]["first"] == told["verdict"]["first"] == api.verdict.first
    assert [each["us"] for each in unpack_records(said["causes"])] == [each["us"] for each in told["verdict"]["causes"]]


@pytest.mark.parametrize("spec", keep_some(SOME_SPECS, 2))
@pytest.mark.parametrize("of", ["calls", "kernels", "copies"])
async def test_tables_are_those_of_table(capsys: pytest.CaptureFixture[str], spec: str, of: str) -> None:
    said = await Session(["."]).ask("table", trace=spec, of=of, limit=1000, max_tokens=MANY, full_names=True)
    told = repeat(capsys, said["command"])
    rows = unpack_records(said)
    assert "cut" not in said
    assert said["totals"] == told["totals"]
    dropped = () if any("display" in row for row in rows) else ("display",)
    assert all(row["display"] == row["name"] for row in told["rows"] if dropped and "display" in row)
    assert [drop_null(row, *ADDED) for row in rows] == [drop_null(row, *dropped) for row in told["rows"]]
    trace = tt.open(spec)
    for row in rows[:5]:
        if row.get("longest_row") is not None:
            assert trace.events[row["longest_row"]].name == row["name"]
            assert trace.events[row["longest_row"]].start_ns == row["longest_start_ns"]


async def test_memory_is_that_of_table(capsys: pytest.CaptureFixture[str]) -> None:
    spec = "sample:train_gpt_stack_memory"
    said = await Session(["."]).ask("memory", trace=spec, limit=1000, max_tokens=MANY, full_names=True)
    told, api = repeat(capsys, said["command"]), tt.open(spec).memory()
    assert [drop_null(row, *ADDED) for row in unpack_records(said)] == [drop_null(row) for row in told["rows"]]
    assert [(each["device"], each["allocated_bytes"], each["allocated_at_ns"]) for each in said["peaks"]] == [
        (each.device, each.allocated_bytes, each.allocated_at_ns) for each in api.peaks
    ]


async def test_memory_that_was_not_recorded_cannot_be_told() -> None:
    said = await Session(["."]).ask("memory", trace="sample:train_gpt_eager")
    assert "profile_memory" in said["cannot_tell"]


@pytest.mark.parametrize("spec", ["sample:train_gpt_eager", "sample:train_gpt_2ranks", "sample:train_images_cpu"])
async def test_chains_are_those_of_chain(capsys: pytest.CaptureFixture[str], spec: str) -> None:
    session, trace = Session(["."]), tt.open(spec)
    for row in (len(trace.events) // 3, len(trace.events) - 1):
        said = await session.ask("chain", trace=spec, row=row, max_tokens=MANY, full_names=True)
        told, api = repeat(capsys, said["command"]), trace.chain(row)
        hops = unpack_records(said["chain"])
        assert said["row"] == row
        assert said["event"] == trace.events[row].name
        assert [{**drop_null(hop, "row"), "event": hop["row"]} for hop in hops] == told["chain"]
        assert [(hop["name"], hop.get("row")) for hop in hops] == [(hop.name, hop.event) for hop in api.chain]
        assert said["gpu_work"]["total_ns"] == told["gpu_work"]["total_ns"] == api.gpu_work.total_ns
        assert said["footprint"] == told["footprint"]


async def test_diffs_are_those_of_diff(capsys: pytest.CaptureFixture[str]) -> None:
    said = await Session(["."]).ask(
        "diff", a="sample:train_gpt_eager", b="sample:train_gpt_compile", by="class", max_tokens=MANY
    )
    told = repeat(capsys, said["command"])
    assert said["step_us"] == told["step_us"]
    assert [drop_null(each) for each in unpack_records(said["parts"])] == [drop_null(each) for each in told["parts"]]
    added = ("longest_row_a", "longest_row_b")
    ops = sorted((drop_null(each, *added) for each in unpack_records(said["ops"])), key=repr)
    assert ops == sorted((drop_null(each) for each in told["ops"]), key=repr)
    groups = sorted((drop_null(each) for each in unpack_records(said["rows"])), key=repr)
    assert groups == sorted((drop_null(each) for each in told["rows"]), key=repr)


@pytest.mark.parametrize("by", ["op", "stack"])
async def test_a_flame_is_that_of_export(capsys: pytest.CaptureFixture[str], by: str) -> None:
    said = await Session(["."]).ask(
        "flame", trace="sample:train_gpt_stack_memory", by=by, limit=1000, max_tokens=MANY, full_names=True
    )
    status, out, _ = call_main(capsys, *shlex.split(said["command"])[1:])
    outer = f"{said['outer_frames']};" if said["outer_frames"] else ""
    lines = [f"{outer}{row['stack']} {row['self_ns']}" for row in unpack_records(said)]
    assert status == 0
    assert sorted(lines) == sorted(out.splitlines())
    assert sum(row["self_ns"] for row in unpack_records(said)) == said["total_ns"]


@pytest.mark.parametrize(
    "spec", keep_some(["sample:train_gpt_eager", "sample:train_gpt_2ranks", "sample:train_images_cpu"], 1)
)
async def test_an_overview_is_info_check_and_table(capsys: pytest.CaptureFixture[str], spec: str) -> None:
    said = await Session(["."]).ask("overview", trace=spec, max_tokens=MANY, full_names=True)
    info, check, kernels = (repeat(capsys, command) for command in said["commands"])
    for name in ("events", "duration_ns", "devices", "gpu_busy_ns"):
        assert said[name] == info[name]
    assert said["verdict"]["first"] == check["verdict"]["first"]
    if kernels["rows"]:
        mine = [drop_null(row, *ADDED) for row in unpack_records(said["kernels"])]
        assert mine == [drop_null(row) for row in kernels["rows"]]
    else:
        assert said["kernels"] == {"cannot_tell": kernels["cannot_tell"]}


async def test_arrivals_are_those_of_table(capsys: pytest.CaptureFixture[str]) -> None:
    said = await Session(["."]).ask(
        "table", trace="sample:train_gpt_2ranks", of="arrivals", max_tokens=MANY, full_names=True
    )
    told = repeat(capsys, said["command"])
    assert [drop_null(row) for row in unpack_records(said)] == [drop_null(row) for row in told["rows"]]
    assert said["totals"] == told["totals"]


@pytest.mark.parametrize("spec", keep_some(SOME_SPECS, 3))
async def test_a_prediction_is_that_of_what_if(capsys: pytest.CaptureFixture[str], spec: str) -> None:
    changes = ["cpu=0.5", "class=gemm*0.5"] if "gpt" in spec else ["cpu=0.5"]
    said = await Session(["."]).ask("what_if", trace=spec, changes=changes, max_tokens=MANY, full_names=True)
    told, api = repeat(capsys, said["command"]), tt.open(spec).what_if(changes)
    assert {key: value for key, value in said.items() if key not in ("command", "path")} == {
        key: value for key, value in told.items() if key not in ("schema", "path")
    }
    assert unpack_records(said["path"]) == told["path"]
    assert (said["predicted_us"], said["replay_error"]) == digits((api.predicted_us, api.replay_error))


@pytest.mark.parametrize("spec", keep_some(SOME_SPECS, 3))
async def test_a_critical_path_is_that_of_critical_path(capsys: pytest.CaptureFixture[str], spec: str) -> None:
    said = await Session(["."]).ask("critical_path", trace=spec, max_tokens=MANY, full_names=True)
    told, trace = repeat(capsys, said["command"]), tt.open(spec)
    path = trace.critical_path()
    lists = ("segments", "ranks", "rank_changes", "events", "off_path")
    assert {key: value for key, value in said.items() if key not in ("command", *lists)} == {
        key: value for key, value in told.items() if key not in ("schema", *lists)
    }
    for name in lists:
        rows = [drop_null(row, "row") for row in unpack_records(said[name])]
        assert rows == [drop_null(row) for row in told[name]]
    for row in unpack_records(said["events"]):
        event = trace.events[row["row"]]
        assert (event.name, event.start_ns) == (row["name"], row["start_ns"])
    assert (said["duration_us"], said["replay_us"]) == digits((path.duration / 1000, path.replayed / 1000))
    assert [row["us"] for row in unpack_records(said["segments"])] == digits([each.time / 1000 for each in path.shares])
    assert sum(each.time for each in path.shares) == path.duration


async def test_events_of_one_rank_have_the_rows_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    spec = "sample:train_gpt_2ranks"
    said = await Session(["."]).ask("critical_path", trace=spec, rank=1, step=3)
    told, events = repeat(capsys, said["command"]), tt.open(spec).events
    assert told["events"]
    for row in unpack_records(said["events"]):
        assert (events[row["row"]].name, row["rank"]) == (row["name"], 1)


@pytest.mark.parametrize(("at", "by"), keep_some([("peak", "category"), ("5ms", "op"), ("end", "phase")], 1))
async def test_alive_memory_is_that_of_memory(capsys: pytest.CaptureFixture[str], at: str, by: Any) -> None:
    spec = "sample:train_gpt_stack_memory"
    said = await Session(["."]).ask("memory_at", trace=spec, at=at, by=by, max_tokens=MANY, full_names=True)
    told = repeat(capsys, said["command"])
    api = tt.open(spec).memory_at(5_000_000 if at == "5ms" else at, by=by)
    for row in told["alive"]:
        row["row"] = row.pop("event")
    for name in ("groups", "alive", "before_window"):
        assert [drop_null(row) for row in unpack_records(said[name])] == [drop_null(row) for row in told[name]]
    for name in ("device", "peak", "at", "categories", "unaccounted_bytes", "before_window_bytes"):
        assert said[name] == told[name]
    assert (said["at"]["time_ns"], said["at"]["alive_bytes"]) == (api.at.time_ns, api.at.alive_bytes)
    assert [(row["label"], row["bytes"]) for row in unpack_records(said["groups"])] == [
        (each.label, each.bytes) for each in api.groups
    ]


async def test_alive_memory_that_was_not_recorded_cannot_be_told() -> None:
    said = await Session(["."]).ask("memory_at", trace="sample:train_gpt_eager")
    assert "profile_memory" in said["cannot_tell"]


@pytest.mark.long
async def test_a_fleet_is_that_of_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    said = await Session(["."]).ask("fleet", trace="sample:train_gpt_2ranks", max_tokens=MANY)
    told = repeat(capsys, said["command"])
    lists = ("faults", "what_if", "slowest_ranks", "slowest_hosts", "slowest_steps")
    assert said["ranks"] == 2
    reading = ("sketched", "kept")  # the first answer read the traces, the second its sketches
    assert {key: value for key, value in said.items() if key not in ("command", *lists, *reading)} == {
        key: value for key, value in told.items() if key not in ("schema", *lists, *reading)
    }
    assert (told["sketched"], told["kept"]) == (0, 2)
    for name in lists:
        assert [drop_null(row, "file") for row in unpack_records(said[name])] == [
            drop_null(row, "file") for row in told[name]
        ]
