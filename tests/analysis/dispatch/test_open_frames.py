"""Test the frames that were open when the recording began: of them no line is known."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.explorer_app import event_of
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.trace_builder import Entry, annotation, cpu, python, step, trace
from torchprof_tui.analysis.dispatch.called_frame import find_called_frame
from torchprof_tui.analysis.dispatch.frame_names import parse_frame
from torchprof_tui.analysis.dispatch.open_frames import find_open_frames, find_open_names
from torchprof_tui.analysis.dispatch.source_line import SourceLineFinder, find_gap_line, find_source_line
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace

UNKNOWN = "line unknown: this frame began before the recording"


def frame(name: str, start: float, duration: float, number: int, parent: int | None, thread: int = 100) -> Entry:
    return python(name, start, duration, thread, **{"Python id": number, "Python parent id": parent})


def open_names(shown: Trace) -> list[str]:
    return [shown.names[shown.name[row]] for row in find_open_frames(shown)]


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

STARVED = [
    # A recorded loop over a DataLoader: line 31 called optimizer.step(), whose hook began the recording.
    frame("train.py(31): <module>", 0, 1000, 16, None),
    frame("torch/utils/data/dataloader.py(720): __next__", 36, 384, 97, 16),
    annotation(LOADER, 40, 380),
    frame("torch/utils/data/dataloader.py(783): _next_data", 42, 376, 107, 97),
    frame("train.py(18): __getitem__", 45, 180, 121, 107),
    frame("train.py(19): <genexpr>", 46, 170, 122, 121),
    frame("train.py(18): __getitem__", 230, 185, 131, 107),
    frame("train.py(21): <listcomp>", 300, 90, 133, 131),
    cpu("aten::mm", 500, 400),
]


def test_a_module_has_no_line_and_neither_has_its_text() -> None:
    line = find_source_line(trace(*STARVED), event_of(trace(*STARVED), "aten::mm"))
    assert line is not None
    assert (line.file, line.line, line.location) == ("train.py", None, "train.py")
    assert line.text == f"train.py: <module> ({UNKNOWN})"


def test_the_frame_that_the_evidence_calls_for_long_is_named_instead() -> None:
    shown = trace(*STARVED)
    line = SourceLineFinder(shown).find_common_line(np.array([event_of(shown, LOADER)]))
    assert line is not None
    assert (line.location, line.text) == ("train.py:18", "train.py(18): __getitem__, 365.0 of 380.0 µs")


def test_evidence_that_calls_no_user_frame_keeps_the_unknown_line() -> None:
    shown = trace(*STARVED)
    rows = np.array([event_of(shown, "aten::mm"), event_of(shown, "train.py(31): <module>")])
    for row in rows:  # of the frame itself the time does not lie in what it calls
        line = SourceLineFinder(shown).find_common_line(np.array([row]))
        assert line is not None
        assert line.location == "train.py"


def test_a_gap_in_it_has_no_line() -> None:
    line = find_gap_line(trace(*STARVED), 0, 910_000, 990_000)
    assert line is not None
    assert line.location == "train.py"


def test_the_stack_at_the_start_is_open_and_what_is_called_later_is_not() -> None:
    shown = trace(
        frame("train.py(90): <module>", 0, 1000, 1, None),
        frame("train.py(70): main", 2, 990, 2, 1),
        frame("torch/profiler/profiler.py(894): step", 4, 20, 3, 2),
        frame("torch/profiler/profiler.py(385): add_metadata_json", 15, 5, 5, 3),
        frame("train.py(10): forward", 100, 200, 9, 2),
        cpu("aten::mm", 110, 50),
        cpu("aten::add", 400, 50),
    )
    assert open_names(shown) == [
        "train.py(90): <module>",
        "train.py(70): main",
        "torch/profiler/profiler.py(894): step",
    ]
    known = find_source_line(shown, event_of(shown, "aten::mm"))
    assert known is not None
    assert known.location == "train.py:10"
    unknown = find_source_line(shown, event_of(shown, "aten::add"))
    assert unknown is not None
    assert unknown.text == f"train.py: main ({UNKNOWN})"


def test_a_recorded_call_in_a_cut_trace_has_its_line() -> None:
    shown = trace(frame("scheduler.py(2919): run_batch", 0, 100, 1_150_346, 1_150_227), cpu("aten::mm", 10, 50))
    assert not open_names(shown)
    line = find_source_line(shown, event_of(shown, "aten::mm"))
    assert line is not None
    assert line.location == "scheduler.py:2919"


def test_a_thread_that_was_started_during_the_recording_has_no_open_frame() -> None:
    shown = trace(
        frame("train.py(90): <module>", 0, 1000, 1, None),
        frame("train.py(10): forward", 100, 200, 9, 1),
        frame("threading.py(973): _bootstrap", 200, 300, 20, None, thread=7),
        frame("loader.py(5): run", 201, 290, 21, 20, thread=7),
    )
    assert open_names(shown) == ["train.py(90): <module>"]


def test_threads_that_waited_at_the_start_are_open_too() -> None:
    shown = trace(
        frame("threading.py(973): _bootstrap", 0, 1000, 1, None, thread=7),
        frame("loader.py(31): run", 1, 990, 2, 1, thread=7),
        frame("train.py(90): <module>", 20, 980, 3, None),
        frame("train.py(10): forward", 100, 200, 9, 3),
    )
    assert open_names(shown) == ["threading.py(973): _bootstrap", "loader.py(31): run", "train.py(90): <module>"]


@pytest.mark.parametrize(
    ("name", "expected"), [("utils.py(1): <module>", "utils.py:1"), ("utils.py(8): <module>", "utils.py")]
)
def test_without_numbers_a_module_is_recognised_by_its_line(name: str, expected: str) -> None:
    shown = trace(step(0, 0, 100), python(name, 1, 90), cpu("aten::mm", 10, 50))
    line = find_source_line(shown, event_of(shown, "aten::mm"))
    assert line is not None
    assert line.location == expected
    assert len(find_open_names(shown)) == (expected == "utils.py")


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        ((90, 60, 20), "b.py(2): inner, 60.0 of 100.0 µs"),  # the innermost of those above half
        ((40, 35, 20), "a.py(1): outer, 40.0 of 100.0 µs"),  # none above half: the longest
        ((9, 8, 7), None),
    ],
)
def test_the_called_frame_with_most_time(durations: tuple[float, float, float], expected: str | None) -> None:
    outer, inner, expression = durations
    shown = trace(
        annotation("load", 0, 100),
        python("a.py(1): outer", 1, outer),
        python("b.py(2): inner", 2, inner),
        python("b.py(3): <lambda>", 3, expression),
    )
    found = find_called_frame(shown, np.array([0]), lambda row: parse_frame(shown.names[shown.name[row]]))
    assert (None if found is None else found.text) == expected


@pytest.mark.skipif(not SHARED_TRACES.is_dir(), reason="the shared traces are not here")
def test_in_a_real_trace_every_open_frame_has_another_line_than_its_function() -> None:
    shown = load_trace(str(SHARED_TRACES / "gpt2_train_stack_memory.pt.trace.json.gz"), cache=False)
    assert open_names(shown)[:9] == [
        "make_traces.py(494): <module>",
        "make_traces.py(481): main",
        "make_traces.py(212): gpt2_train_stack_memory",
        "make_traces.py(196): _train",
        "make_traces.py(34): capture",
        "torch/profiler/profiler.py(894): step",
        "torch/profiler/profiler.py(928): _transit_action",
        "torch/profiler/profiler.py(236): start_trace",
        "torch/autograd/profiler.py(398): _start_trace",
    ]
