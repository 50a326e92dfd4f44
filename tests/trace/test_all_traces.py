"""Open every shared trace and compare it with slow references: entries, launches, chains, nesting, storage.

Each file is decoded once, and its JSON parsed once, for all tests of the file.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest

from tests.helpers import slow_reference
from tests.helpers.chain_reference import ReferenceChains, assert_chains_equal
from tests.helpers.column_equality import assert_deeply_equal
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SHARED_TRACES, find_shared_traces, mark_long_traces
from tests.helpers.stored_traces import save_trace
from torchprof_tui.analysis.kernel.footprint import Footprint, compute_footprint
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.core.process_state import pause_garbage_collection
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import open_source
from torchprof_tui.trace.storage.trace_store import open_trace

BIG_TRACE = SHARED_TRACES / "big_llama_train_stack.pt.trace.json.xz"
FILES = find_shared_traces()

_MAX_GPU_EVENTS = 50
"""Most GPU events of an event whose chain the reference finds."""

_MAX_NESTED_EVENTS = 20_000
"""Most events of a lane that the reference nests; only the beginning of longer lanes is compared."""

_MAX_STANDARD_LIBRARY_BYTES = 16 << 20
"""Larger texts are parsed by orjson, in a quarter of the time: eleven of the 125 files, with 70 % of all text. The
other files keep the reference independent of the decoder's own parser."""


class OpenedTrace(NamedTuple):
    """A trace, the entries of its file by another parser (None: the file is damaged), and a folder of its own."""

    trace: Trace
    entries: list[Any] | None
    folder: Path


@pytest.fixture(scope="module", params=keep_some(mark_long_traces(FILES), 16))
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedTrace]:
    folder = tmp_path_factory.mktemp("trace")
    # The collector would traverse the millions of parsed dicts again and again, while they are made and in every test.
    with pause_garbage_collection():
        trace = build_trace(decode_trace(open_source(str(request.param)), folder), "label")
        yield OpenedTrace(trace, parse_entries(request.param), folder)
    shutil.rmtree(folder)


def parse_entries(path: Path) -> list[Any] | None:
    """Parse the entries of a file; None if it is damaged."""
    stored = path.read_bytes()
    text = gzip.decompress(stored) if stored[:2] == b"\x1f\x8b" else stored
    is_large = len(text) > _MAX_STANDARD_LIBRARY_BYTES
    for parse in (orjson.loads, json.loads) if is_large else (json.loads,):
        with contextlib.suppress(ValueError):  # orjson does not accept NaN, the standard library does
            document = parse(text)
            return document if isinstance(document, list) else document["traceEvents"]
    return None


def test_every_entry_is_accounted_for(opened: OpenedTrace) -> None:
    counts = opened.trace.counts
    assert counts.events == counts.drawn + counts.metadata + counts.flows + sum(counts.not_drawn.values())
    entries = opened.entries
    if entries is None:
        return
    assert counts.events == len(entries)
    phases = Counter(entry.get("ph") for entry in entries)
    assert counts.metadata == phases["M"]
    assert counts.flows == phases["s"] + phases["t"] + phases["f"]
    if not phases["B"]:
        complete = Counter(entry.get("cat", "") for entry in entries if entry["ph"] == "X" and "ts" in entry)
        assert counts.by_category == complete


def test_launches_equal_those_by_a_dict_of_correlations(opened: OpenedTrace) -> None:
    if opened.entries is None:
        pytest.skip("damaged: the reference cannot parse it")
    links = opened.trace.links
    counts = (links.launches, links.gpu_events, links.linked_gpu_events)
    assert counts == slow_reference.count_launches(opened.entries)
    is_work = np.isin(opened.trace.kind, list(GPU_WORK))
    assert not (links.launch_of[~is_work] >= 0).any()


def test_chains_equal_the_reference(opened: OpenedTrace) -> None:
    if opened.entries is None:
        pytest.skip("damaged: the reference cannot parse it")
    trace = opened.trace
    reference = ReferenceChains(trace, [entry for entry in opened.entries if isinstance(entry, dict)])
    launches = np.array(list(reference.launch.values()), np.int64)
    launch_lane, launch_start = trace.lane[launches], trace.start[launches]

    def count_gpu_events(row: int) -> int:
        start = trace.start[row]
        end = start + max(trace.duration[row], 1)
        is_inside = (launch_lane == trace.lane[row]) & (launch_start >= start) & (launch_start < end)
        return int(np.count_nonzero(is_inside))

    rng = random.Random(5)
    rows = rng.sample(reference.work, min(4, len(reference.work)))
    for kind in (Kind.STEP, Kind.ANNOTATION, Kind.PYTHON, Kind.OP, Kind.RUNTIME):
        rows_of_kind = np.flatnonzero(trace.kind == kind).tolist()
        sample = rng.sample(rows_of_kind, min(4, len(rows_of_kind)))
        rows += [row for row in sample if count_gpu_events(row) <= _MAX_GPU_EVENTS]
    assert_chains_equal(trace, reference, rows)


