"""Test snapshots: against torch's counters, against torch's own `_memory_viz.py`, and damaged ones."""

from __future__ import annotations

import gzip
import importlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.memory_fixtures import MEMORY, read_numbers
from torchprof_tui.analysis.memory.snapshots.device_snapshot import (
    DeviceSnapshot,
    SnapshotGroupBy,
    list_device_snapshots,
)
from torchprof_tui.analysis.memory.snapshots.snapshot_file import (
    Action,
    build_snapshot,
    is_snapshot_file,
    read_snapshot,
)
from torchprof_tui.trace.core.errors import TraceError


def open_device(name: str) -> DeviceSnapshot:
    (device,) = list_device_snapshots(read_snapshot(MEMORY / f"{name}.pickle.gz"))
    return device


@pytest.mark.parametrize("name", ["snapshot", "oom"])
def test_totals_are_those_of_memory_stats(name: str) -> None:
    totals, stats = open_device(name).totals, read_numbers()[f"{name}_stats"]
    assert totals.reserved == stats["reserved_bytes.all.current"]
    assert totals.allocated == stats["allocated_bytes.all.current"]
    assert totals.allocated + totals.pending == stats["active_bytes.all.current"]
    assert totals.requested == stats["requested_bytes.all.current"]
    assert totals.segments == stats["segment.all.current"]
    assert totals.free - totals.unused == stats["inactive_split_bytes.all.current"]
    assert totals.reserved == totals.allocated + totals.pending + totals.free


def test_peaks_are_those_of_memory_stats() -> None:
    device, stats = open_device("snapshot"), read_numbers()["snapshot_stats"]
    assert int(device.requested_curve.max()) == stats["requested_bytes.all.peak"]
    assert int(device.reserved_curve.max()) == stats["reserved_bytes.all.peak"]
    state = device.find_state(device.find_peak())
    alive = sum(group.bytes for group in device.group_alive(state, SnapshotGroupBy.LINE))
    assert alive + state.older == state.requested == stats["requested_bytes.all.peak"]
    assert state.older == read_numbers()["start"][0]["allocated"]  # allocated before the history was recorded


def test_a_history_that_disagrees_with_the_blocks_has_no_negative_rest() -> None:
    """It said -12 B before the history, and 102 %."""
    entries = [{"action": "alloc", "addr": 64 * k, "size": 10 * k, "frames": [], "time_us": k} for k in (1, 2)]
    block = {"size": 512, "requested_size": 18, "state": "active_allocated", "address": 64}
    segment = {"device": 0, "address": 64, "total_size": 512, "stream": 0, "blocks": [block]}
    (device,) = list_device_snapshots(build_snapshot({"segments": [segment], "device_traces": [entries]}))
    state = device.find_state(1)
    assert (state.requested, state.older, state.surplus) == (30, 0, 12)


@pytest.mark.parametrize("name", ["snapshot", "oom"])
def test_segments_are_those_of_memory_viz(name: str) -> None:
    """torch's `_memory_viz.py` is the page that reads snapshots; its sums are of the same file."""
    viz = pytest.importorskip("torch.cuda._memory_viz")
    with gzip.open(MEMORY / f"{name}.pickle.gz") as file:
        content = pickle.load(file)  # recorded for this project
    device = open_device(name)
    segments = device.snapshot.segments
    found = sorted((int(segments.address[row]), int(segments.size[row])) for row in device.segments)
    assert found == sorted((segment["address"], segment["total_size"]) for segment in content["segments"])
    report, totals = viz.segsum(content).splitlines(), device.totals
    assert f"segments: {totals.segments}" in report
    assert f"total_reserved: {viz.Bytes(totals.reserved)}" in report
    assert f"total_allocated: {viz.Bytes(totals.requested)}" in report
    assert f"total_free: {viz._report_free(totals.free, totals.allocated - totals.requested)}" in report
    large = [int(segments.size[row]) for row in device.segments if segments.size[row] >= viz.PAGE_SIZE]
    listed = [line.partition("] ")[2].partition(" allocated")[0] for line in report if line.startswith("[")]
    assert sorted(listed) == sorted(str(viz.Bytes(size)) for size in large)


def test_a_failed_allocation_is_reported() -> None:
    (failure,) = open_device("oom").list_failures()
    assert failure.size == 1 << 40
    assert failure.requested == read_numbers()["oom_stats"]["allocated_bytes.all.current"]
    assert failure.reserved == read_numbers()["oom_stats"]["reserved_bytes.all.current"]
    assert failure.stack.startswith("record_memory.py:")
    assert open_device("snapshot").list_failures() == []


