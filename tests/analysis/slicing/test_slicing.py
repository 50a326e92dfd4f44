"""Test slices: they keep the file's entries that overlap the range, with complete links, and give the same results."""

from __future__ import annotations

import gzip
import json
import random
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.paths import find_shared_traces
from torchprof_tui.analysis.completeness.data_loss import SLICE_KEY as MARK
from torchprof_tui.analysis.completeness.data_loss import read_slice_metadata
from torchprof_tui.analysis.dispatch.chain import ChainFinder
from torchprof_tui.analysis.slicing.slice_writer import SliceError, SliceResult, write_slice
from torchprof_tui.analysis.time.gpu_time import work_mask
from torchprof_tui.analysis.time.range_statistics import compute_range_statistics
from torchprof_tui.cli import main
from torchprof_tui.trace.core.atomic_file import OutputError
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.explorer.slice_export import format_slice_result

ALL = [path for path in find_shared_traces() if path.stat().st_size < 400_000]
PICKED = random.Random(11).sample(ALL, min(14, len(ALL)))
Entry = dict[str, Any]
_PAIRED_PHASES = ("B", "E", "b", "e", "n", "S", "F", "T", "p")
"""Phases whose entries are joined to events; torch.profiler writes none of them."""


def document(path: Path) -> Any:
    """Parse the file with the standard library, keeping every digit."""
    packed = path.read_bytes()
    return json.loads(gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed, parse_float=Decimal)


def entries_of(path: Path) -> list[Entry]:
    found = document(path)
    return found if isinstance(found, list) else found["traceEvents"]


def ns(value: Any) -> int:
    return int((Decimal(str(value)) * 1000).to_integral_value())


def frozen(entry: Entry) -> str:
    return json.dumps(entry, sort_keys=True, default=str)


def find_positions(kept: list[Entry], every: list[Entry]) -> list[int]:
    """Find the positions of the kept entries in the file; they must be unchanged and in order."""
    positions: list[int] = []
    position = 0
    for entry in kept:
        wanted = frozen(entry)
        while frozen(every[position]) != wanted:
            position += 1
        positions.append(position)
        position += 1
    return positions


def correlation(entry: Entry) -> Any:
    args = entry.get("args")
    found = args.get("correlation") if isinstance(args, dict) else None
    return found if found not in (None, 0, -1) else None


def sequence(entry: Entry) -> Any:
    args = entry.get("args")
    return args.get("Sequence number") if isinstance(args, dict) else None


