"""Test following links against a search over every link of the trace."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.trace_builder import cpu, flow, kernel, runtime, trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query import navigation

NESTED = st.lists(
    st.one_of(
        st.builds(cpu, st.just("op"), st.integers(0, 60), st.integers(0, 30), st.sampled_from([1, 2])),
        st.builds(lambda at, corr: runtime("launch", at, 2, corr=corr), st.integers(0, 60), st.integers(1, 6)),
        st.builds(lambda at, corr: kernel("k", at, 3, corr=corr), st.integers(0, 90), st.integers(1, 6)),
    ),
    min_size=1,
    max_size=20,
)


def is_below(made: Trace, event: int, ancestor: int) -> bool:
    parent = int(made.parent[event])
    return parent >= 0 and (parent == ancestor or is_below(made, parent, ancestor))


@given(NESTED)
def test_the_first_work_below_is_that_of_the_first_launch_below(entries: list) -> None:
    made = trace(*entries, ns=True)
    for event in range(len(made)):
        launching = (other for other in range(len(made)) if len(made.links.work_of(other)))
        launches = [other for other in launching if is_below(made, other, event)]
        wanted = int(made.links.work_of(launches[0])[0]) if launches else -1
        assert navigation.find_first_work_below(made, event) == wanted


@given(NESTED)
def test_back_from_all_work_is_the_call_that_it_was_reached_from(entries: list) -> None:
    made = trace(*entries, ns=True)
    for event in range(len(made)):
        work = made.links.work_of(event).tolist()
        reached = [navigation.follow_link(made, event)] if work else []
        while reached and len(reached) <= len(work):
            reached.append(navigation.follow_link(made, reached[-1]))
        assert reached == ([*work, -1] if work else [])
        assert all(navigation.follow_link_back(made, gpu_event) == event for gpu_event in work)


def test_a_forward_leads_to_its_backward_before_any_work_below_it() -> None:
    made = trace(
        cpu("aten::mm", 0, 10),
        runtime("cudaLaunchKernel", 2, 2, corr=1),
        kernel("k", 20, 5, corr=1),
        cpu("MmBackward0", 50, 10, thread=200),
        flow("s", "fwdbwd", 1, 0),
        flow("f", "fwdbwd", 1, 50, thread=200),
    )
    named = {made.event(event).name: event for event in range(len(made))}
    assert navigation.follow_link(made, named["aten::mm"]) == named["MmBackward0"]
    assert navigation.follow_link_back(made, named["MmBackward0"]) == named["aten::mm"]
    assert navigation.find_first_work_below(made, named["aten::mm"]) == named["k"]
    assert navigation.follow_link(made, named["MmBackward0"]) == -1