def test_lines_are_of_the_program_and_stacks_whole() -> None:
    device = open_device("snapshot")
    groups = {group.label: group for group in device.group_blocks(SnapshotGroupBy.LINE)}
    assert sum(group.bytes for group in groups.values()) == device.totals.requested
    state = next(group for label, group in groups.items() if group.count == 58)  # Adam's two for each of 29 parameters
    assert state.label.endswith(" train")
    stacks = [group.label for group in device.group_blocks(SnapshotGroupBy.STACK)]
    assert any("torch/optim/adam.py" in stack and stack.count("\n") > 3 for stack in stacks)


def frames(line: int) -> list[dict[str, Any]]:
    return [{"name": "f", "filename": "train.py", "line": line}]


def simulate(steps: list[tuple[int, int]], kept: int) -> tuple[dict[str, Any], list[dict[int, int]]]:
    """Build the content of a snapshot from allocations and frees, with the last `kept` entries of history."""
    live: dict[int, int] = {}
    entries, states = [], []
    for time, (address, size) in enumerate(steps):
        action = "free_requested" if address in live else "alloc"
        size = live.pop(address, size)
        if action == "alloc":
            live[address] = size
        entries.append(
            {"action": action, "addr": address, "size": size, "stream": 0, "time_us": time, "frames": frames(address)}
        )
        states.append(dict(live))
    blocks: list[dict[str, Any]] = [
        {"address": at, "size": size + 9, "requested_size": size, "state": "active_allocated", "frames": frames(at)}
        for at, size in live.items()
    ]
    free = {"address": 99, "size": 7, "requested_size": 0, "state": "inactive", "frames": []}
    segment = {
        "device": 0,
        "address": 1,
        "total_size": sum(block["size"] for block in blocks) + 7,
        "stream": 0,
        "segment_type": "small",
        "blocks": [*blocks, free],
    }
    first = max(len(entries) - kept, 0)
    return {"segments": [segment], "device_traces": [entries[first:]]}, states[first:]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 10**9)), min_size=1, max_size=40), st.integers(1, 40))
def test_what_was_alive_sums_to_the_curve(steps: list[tuple[int, int]], kept: int) -> None:
    """Also where the history has dropped its oldest entries, as torch does beyond max_entries."""
    content, states = simulate(steps, kept)
    (device,) = list_device_snapshots(build_snapshot(content))
    assert device.history is not None
    for position, live in enumerate(states):
        state = device.find_state(position)
        assert state.requested == sum(live.values()) == int(device.requested_curve[position])
        alive = {int(device.history.address[entry]): int(device.history.size[entry]) for entry in state.alive}
        assert alive.items() <= live.items()
        assert state.older == sum(live.values()) - sum(alive.values())
    assert device.find_state(device.find_peak()).requested == max(sum(live.values()) for live in states)
    assert device.totals.allocated - device.totals.requested == 9 * len(states[-1])
    assert (device.totals.free, device.totals.largest_free) == (7, 7)


def test_expandable_segments_are_mapped_in_pieces() -> None:
    content, _ = simulate([(1, 100)], 9)
    grow = [
        {"action": action, "addr": 1, "size": size, "stream": 0, "time_us": 0, "frames": []}
        for action, size in (("segment_map", 80), ("segment_map", 50), ("segment_unmap", 14))
    ]
    content["device_traces"][0] = [*grow, *content["device_traces"][0]]
    (device,) = list_device_snapshots(build_snapshot(content))
    assert device.reserved_curve.tolist() == [80, 130, 116, 116]
    assert np.count_nonzero(device.history.action == Action.SEGMENT_MAP) == 2  # type: ignore[union-attr]


def test_an_older_snapshot_has_neither_addresses_nor_frames_of_blocks() -> None:
    """As torch 2.0 wrote them: a block's frames are in its history."""
    block = {"size": 512, "state": "active_allocated", "history": [{"addr": 7, "real_size": 500, "frames": frames(3)}]}
    segment = {"device": 1, "address": 4096, "total_size": 1024, "stream": 0, "segment_type": "large"}
    content = {"segments": [{**segment, "blocks": [{"size": 512, "state": "inactive"}, block]}]}
    (device,) = list_device_snapshots(build_snapshot(content))
    assert (device.label, device.history) == ("GPU 1", None)
    assert device.snapshot.blocks.address.tolist() == [4096, 4608]
    assert [group.label for group in device.group_blocks(SnapshotGroupBy.LINE)] == ["train.py:3 f"]


SHARED_BLOCKS = [{"size": 1, "state": "inactive"}]


