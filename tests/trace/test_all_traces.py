"""Every shared trace, opened for real: nothing lost, everything nested, joined and kept as the slow way has it."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.helpers import slow_reference
from tests.helpers.chain_reference import ReferenceChains, assert_chains_equal
from tests.helpers.column_equality import assert_deeply_equal
from tests.helpers.paths import SHARED_TRACES, find_shared_traces
from torchprof_tui.analysis.kernel.footprint import compute_footprint
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.decode.decoder import decode_trace
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.open import open_source
from torchprof_tui.trace.storage.trace_store import open_trace, save_trace

TRACES = SHARED_TRACES
BIG = TRACES / "big_llama_train_stack.pt.trace.json.xz"

FILES = find_shared_traces()
_SLOW_LAUNCHES = 50
"""Pieces of GPU work beneath an event up to which the slow way is asked for its chain."""

_SLOW_WAY = 20_000
"""Events on lanes that the slow reference takes; longer lanes are compared at their beginning."""


class Opened(NamedTuple):
    path: Path
    trace: Trace
    folder: Path


@pytest.fixture(scope="module", params=FILES, ids=lambda path: str(path.relative_to(TRACES)))
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    folder = tmp_path_factory.mktemp("trace")
    decoded = decode_trace(open_source(str(request.param)), folder)
    yield Opened(request.param, build_trace(decoded, "label"), folder)
    for file in folder.iterdir():
        file.unlink()


def entries_of(path: Path) -> list[Any] | None:
    """The file's entries by the standard library; None where it is damaged."""
    packed = path.read_bytes()
    text = gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, list) else found["traceEvents"]


def test_every_entry_is_accounted_for(opened: Opened) -> None:
    counts = opened.trace.counts
    assert counts.events == counts.drawn + counts.metadata + counts.flows + sum(counts.not_drawn.values())
    entries = entries_of(opened.path)
    if entries is None:
        return
    assert counts.events == len(entries)
    phases = Counter(entry.get("ph") for entry in entries)
    assert counts.metadata == phases["M"]
    assert counts.flows == phases["s"] + phases["t"] + phases["f"]
    if not phases["B"]:
        complete = Counter(entry.get("cat", "") for entry in entries if entry["ph"] == "X" and "ts" in entry)
        assert counts.by_category == complete


def test_launches_join_as_a_dict_of_correlations_does(opened: Opened) -> None:
    entries = entries_of(opened.path)
    if entries is None:
        pytest.skip("damaged: the reference cannot read it")
    links = opened.trace.links
    assert (links.launches, links.gpu_events, links.linked_gpu_events) == slow_reference.launches(entries)
    work = np.isin(opened.trace.kind, list(GPU_WORK))
    assert not (links.launch_of[~work] >= 0).any()


def test_chains_are_those_of_the_slow_way(opened: Opened) -> None:
    entries = entries_of(opened.path)
    if entries is None:
        pytest.skip("damaged: the reference cannot read it")
    trace = opened.trace
    slow = ReferenceChains(trace, [entry for entry in entries if isinstance(entry, dict)])
    rng = random.Random(5)
    picked = rng.sample(slow.work, min(4, len(slow.work)))
    for kind in (Kind.STEP, Kind.ANNOTATION, Kind.PYTHON, Kind.OP, Kind.RUNTIME):
        rows = np.flatnonzero(trace.kind == kind).tolist()
        few = rng.sample(rows, min(4, len(rows)))
        picked += [row for row in few if len(slow.list_candidates(row)) <= _SLOW_LAUNCHES]
    assert_chains_equal(trace, slow, picked)


def test_footprints_agree_with_the_profilers_own_words(opened: Opened) -> None:
    """Blocks and warps an SM; and its estimate, which knows no shared memory beyond 48 KB a block."""
    trace = opened.trace
    kernels = np.flatnonzero(np.isin(trace.kind, [Kind.KERNEL, Kind.COLLECTIVE])).tolist()
    for event in random.Random(6).sample(kernels, min(12, len(kernels))):
        found, args = compute_footprint(trace, event), trace.event(event).read_args()
        assert found is not None
        told = (args.get("blocks per SM"), args.get("warps per SM"), args.get("est. achieved occupancy %"))
        blocks, warps, estimate = (value if isinstance(value, (int, float)) else None for value in told)
        if blocks is not None and found.blocks_per_sm is not None:
            assert found.blocks_per_sm == pytest.approx(blocks, rel=1e-5, abs=1e-5)
        if (
            warps is not None
            and found.threads_per_block
            and found.threads_per_block % 32 == 0
            and found.warps_per_sm is not None
        ):
            assert found.warps_per_sm == pytest.approx(warps, rel=1e-5, abs=1e-5)
        theory = found.occupancy
        if estimate is None or theory is None or theory.active_blocks is None or found.blocks_per_sm is None:
            continue
        assert found.device is not None
        assert found.device.max_threads is not None
        assert found.shared_memory is not None
        ours = (
            min(theory.active_blocks, found.blocks_per_sm) * (found.threads_per_block or 0) / found.device.max_threads
        )
        assert estimate == pytest.approx(100 * ours, abs=1) or (estimate == 0 and found.shared_memory > 48 * 1024)


def test_lanes_nest_as_the_slow_way_has_it(opened: Opened) -> None:
    trace = opened.trace
    for lane in trace.lanes:
        flat = lane.role in (Role.STREAM, Role.SYNC, Role.ASYNC)
        last = min(lane.last, lane.first + _SLOW_WAY)
        mine = slice(lane.first, last)
        times = list(zip(trace.start[mine].tolist(), trace.duration[mine].tolist(), strict=True))
        found = slow_reference.nest(times, flat)
        parents = [parent + lane.first if parent >= 0 else -1 for parent in found.parent]
        assert trace.row[mine].tolist() == found.row
        assert trace.parent[mine].tolist() == parents
        if last == lane.last:
            assert trace.self_duration[mine].tolist() == found.self_duration
            assert lane.rows == 1 + max(found.row, default=0)


def test_rows_hold_one_event_at_a_time(opened: Opened) -> None:
    trace = opened.trace
    start = trace.start[trace.row_order]
    ends = start + np.maximum(trace.duration[trace.row_order], 1)
    same_row = np.ones(max(len(trace) - 1, 0), np.bool_)
    inner = trace.row_first[(trace.row_first > 0) & (trace.row_first < len(trace))]
    same_row[inner - 1] = False
    assert (ends[:-1] <= start[1:])[same_row].all()


def test_it_comes_back_from_disk_as_it_was(opened: Opened) -> None:
    save_trace(opened.trace, opened.folder)
    found = open_trace(opened.folder)
    assert_deeply_equal(opened.trace, found)
    if len(found):
        event = found.event(len(found) // 2)
        entry = found.read_entry(int(found.ordinal[event.index]))
        assert str(entry.get("name", "")) == event.name


def test_the_big_one_has_forty_rows_not_a_hundred_and_eighty_five(tmp_path: Path) -> None:
    """`ProfilerStep` crosses Python frames at every step there: rows of frames that are gone must not stay taken."""
    if not BIG.exists():
        pytest.skip("the big trace is not here")
    trace = build_trace(decode_trace(open_source(str(BIG)), tmp_path), "big")
    launching = trace.lanes[0]
    assert (launching.tid, launching.rows) == ("2227", 40)
    assert trace.counts.events == 1_026_963
    assert len(trace.steps) == 30
