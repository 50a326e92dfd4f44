"""Compare critical path, replay and slack with a plain simulation of programs that hypothesis makes."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.analysis.critical_path.simulated_steps import LATENCY, Instruction, simulate
from tests.helpers.long_run import scale_examples
from torchprof_tui.analysis.critical_path.build_graph import UNKNOWN_DELAY
from torchprof_tui.analysis.critical_path.critical_path import CriticalPath, find_critical_path
from torchprof_tui.analysis.critical_path.segments import SegmentKind
from torchprof_tui.trace.model.trace import Trace

STREAMS = st.integers(7, 9)
PROGRAMS = st.lists(
    st.one_of(
        st.tuples(st.just("host"), st.integers(1, 40)),
        st.tuples(st.just("launch"), STREAMS, st.integers(1, 9), st.integers(1, 60)),
        st.tuples(st.just("wait"), STREAMS, STREAMS),
        st.tuples(st.just("sync")),
    ),
    min_size=1,
    max_size=25,
).filter(lambda program: any(each[0] in ("host", "launch") for each in program))


def assert_tiled(path: CriticalPath) -> None:
    segments = path.segments
    assert segments.start[0] == path.window.begin
    assert segments.end[-1] == path.window.end
    assert (segments.start[1:] == segments.end[:-1]).all()
    assert (segments.end > segments.start).all()
    assert sum(share.time for share in path.shares) == path.duration


def list_kernels(trace: Trace, path: CriticalPath) -> list[str]:
    segments = path.segments
    return [trace.event(int(event)).name for event in segments.event[segments.kind == SegmentKind.KERNEL]]


@given(PROGRAMS)
@settings(max_examples=scale_examples(2), deadline=None)
def test_the_path_is_the_chain_of_what_decided_each_time(program: list[Instruction]) -> None:
    simulated = simulate(program)
    trace = simulated.build_trace()
    path = find_critical_path(trace)
    assert path.duration == simulated.duration
    assert path.replayed == path.duration
    assert_tiled(path)
    assume(not simulated.tied)
    assert list_kernels(trace, path) == [name for name in simulated.path if name.startswith("kernel")]


@given(PROGRAMS, st.randoms(use_true_random=False))
@settings(max_examples=scale_examples(2), deadline=None)
def test_a_kernel_that_is_longer_by_its_slack_does_not_delay_the_step(program: list[Instruction], random) -> None:  # type: ignore[no-untyped-def]
    launches = [number for number, each in enumerate(program) if each[0] == "launch"]
    assume(launches)
    chosen = random.choice(launches)
    simulated = simulate(program)
    trace = simulated.build_trace()
    path = find_critical_path(trace)
    (event,) = np.flatnonzero(trace.name == trace.names.index(f"kernel{chosen}"))
    slack = path.slack_of(int(event))
    assert slack is not None
    assert slack >= 0
    assert simulate(program, {chosen: slack / 1000}).duration == simulated.duration
    # Latencies that no wait showed are assumed, so that the slack may be too small by these.
    more = slack + len(program) * UNKNOWN_DELAY + 1000 * LATENCY
    assert simulate(program, {chosen: more / 1000}).duration > simulated.duration
    if f"kernel{chosen}" in simulated.path and not simulated.tied:
        assert slack == 0