@pytest.mark.parametrize(
    "content",
    [
        None,
        [1, 2],
        {},
        {"segments": 5},
        {"segments": [5]},
        {"segments": [{}]},
        {"segments": [{"blocks": [5]}]},
        {"segments": [{"blocks": [{"size": "big"}], "total_size": 1}]},
        {"segments": [{"blocks": [{"size": -1}], "total_size": 1}]},
        {"segments": [{"blocks": [{"size": 2**63}], "total_size": 1}]},
        {"segments": [{"blocks": [{"size": 1.5}], "total_size": 1}]},
        {"segments": [{"blocks": [], "total_size": 2**64}]},
        {"segments": [{"blocks": SHARED_BLOCKS, "total_size": 1}] * 2},
        {"segments": [], "device_traces": [[5]]},
        {"segments": [], "device_traces": [[{"action": "alloc", "size": [1]}]]},
        {"segments": [], "device_traces": [[{"action": ["alloc"]}]]},
        {"segments": [], "device_traces": [[{"action": "alloc"}]] * 2},
    ],
)
def test_what_is_no_snapshot_gets_one_line(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(TraceError, match="not a memory snapshot") as error:
        list_device_snapshots(read_snapshot(path))
    assert "\n" not in str(error.value)


def test_frames_of_any_form_are_survived() -> None:
    content, _ = simulate([(1, 100), (2, 100), (3, 100), (4, 100)], 9)
    odd = [None, 5, [5, None], [{"name": 3, "filename": None}]]
    for entry, block, found in zip(content["device_traces"][0], content["segments"][0]["blocks"], odd, strict=False):
        entry["frames"] = block["frames"] = found
    (device,) = list_device_snapshots(build_snapshot(content))
    for by in SnapshotGroupBy:
        assert sum(group.bytes for group in device.group_alive(device.find_state(3), by)) == 400
        assert sum(group.bytes for group in device.group_blocks(by)) == 400


def nest(depth: int) -> list[Any]:
    """Build lists that hold each other: a few hundred bytes of file, 2^depth values to print or convert."""
    value: list[Any] = [1]
    for _ in range(depth):
        value = [value, value]
    return value


def test_values_that_hold_each_other_cost_no_time() -> None:
    huge = nest(60)
    content, _ = simulate([(1, 100)], 9)
    for frame in (*content["device_traces"][0][0]["frames"], *content["segments"][0]["blocks"][0]["frames"]):
        frame.update(name=huge, filename=huge, line=huge)
    content["segments"][0].update(segment_type=huge, is_expandable=huge)
    (device,) = list_device_snapshots(build_snapshot(content))
    assert [group.label for group in device.group_blocks(SnapshotGroupBy.STACK)] == [":0 "]
    for key, value in (("size", huge), ("addr", huge), ("time_us", huge), ("action", huge)):
        broken, _ = simulate([(1, 100)], 9)
        broken["device_traces"][0][0][key] = value
        with pytest.raises(TraceError, match="not a memory snapshot"):
            build_snapshot(broken)


def test_files_are_told_apart_by_their_first_bytes(tmp_path: Path) -> None:
    assert is_snapshot_file(MEMORY / "oom.pickle.gz")
    assert not is_snapshot_file(MEMORY / "start.pt.trace.json.xz")
    assert not is_snapshot_file(tmp_path)
    (tmp_path / "cut.gz").write_bytes((MEMORY / "oom.pickle.gz").read_bytes()[:12])
    assert not is_snapshot_file(tmp_path / "cut.gz")
    (tmp_path / "cut2.gz").write_bytes((MEMORY / "oom.pickle.gz").read_bytes()[:900])
    with pytest.raises(TraceError, match="damaged"):
        read_snapshot(tmp_path / "cut2.gz")


def test_reading_imports_no_torch() -> None:
    module = importlib.import_module("torchprof_tui.analysis.memory.snapshots.snapshot_file")
    assert "torch" not in vars(module)


def test_files_that_would_fill_memory_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "lists.pickle.gz"
    path.write_bytes(gzip.compress(b"\x80\x04" + b"]" * 3_000_000 + b"."))
    with pytest.raises(TraceError, match="3,000,000 lists"):
        read_snapshot(path)
    segments = [{"device": device, "total_size": 1, "blocks": [{"size": 1}]} for device in range(5000)]
    with pytest.raises(TraceError, match="more than 4,096 devices"):
        build_snapshot({"segments": segments, "device_traces": []})


def test_real_files_have_few_containers() -> None:
    for path in MEMORY.glob("*.pickle.gz"):
        data = gzip.decompress(path.read_bytes())
        assert sum(map(data.count, (b"]", b"}", b")"))) < 0.1 * len(data), path.name