@pytest.mark.skipif(not PICKED, reason="no traces here")
@pytest.mark.parametrize("path", keep_some(PICKED, 3), ids=lambda path: path.name)
def test_against_the_files_own_entries(path: Path, tmp_path: Path) -> None:
    try:
        every = entries_of(path)
    except ValueError:
        pytest.skip("not valid JSON")
    if any(entry.get("ph") in _PAIRED_PHASES for entry in every):
        pytest.skip("begin and end entries: without those outside the range, a slice may pair them differently")
    trace = load_trace(str(path), cache=False)
    if not len(trace):
        pytest.skip("no events")
    low, high = trace.span
    t0 = low + (high - low) * 2 // 5
    t1 = t0 + max((high - low) // 12, 1)
    origin = ns(every[int(trace.ordinal[len(trace) // 2])]["ts"]) - int(trace.start[len(trace) // 2])
    out = tmp_path / "slice.json.gz"
    try:
        written = write_slice(trace, t0, t1, out)
    except SliceError:
        assert not [entry for entry in every if touches(entry, origin, t0, t1)]
        return
    kept = entries_of(out)
    places = set(find_positions(kept, every))
    assert (len(kept), written.total_entries) == (written.entries, len(every))

    inside = {k for k, entry in enumerate(every) if touches(entry, origin, t0, t1)}
    assert inside <= places
    assert {k for k, entry in enumerate(every) if entry.get("ph") == "M"} <= places
    assert_links_are_whole(every, places, inside)
    assert_every_entry_has_a_reason(every, places, inside)
    assert_results_are_equal(trace, load_trace(str(out), cache=False), t0, t1)


def touches(entry: Entry, origin: int, t0: int, t1: int) -> bool:
    if entry.get("ph") not in ("X", "i", "I", "R", "C") or "ts" not in entry:
        return False
    start = ns(entry["ts"]) - origin
    return start < t1 and start + max(ns(entry.get("dur", 0)), 1) > t0


def assert_links_are_whole(every: list[Entry], places: set[int], inside: set[int]) -> None:
    calls: dict[Any, list[int]] = defaultdict(list)
    works: dict[Any, list[int]] = defaultdict(list)
    for k, entry in enumerate(every):
        if entry.get("ph") == "X" and correlation(entry) is not None:
            category = str(entry.get("cat", "")).lower()
            if category.endswith(("_runtime", "_driver")) or category == "runtime":
                calls[correlation(entry)].append(k)
            elif category in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"):
                works[correlation(entry)].append(k)
    for number, work in works.items():
        if calls[number] and (inside & {*work, *calls[number]}):
            assert set(work) <= places
            assert set(calls[number]) & places


def assert_every_entry_has_a_reason(every: list[Entry], places: set[int], inside: set[int]) -> None:
    linked = {correlation(every[k]) for k in places} - {None}
    numbers = {sequence(every[k]) for k in places} - {None}
    joined: set[Any] = set()  # (pid, tid, ns) of flows with the id of a kept one
    ids = {(every[k].get("cat"), str(every[k].get("id"))) for k in places if every[k].get("ph") in ("s", "t", "f")}
    for entry in every:
        if entry.get("ph") in ("s", "t", "f") and (entry.get("cat"), str(entry.get("id"))) in ids:
            joined.add((entry["pid"], entry["tid"], ns(entry["ts"])))
    held: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for k in places:
        if every[k].get("ph") == "X":
            start = ns(every[k]["ts"])
            held[every[k]["pid"], every[k]["tid"]].append((start, start + ns(every[k].get("dur", 0))))
    for k in places - inside:
        entry = every[k]
        if entry.get("ph") != "X":
            continue
        start = ns(entry["ts"])
        end = start + ns(entry.get("dur", 0))
        around = any(
            start - 1000 <= other[0] and other[1] <= end + 1000 and other != (start, end)
            for other in held[entry["pid"], entry["tid"]]
        )
        assert (
            correlation(entry) in linked
            or sequence(entry) in numbers
            or around
            or ((entry["pid"], entry["tid"], start) in joined)
        )


def assert_results_are_equal(trace: Trace, sliced: Trace, t0: int, t1: int) -> None:
    shift = int(trace.start[_first_common(trace, sliced)[0]]) - int(sliced.start[_first_common(trace, sliced)[1]])
    ours, theirs = (
        compute_range_statistics(sliced, t0 - shift, t1 - shift, max_names=50),
        compute_range_statistics(trace, t0, t1, max_names=50),
    )
    assert ours.gpu_busy == theirs.gpu_busy or not any(theirs.gpu_busy.values())
    for mine, whole in ((ours.gpu_names, theirs.gpu_names), (ours.cpu_names, theirs.cpu_names)):
        assert sorted((each.name, each.count, each.total, each.self_time) for each in mine) == sorted(
            (each.name, each.count, each.total, each.self_time) for each in whole
        )
    assert_chains_are_the_same(trace, sliced, t0, t1, shift)


def _first_common(trace: Trace, sliced: Trace) -> tuple[int, int]:
    """Find an event of the slice in the whole trace, by the text of its entry: (in the trace, in the slice)."""
    event = len(sliced) // 2
    mine = sliced.event(event)
    wanted = frozen(sliced.read_entry(int(sliced.ordinal[event])))
    for other in range(len(trace)):
        alike = trace.duration[other] == mine.duration and trace.event(other).name == mine.name
        if alike and frozen(trace.read_entry(int(trace.ordinal[other]))) == wanted:
            return other, event
    raise AssertionError("the slice holds an event that the trace has not")


def assert_chains_are_the_same(trace: Trace, sliced: Trace, t0: int, t1: int, shift: int) -> None:
    """Compare, for all GPU work in the range, the hops to it, its launch, and its forward op."""

    def chains(of: Trace, begin: int, end: int, shift: int) -> list[Any]:
        dispatch = ChainFinder(of)
        told = []
        for event in [k for k in range(len(of)) if work_mask(of.kind[k : k + 1])[0]]:
            if begin <= of.start[event] < end:
                chain = dispatch.find_chain(event)
                hops = [(hop.role, hop.name, hop.start + shift, hop.duration) for hop in chain.hops]
                forward = of.event(chain.forward_op).name if chain.forward_op >= 0 else None
                told.append((hops, forward, chain.launch_latency, chain.queue_delay))
        return sorted(told, key=repr)[:60]

    assert chains(sliced, t0 - shift, t1 - shift, shift) == chains(trace, t0, t1, 0)


# --- literal --------------------------------------------------------------------------------------------------------


def x(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: Any = 1, pid: Any = 1, **args: Any) -> Entry:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def flow(phase: str, cat: str, number: int, ts: float, tid: int = 1) -> Entry:
    return {"ph": phase, "cat": cat, "name": cat, "id": number, "pid": 1, "tid": tid, "ts": ts}


def written(folder: Path, entries: list[Any], **header: Any) -> Path:
    path = folder / "made.json"
    path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": entries}))
    return path


def sliced(path: Path, t0: float, t1: float, out: str = "out.json") -> Any:
    target = path.parent / out
    write_slice(load_trace(str(path), cache=False), int(t0 * 1000), int(t1 * 1000), target)
    return document(target)


def names(found: Any) -> list[str]:
    return [entry["name"] for entry in found["traceEvents"] if entry["ph"] in "XBE"]


def training(folder: Path) -> Path:
    """Forward at 10, backward at 60; their kernels run at 100 and 150."""
    return written(
        folder,
        [
            {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}},
            x("step", 0, 90, "user_annotation"),
            x("mm", 10, 20),
            flow("s", "fwdbwd", 5, 10),
            x("launch", 12, 5, "cuda_runtime", correlation=7),
            flow("s", "ac2g", 7, 12),
            x("other", 40, 5),
            x("MmBackward", 60, 20, tid=2),
            flow("f", "fwdbwd", 5, 60, tid=2),
            x("launch", 62, 5, "cuda_runtime", tid=2, correlation=8),
            x("gemm", 100, 10, "kernel", 7, 0, device=0, stream=7, correlation=7),
            {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 7, "pid": 0, "tid": 7, "ts": 100, "bp": "e"},
            x("gemm_bwd", 150, 10, "kernel", 7, 0, device=0, stream=7, correlation=8),
            {"ph": "C", "name": "count", "pid": 1, "tid": 1, "ts": 101, "args": {"n": 3}},
            {"ph": "C", "name": "count", "pid": 1, "tid": 1, "ts": 120, "args": {"n": 4}},
        ],
        baseTimeNanoseconds=1790857026000000000,
        distributedInfo={"rank": 3, "world_size": 8},
    )


def test_a_kernel_brings_its_launch_the_ops_around_it_and_their_other_pass(tmp_path: Path) -> None:
    found = sliced(training(tmp_path), 99, 105)
    assert names(found) == ["step", "mm", "launch", "MmBackward", "gemm"]
    assert [(e["ph"], e["cat"]) for e in found["traceEvents"] if e["ph"] in "sf"] == [
        ("s", "fwdbwd"), ("s", "ac2g"), ("f", "fwdbwd"), ("f", "ac2g"),
    ]  # fmt: skip
    assert [e["args"]["n"] for e in found["traceEvents"] if e["ph"] == "C"] == [3]
    assert found["baseTimeNanoseconds"] == 1790857026000000000
    assert found["distributedInfo"] == {"rank": 3, "world_size": 8}
    assert found[MARK]["range_ns"] == [99_000, 105_000]


def test_a_backward_node_brings_its_forward_op(tmp_path: Path) -> None:
    assert names(sliced(training(tmp_path), 151, 152)) == ["step", "mm", "MmBackward", "launch", "gemm_bwd"]


def test_an_op_brings_no_kernel_of_its_neighbours(tmp_path: Path) -> None:
    assert names(sliced(training(tmp_path), 41, 42)) == ["step", "other"]


def test_the_end_of_the_range_is_not_in_it(tmp_path: Path) -> None:
    path = written(tmp_path, [x("a", 0, 10), x("b", 10, 10), {**x("mark", 20, 0), "ph": "i"}, x("c", 20, 0)])
    assert names(sliced(path, 0, 10)) == ["a"]
    assert names(sliced(path, 10, 20)) == ["b"]
    assert [entry["name"] for entry in sliced(path, 20, 21)["traceEvents"]] == ["mark", "c"]


def test_pairs_stay_pairs_and_lost_ends_are_left_out(tmp_path: Path) -> None:
    def be(phase: str, name: str, ts: float, **more: Any) -> Entry:
        return {"ph": phase, "name": name, "pid": 1, "tid": 1, "ts": ts, **more}

    entries = [
        be("E", "lost", 1), be("B", "outer", 2), be("B", "inner", 3), be("E", "inner", 5), be("E", "outer", 50),
        be("b", "job", 4, cat="async", id="0x1"), be("e", "job", 90, cat="async", id="0x1"), be("E", "late", 91),
    ]  # fmt: skip
    found = sliced(written(tmp_path, entries), 30, 40)
    assert [(e["ph"], e["name"]) for e in found["traceEvents"]] == [
        ("B", "outer"), ("E", "outer"), ("b", "job"), ("e", "job"),
    ]  # fmt: skip


def test_a_flow_id_used_twice_drags_nothing_in(tmp_path: Path) -> None:
    entries: list[Entry] = []
    for k in range(4):
        entries += [x(f"a{k}", 10 * k, 5), flow("s", "mine", 0, 10 * k), x(f"b{k}", 10 * k + 5, 4)]
        entries.append(flow("f", "mine", 0, 10 * k + 5))
    found = sliced(written(tmp_path, entries), 11, 12)
    assert [entry["name"] for entry in found["traceEvents"]] == ["a1", "mine"]


def test_digits_and_layout_stay_as_they_were_written(tmp_path: Path) -> None:
    odd = '{"ph": "X",\n\t"name": "a\\u0041",  "pid": 1, "tid": 1, "ts": 1621401187223197.1250, '
    odd += '"dur": 1e1, "args": {"n": 36893488147419103232}}'
    path = tmp_path / "made.json"
    path.write_text(f"[{odd},\n{odd.replace('7.1250', '9.5')} , null, 3]")
    out = tmp_path / "out.json"
    write_slice(load_trace(str(path), cache=False), 0, 1, out)
    assert odd in out.read_text()
    assert len(json.loads(out.read_text())["traceEvents"]) == 1


def test_what_was_repaired_is_written_repaired(tmp_path: Path) -> None:
    path = tmp_path / "made.json"
    path.write_bytes(
        b'{"traceEvents": [' + json.dumps(x("a", 0, 9)).encode() + b","
        b'{"ph": "X", "cat": "cpu_op", "name": "C:\\Users\\x", "pid": 1, "tid": 1, "ts": 2, "dur": NaN}]}'
    )
    found = sliced(path, 0, 5)
    assert names(found) == ["a", "C:\\Users\\x"]
    assert found["traceEvents"][1]["dur"] is None


def test_the_trace_itself_is_never_overwritten(tmp_path: Path) -> None:
    path = training(tmp_path)
    before = path.read_bytes()
    link = tmp_path / "link.json"
    link.symlink_to(path)
    for out in (path, link):
        with pytest.raises(OutputError, match="the trace itself"):
            write_slice(load_trace(str(path), cache=False), 0, 10**6, out)
    assert path.read_bytes() == before


def test_where_it_cannot_be_written_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = training(tmp_path)
    assert main(["slice", str(path), "--range", "0:1ms", "-o", str(path), "--no-cache"]) == 2
    assert (
        capsys.readouterr().err
        == f"torchprof-tui: -o: {path}: this is the trace itself, and was not overwritten; choose another name\n"
    )
    beneath = path / "x.json"  # a file is no folder
    with pytest.raises(OutputError) as caught:
        write_slice(load_trace(str(path), cache=False), 0, 10**6, beneath)
    assert str(caught.value) == f"{path}: no such folder"
    long = tmp_path / f"{'x' * 300}.json"
    with pytest.raises(OutputError) as caught:
        write_slice(load_trace(str(path), cache=False), 0, 10**6, long)
    assert str(caught.value).endswith("…: the name is longer than 255 bytes; choose a shorter one")


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = training(tmp_path)
    out = tmp_path / name
    out.write_text("what was there")

    def fail(*_: Any) -> Any:
        yield b"{}"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torchprof_tui.analysis.slicing.document_writer._extract_kept_entries", fail)
    with pytest.raises(OSError, match="No space"):
        write_slice(load_trace(str(path), cache=False), 0, 10**6, out)
    assert out.read_text() == "what was there"
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(["made.json", name])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = training(tmp_path), tmp_path / "small.json.gz"
    assert main(["slice", str(path), "--range", "99us:105us", "-o", str(out), "--json", "--no-cache"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["entries"], told["entries_of"], told["events"], told["starts_ns"]) == (11, 15, 5, 0)
    assert told["bytes"] == out.stat().st_size
    assert len(gzip.decompress(out.read_bytes())) > told["bytes"]
    assert main(["slice", str(path), "--range", "99:105", "-o", str(out), "--no-cache"]) == 0
    assert "11 of 15 entries" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--range", "5ms:6ms", "-o", "x.json"], "no event in this range"),
        (["--range", "6:5", "-o", "x.json"], "the end is before the start"),
        (["--range", "5", "-o", "x.json"], "expected T0:T1"),
        (["--range", "0:5", "-o", "x.txt"], "neither .json nor .json.gz"),
        (["--range", "0:5", "-o", "no/such/folder/x.json"], ": -o: no/such/folder: no such folder\n"),
    ],
)
def test_wrong_calls_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = training(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["slice", str(path), *words, "--no-cache"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert line in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("packed", [pytest.param(False, marks=pytest.mark.long), True])
def test_large_keys_are_kept_whole(tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = {str(k): {"category": "python", "name": f"frame {k} \u2192", "parent": k // 2} for k in range(3000)}
    made = {
        "schemaVersion": 1,
        "stackFrames": frames,
        "displayTimeUnit": "ms",
        "traceEvents": [
            {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": k, "dur": 1} for k in range(9)
        ],
        "samples": [k / 7 for k in range(9000)],
        "beyond": "x" * 900_000,
    }
    text = json.dumps(made, indent=1).encode()
    assert len(json.dumps(frames)) > 64 * 1024
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    monkeypatch.setattr("torchprof_tui.trace.text.large_values.MAX_VALUE_BYTES", 800_000)
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))
    for trace in (load_trace(str(path)), load_trace(str(path))):  # decoded, and from the cache
        out = tmp_path / "slice.json"
        written = write_slice(trace, 2000, 5000, out)
        kept = json.loads(out.read_bytes())
        assert kept.pop(MARK)["entries_of"] == 9
        assert len(kept.pop("traceEvents")) == written.entries == 3
        assert kept == {key: value for key, value in made.items() if key not in ("traceEvents", "beyond")}
        assert written.skipped_keys == ("beyond",)
        assert format_slice_result(written).endswith("; left out: beyond")
        assert load_trace(str(out), cache=False).counts.events == 3
        out.unlink()


@pytest.mark.parametrize(
    ("starts", "says"),
    [
        (-334_053, "its start is 334.1 µs before time 0 of the whole trace"),
        (0, "its start is at 0 ns of the whole trace"),
        (14_400_000, "its start is at 14.400000 ms of the whole trace"),
    ],
)
def test_where_a_slice_begins(starts: int, says: str, tmp_path: Path) -> None:
    told = format_slice_result(SliceResult(tmp_path / "part.json", 5, 10, 3, 1000, starts))
    assert told.endswith(says)


def test_a_slice_of_a_slice_knows_its_range(tmp_path: Path) -> None:
    """A slice of a slice: ranges on three clocks with different origins refer to the same time of the file."""
    path = written(tmp_path, [x(f"e{k}", 1000 + 100 * k, 90) for k in range(9)])
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    write_slice(load_trace(str(path), cache=False), 310_000, 650_000, first)
    once = load_trace(str(first), cache=False)
    mark = read_slice_metadata(once)
    assert mark is not None
    assert mark.source_name == path.name
    assert mark.slice_range is not None
    assert [time + once.origin for time in mark.slice_range] == [1_310_000, 1_650_000]
    write_slice(once, 110_000, 130_000, second)
    twice = load_trace(str(second), cache=False)
    mark = read_slice_metadata(twice)
    assert mark is not None
    assert mark.source_name == "first.json"
    assert mark.slice_range is not None
    assert [time + twice.origin for time in mark.slice_range] == [1_410_000, 1_430_000]
