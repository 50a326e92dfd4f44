"""Test name search against a scan of every event."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.trace_builder import cpu, kernel, trace
from torchprof_tui.analysis.search.name_search import BadPattern, SearchResult, search_names
from torchprof_tui.trace.model.trace import Trace

NAMES = ["aten::mm", "aten::MM", "aten::matmul", "Memset", "void kernel<float>", "[mark]", "ÄRGER", "/usr/lib.py(3): f"]


def search(made: Trace, text: str) -> SearchResult:
    answer = search_names(made, text)
    assert isinstance(answer, SearchResult)
    return answer


def list_found_names(made: Trace, text: str) -> set[str]:
    answer = search(made, text)
    assert {made.names[number] for number in answer.name_mask.nonzero()[0]} >= {
        made.names[int(made.name[event])] for event in answer.events
    }
    return {made.names[int(made.name[event])] for event in answer.events}


ALL = trace(*(cpu(name, 10 * number, 5) for number, name in enumerate(NAMES)))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("mm", {"aten::mm", "aten::MM"}),
        ("MM", {"aten::MM"}),
        ("mem", {"Memset"}),
        ("mEm", set()),
        ("ärger", {"ÄRGER"}),
        ("[mark]", {"[mark]"}),
        (".*", set()),
        ("/usr/", {"/usr/lib.py(3): f"}),
        ("/usr/lib", {"/usr/lib.py(3): f"}),
        ("", set()),
        ("/^aten::m+$/", {"aten::mm", "aten::MM"}),
        ("/^aten::M+$/", {"aten::MM"}),
        (r"/\(\d\):\S* F/", set()),
        (r"/\(\d\):\S* f/", {"/usr/lib.py(3): f"}),
        (r"/\(\d\):\s+\S/", {"/usr/lib.py(3): f"}),
        ("//", set()),
        ("/", {"/usr/lib.py(3): f"}),
    ],
)
def test_matching_names(text: str, names: set[str]) -> None:
    assert list_found_names(ALL, text) == names


@pytest.mark.parametrize("text", ["/(/", "/[a/", "/a{99999999999}/", "/*/"])
def test_an_invalid_expression_is_reported_in_one_line(text: str) -> None:
    answer = search_names(ALL, text)
    assert isinstance(answer, BadPattern)
    assert answer.message.startswith("not a regular expression: ")
    assert "\n" not in answer.message


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["aten::mm", "aten::add", "aten::addmm"]),
        st.integers(0, 40),
        st.integers(0, 9),
        st.sampled_from([1, 2, 3]),
    ),
    min_size=1,
    max_size=25,
)


@given(EVENTS, st.sampled_from(["mm", "add", "aten", "nothing"]), st.data())
def test_next_and_previous_visit_all_matches_by_start_and_lane(
    events: list[tuple[str, int, int, int]], text: str, data: st.DataObject
) -> None:
    made = trace(*(cpu(name, start, length, thread) for name, start, length, thread in events), ns=True)
    answer = search(made, text)
    expected = sorted(
        (int(made.start[event]), event) for event in range(len(made)) if text in made.names[int(made.name[event])]
    )
    assert list(zip(answer.starts.tolist(), answer.events.tolist(), strict=True)) == expected
    if not expected:
        assert answer.find_next(0) == answer.find_previous(0) == answer.find_index(0, 0) == -1
        return

    event = data.draw(st.integers(0, len(made) - 1))
    here = (int(made.start[event]), event)
    later = [index for index, key in enumerate(expected) if key > here]
    earlier = [index for index, key in enumerate(expected) if key < here]
    assert answer.find_next(*here) == (later[0] if later else 0)
    assert answer.find_previous(*here) == (earlier[-1] if earlier else len(expected) - 1)
    assert answer.find_index(*here) == (expected.index(here) if here in expected else -1)

    time = data.draw(st.integers(-5, 50))
    later = [index for index, key in enumerate(expected) if key[0] >= time]
    earlier = [index for index, key in enumerate(expected) if key[0] < time]
    assert answer.find_next(time) == (later[0] if later else 0)
    assert answer.find_previous(time) == (earlier[-1] if earlier else len(expected) - 1)


def test_every_lane_is_searched() -> None:
    made = trace(cpu("mm", 0, 5), kernel("gemm_mm", 2, 5), kernel("other", 9, 1))
    assert list_found_names(made, "mm") == {"mm", "gemm_mm"}


def test_a_trace_without_events() -> None:
    assert len(search(trace(), "mm")) == 0