def test_footprints_agree_with_the_args_of_the_kernels(opened: OpenedTrace) -> None:
    """Blocks and warps per SM; and the profiler's estimate, which assumes no shared memory beyond 48 KB per block."""
    trace = opened.trace
    kernels = np.flatnonzero(np.isin(trace.kind, [Kind.KERNEL, Kind.COLLECTIVE])).tolist()
    for event in random.Random(6).sample(kernels, min(12, len(kernels))):
        footprint, args = compute_footprint(trace, event), trace.event(event).read_args()
        assert footprint is not None
        blocks, warps = number_of(args, "blocks per SM"), number_of(args, "warps per SM")
        if blocks is not None and footprint.blocks_per_sm is not None:
            assert footprint.blocks_per_sm == pytest.approx(blocks, rel=1e-5, abs=1e-5)
        whole_warps = footprint.threads_per_block and footprint.threads_per_block % 32 == 0
        if warps is not None and whole_warps and footprint.blocks_per_sm is not None and footprint.occupancy:
            warps_per_sm = footprint.blocks_per_sm * footprint.occupancy.warps_per_block
            assert warps_per_sm == pytest.approx(warps, rel=1e-5, abs=1e-5)
        assert_occupancy_agrees(footprint, number_of(args, "est. achieved occupancy %"))


def number_of(args: dict[str, Any], key: str) -> float | None:
    value = args.get(key)
    return value if isinstance(value, (int, float)) else None


def assert_occupancy_agrees(footprint: Footprint, estimate: float | None) -> None:
    """Compare with the profiler's estimate in percent, where both are known."""
    theory = footprint.occupancy
    if estimate is None or theory is None or theory.active_blocks is None or footprint.blocks_per_sm is None:
        return
    assert footprint.device is not None
    assert footprint.device.max_threads is not None
    assert footprint.shared_memory is not None
    active_blocks = min(theory.active_blocks, footprint.blocks_per_sm)
    occupancy = active_blocks * (footprint.threads_per_block or 0) / footprint.device.max_threads
    agrees = estimate == pytest.approx(100 * occupancy, abs=1)
    assert agrees or (estimate == 0 and footprint.shared_memory > 48 * 1024)


def test_nesting_equals_the_reference(opened: OpenedTrace) -> None:
    trace = opened.trace
    for lane in trace.lanes:
        flat = lane.role in (Role.STREAM, Role.SYNC, Role.ASYNC)
        last = min(lane.last, lane.first + _MAX_NESTED_EVENTS)
        compared = slice(lane.first, last)
        times = list(zip(trace.start[compared].tolist(), trace.duration[compared].tolist(), strict=True))
        expected = slow_reference.nest(times, flat)
        parents = [parent + lane.first if parent >= 0 else -1 for parent in expected.parent]
        assert trace.row[compared].tolist() == expected.row
        assert trace.parent[compared].tolist() == parents
        if last == lane.last:
            assert trace.self_duration[compared].tolist() == expected.self_duration
            assert lane.rows == 1 + max(expected.row, default=0)


def test_rows_hold_one_event_at_a_time(opened: OpenedTrace) -> None:
    trace = opened.trace
    start = trace.start[trace.row_order]
    ends = start + np.maximum(trace.duration[trace.row_order], 1)
    same_row = np.ones(max(len(trace) - 1, 0), np.bool_)
    inner = trace.row_first[(trace.row_first > 0) & (trace.row_first < len(trace))]
    same_row[inner - 1] = False
    assert (ends[:-1] <= start[1:])[same_row].all()


def test_a_stored_trace_equals_the_built_one(opened: OpenedTrace) -> None:
    save_trace(opened.trace, opened.folder)
    stored = open_trace(opened.folder)
    assert_deeply_equal(opened.trace, stored)
    if len(stored):
        event = stored.event(len(stored) // 2)
        entry = stored.read_entry(int(stored.ordinal[event.index]))
        assert str(entry.get("name", "")) == event.name


@pytest.mark.long
def test_the_big_trace_has_40_rows_instead_of_185(tmp_path: Path) -> None:
    """`ProfilerStep` overlaps Python frames at every step of it: rows of frames that have ended must be reused."""
    if not BIG_TRACE.exists():
        pytest.skip("the big trace is missing")
    trace = build_trace(decode_trace(open_source(str(BIG_TRACE)), tmp_path), "big")
    launching_lane = trace.lanes[0]
    assert (launching_lane.tid, launching_lane.rows) == ("2227", 40)
    assert trace.counts.events == 1_026_963
    assert len(trace.steps) == 30
