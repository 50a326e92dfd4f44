"""Test the critical path of several ranks: literal runs, a plain simulation as the reference, and recorded runs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.analysis.rank_path.simulated_ranks import Instruction, simulate_run, write_late_run
from tests.helpers.long_run import keep_some, scale_examples
from tests.helpers.merged_ranks import load_merged_ranks, load_shared_ranks
from torchprof_tui.analysis.critical_path.critical_path import CriticalPath, find_critical_path
from torchprof_tui.analysis.critical_path.segments import NO_RANK, SegmentKind
from torchprof_tui.analysis.critical_path.step_window import WindowError
from torchprof_tui.analysis.rank_path.joined_path import find_joined_path, list_rank_changes, split_rank_waits
from torchprof_tui.trace.model.ranks import Ranks
from torchprof_tui.trace.model.trace import Trace

RANKS = 3
TIMES = st.tuples(*[st.integers(1, 900)] * RANKS)
BODIES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["host", "kernel", "reduce"]), TIMES),
        st.tuples(st.just("sync"), st.just(())),
    ),
    min_size=1,
    max_size=14,
).filter(lambda program: any(kind == "reduce" for kind, _ in program))
PROGRAMS = st.builds(lambda body, last: [*body, ("kernel", last)], BODIES, TIMES)
"""With a kernel at the end: after a collective all ranks would end at the same time."""


def ranks_of(trace: Trace) -> Ranks:
    assert trace.merged_ranks is not None
    return trace.merged_ranks


def assert_tiled(path: CriticalPath) -> None:
    segments = path.segments
    assert segments.start[0] == path.window.begin
    assert segments.end[-1] == path.window.end
    assert (segments.start[1:] == segments.end[:-1]).all()
    assert sum(share.time for share in path.shares) == path.duration
    assert sum(share.time for share in path.rank_shares) == path.duration


def list_work(trace: Trace, path: CriticalPath) -> list[tuple[int, str]]:
    """List rank and name of the GPU work on the path."""
    segments, found = path.segments, []
    for index in np.flatnonzero(np.isin(segments.kind, (SegmentKind.KERNEL, SegmentKind.COLLECTIVE))).tolist():
        name = trace.event(int(segments.event[index])).name
        found.append((int(segments.rank[index]), "reduce" if name.startswith("nccl") else name))
    return found


@given(PROGRAMS)
@settings(max_examples=scale_examples(0.4), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_the_path_is_the_chain_of_what_decided_each_time_on_all_ranks(program: list[Instruction]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        simulated = simulate_run(program, RANKS, Path(folder))
        trace = load_merged_ranks(simulated.paths)
    path = find_joined_path(ranks_of(trace))
    assert_tiled(path)
    assert path.duration == simulated.duration * 1000
    assert path.replay_error == 0
    assume(not simulated.tied)
    wanted: list[tuple[int, str]] = []
    for rank, name in simulated.path:
        is_transfer = name.startswith("reduce") and wanted and wanted[-1][1] == name
        if name.startswith(("kernel", "reduce")) and not is_transfer:
            wanted.append((rank, name))
        elif is_transfer:  # the same collective again: on the rank that waited, where the path comes from
            wanted[-1] = (rank, name)
    shortened = [(rank, "reduce" if name.startswith("reduce") else name) for rank, name in wanted]
    assert list_work(trace, path) == shortened
    changes = list_rank_changes(path)
    assert [change.before for change in changes] == [
        before for (before, _), (after, _) in zip(simulated.path, simulated.path[1:], strict=False) if before != after
    ]


def late_run(folder: Path) -> Trace:
    return load_merged_ranks(write_late_run(folder))


def test_the_path_goes_to_the_late_rank_and_back(tmp_path: Path) -> None:
    trace = late_run(tmp_path)
    path = find_joined_path(ranks_of(trace))
    assert [(change.before, change.after) for change in list_rank_changes(path)] == [(1, 0)]
    assert [share.rank for share in path.rank_shares] == [1, 0]
    assert SegmentKind.RANK not in path.segments.kind
    collective = path.segments.kind == SegmentKind.COLLECTIVE
    assert (path.segments.end - path.segments.start)[collective].tolist() == [40_000]
    assert path.segments.rank[collective].tolist() == [0]
    dispatch = next(share for share in path.shares if share.label == "dispatch")
    assert dispatch.time >= 350_000


def test_slack_of_a_rank_that_waits_is_its_wait(tmp_path: Path) -> None:
    trace = late_run(tmp_path)
    ranks = ranks_of(trace)
    path = find_joined_path(ranks)
    host = [row for row in range(len(trace)) if trace.event(row).name == "host0"]
    slack = [path.slack_of(row) for row in host]
    assert slack[1] == 0
    assert slack[2] is not None
    assert slack[2] >= 290_000


def test_the_path_of_one_rank_waits_for_the_late_one(tmp_path: Path) -> None:
    ranks = ranks_of(late_run(tmp_path))
    alone = find_critical_path(ranks.all[0].trace)
    split = split_rank_waits(alone.segments, ranks, 0)
    waits = np.flatnonzero(split.kind == SegmentKind.RANK)
    assert (split.end - split.start)[waits].tolist() == [300_000]
    assert split.rank[waits].tolist() == [1]
    assert (split.rank[split.kind != SegmentKind.RANK] == NO_RANK).all()
    assert (split.start[1:] == split.end[:-1]).all()
    late = find_critical_path(ranks.all[1].trace)
    assert SegmentKind.RANK not in split_rank_waits(late.segments, ranks, 1).kind


def test_a_range_is_followed_through_its_collectives(tmp_path: Path) -> None:
    trace = late_run(tmp_path)
    ranks = ranks_of(trace)
    whole = find_joined_path(ranks)
    path = find_joined_path(ranks, time_range=(whole.window.start, whole.window.end - 100_000))
    assert_tiled(path)
    assert path.window.end == whole.window.end - 100_000
    assert 1 in [share.rank for share in path.rank_shares]


def test_a_step_that_one_rank_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WindowError, match=r"no step 7.*rank 0"):
        find_joined_path(ranks_of(late_run(tmp_path)), 7)


@pytest.mark.parametrize(
    ("name", "late"), keep_some([("ddp", 2), pytest.param("fsdp", None, marks=pytest.mark.long), ("dlrm", None)], 1)
)
def test_recorded_ranks_are_followed_and_tiled(name: str, late: int | None) -> None:
    _, trace = load_shared_ranks(name)
    ranks = ranks_of(trace)
    for step in ranks.all[0].trace.steps:
        path = find_joined_path(ranks, step.number)
        assert_tiled(path)
        assert abs(path.replay_error) < 0.02
        assert (path.slack >= 0).all()
        if late is not None:  # the check says so as well: it comes last to all collectives
            assert path.rank_shares[0].rank == late
            assert path.rank_shares[0].share > 0.9
