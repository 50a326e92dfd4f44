"""The line of the program behind an event, a gap and the evidence of a pattern."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.explorer_app import event_of
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES, SHARED_TRACES
from tests.helpers.trace_builder import Entry, annotation, cpu, flow, kernel, python, runtime, step, trace
from torchprof_tui.analysis.dispatch.frame_names import parse_frame, parse_recorded_line
from torchprof_tui.analysis.dispatch.source_line import (
    SourceLine,
    SourceLineFinder,
    find_called_frame,
    find_open_frames,
    find_open_names,
)
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace


def line_of(shown: Trace, name: str, nth: int = 0) -> SourceLine | None:
    return SourceLineFinder(shown).find_line(event_of(shown, name, nth))


def with_stack() -> Trace:
    """Build one op below frames of a script, a module, a library and torch."""
    return trace(
        python("/home/me/train.py(90): main", 0, 100),
        python("nn.Module: GPT_0", 5, 90),
        python("/home/me/train.py(42): forward", 6, 80),
        python("transformers/pytorch_utils.py(117): forward", 8, 70),
        python("torch/nn/modules/linear.py(130): forward", 10, 60),
        python("<built-in function linear>", 12, 50),
        cpu("aten::linear", 14, 40),
        runtime("cudaLaunchKernel", 20, 5, corr=1),
        kernel("gemm", 30, 90, corr=1),
    )


@pytest.mark.parametrize("name", ["aten::linear", "cudaLaunchKernel", "gemm"])
def test_the_innermost_frame_of_the_user_is_named(name: str) -> None:
    line = line_of(with_stack(), name)
    assert line == SourceLine(
        "frame",
        "/home/me/train.py",
        42,
        "forward",
        "train.py(42): forward",
        library="pytorch_utils.py(117): forward",
    )
    assert line is not None
    assert line.location == "/home/me/train.py:42"


def test_a_library_is_better_than_nothing() -> None:
    shown = trace(
        annotation("forward", 0, 100),
        python("transformers/generation/utils.py(10): generate", 1, 90),
        python("torch/nn/modules/linear.py(130): forward", 10, 60),
        python("contextlib.py(132): __enter__", 11, 50),
        cpu("aten::linear", 14, 40),
    )
    line = line_of(shown, "aten::linear")
    assert line is not None
    assert (line.text, line.library) == ("utils.py(10): generate", "")


def test_without_a_stack_the_annotation_is_named() -> None:
    shown = trace(
        step(0, 0, 200),
        annotation("outer", 1, 190),
        annotation("mine", 2, 100),
        annotation("Optimizer.step#AdamW.step", 3, 90),
        annotation("Torch-Compiled Region: 0/0", 4, 80),
        cpu("aten::mm", 5, 10),
        cpu("aten::add", 110, 5),
        cpu("aten::mul", 195, 2),
    )
    assert line_of(shown, "aten::mm") == SourceLine("annotation", None, None, "mine", "mine")
    outer = line_of(shown, "aten::add")
    assert outer is not None
    assert (outer.text, outer.location) == ("outer", None)
    assert line_of(shown, "aten::mul") is None


def test_torch_annotations_and_modules_are_the_last_resort() -> None:
    shown = trace(
        annotation("Optimizer.step#AdamW.step", 0, 50),
        cpu("aten::mm", 5, 10),
        python("nn.Module: GPT_0", 60, 50),
        python("nn.Module: Linear_3", 61, 40),
        cpu("aten::add", 62, 5),
    )
    optimizer, module = line_of(shown, "aten::mm"), line_of(shown, "aten::add")
    assert optimizer is not None
    assert (optimizer.kind, optimizer.text) == ("annotation", "Optimizer.step#AdamW.step")
    assert module is not None
    assert (module.kind, module.text) == ("module", "Linear_3")


def test_gpu_work_without_a_launch_comes_from_nowhere() -> None:
    assert line_of(trace(kernel("early", 0, 5, corr=9)), "early") is None


ENGINE = "autograd::engine::evaluate_function: MmBackward0"


def with_backward(*more: Any, flows: bool = True) -> Trace:
    """Build a forward op under a frame, and its backward on another thread with a kernel."""
    joined = [flow("s", "fwdbwd", 1, 12), flow("f", "fwdbwd", 1, 62, thread=200)] if flows else []
    sequence = {"Sequence number": 3, "Fwd thread id": 1}
    return trace(
        step(0, 0, 200),
        python("train.py(90): main", 1, 190),
        python("train.py(42): forward", 5, 30),
        cpu("aten::mm", 10, 10, **{"Sequence number": 3, "Fwd thread id": 0}),
        cpu(ENGINE, 60, 30, thread=200, **({} if flows else sequence)),
        cpu("MmBackward0", 61, 28, thread=200, **sequence),
        runtime("cudaLaunchKernel", 65, 5, corr=1, thread=200),
        kernel("gemm", 70, 20, corr=1),
        *joined,
        *more,
    )


@pytest.mark.parametrize("flows", [True, False], ids=["flows", "sequence numbers"])
def test_a_backward_kernel_names_its_forward_line(flows: bool) -> None:
    line = line_of(with_backward(flows=flows), "gemm")
    assert line is not None
    assert (line.text, line.from_forward) == ("train.py(42): forward", True)


def test_a_frame_within_the_backward_comes_first() -> None:
    custom = python("ops.py(7): backward", 62, 20, thread=200)
    line = line_of(with_backward(custom), "gemm")
    assert line is not None
    assert (line.text, line.from_forward) == ("ops.py(7): backward", False)


def test_a_node_without_a_forward_op_names_the_line_that_waits() -> None:
    accumulate = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    shown = with_backward(
        python("train.py(60): backward_pass", 100, 50),
        cpu(accumulate, 110, 20, thread=200),
        cpu("aten::add_", 112, 5, thread=200),
    )
    line = line_of(shown, "aten::add_")
    assert line is not None
    assert (line.text, line.from_forward) == ("train.py(60): backward_pass", False)


def test_on_the_cpu_the_forward_line_is_preferred_to_the_call_of_backward() -> None:
    shown = trace(
        python("train.py(90): main", 0, 200),
        python("train.py(42): forward", 5, 30),
        cpu("aten::mm", 10, 10),
        python("train.py(60): backward_pass", 50, 100),
        cpu(ENGINE, 60, 30),
        cpu("MmBackward0", 61, 28),
        cpu("aten::mm", 65, 5),
        flow("s", "fwdbwd", 1, 12),
        flow("f", "fwdbwd", 1, 62),
    )
    line = line_of(shown, "aten::mm", 1)
    assert line is not None
    assert (line.text, line.from_forward) == ("train.py(42): forward", True)


def test_stacks_in_args() -> None:
    stack = (
        "/x/python3.7/site-packages/torchvision/models/resnet.py(132): forward;"
        "/x/python3.7/site-packages/torch/nn/modules/module.py(1051): _call_impl;train.py(46): <module>"
    )
    line = parse_recorded_line({"Call stack": stack, "Module Hierarchy": "TOP(ResNet)"})
    assert line is not None
    assert (line.location, line.library) == ("train.py:46", "resnet.py(132): forward")
    only_library = parse_recorded_line({"Call stack": stack.rpartition(";")[0]})
    assert only_library is not None
    assert only_library.function == "forward"
    module = parse_recorded_line({"Call stack": "", "Module Hierarchy": "TOP(ResNet).layer1(Sequential)"})
    assert module is not None
    assert (module.kind, module.text) == ("module", "TOP(ResNet).layer1(Sequential)")
    for nothing in ({}, {"Call stack": ""}, {"Call stack": 3, "Module Hierarchy": None}):
        assert parse_recorded_line(nothing) is None


# -- gaps and evidence ---------------------------------------------------------------------------------------


def test_the_innermost_frame_that_covers_most_of_a_gap() -> None:
    calls = [python("data.py(5): tokenize", 100 + 10 * k, 8) for k in range(10)]
    inner = [python("json/decoder.py(3): decode", 101 + 10 * k, 6) for k in range(10)]
    shown = trace(
        python("train.py(90): main", 0, 300),
        python("train.py(12): load", 100, 120),
        *calls,
        *inner,
        python("train.py(30): rare", 204, 5),
    )
    lane = int(shown.lane[event_of(shown, "train.py(90): main")])
    busy, mixed, outside = (
        SourceLineFinder(shown).find_gap_line(lane, start * 1000, end * 1000)
        for start, end in ((100, 200), (100, 290), (230, 290))
    )
    assert [line and line.text for line in (busy, mixed, outside)] == [
        "data.py(5): tokenize",
        "train.py(12): load",
        "train.py(90): main",
    ]
    assert SourceLineFinder(shown).find_gap_line(lane, 400_000, 500_000) is None


def test_a_gap_without_frames_names_the_annotation() -> None:
    shown = trace(step(0, 0, 100), annotation("load", 10, 60), cpu("aten::to", 12, 1), annotation("short", 30, 5))
    line = SourceLineFinder(shown).find_gap_line(0, 15_000, 65_000)
    assert line is not None
    assert (line.kind, line.text) == ("annotation", "load")
    assert SourceLineFinder(shown).find_gap_line(0, 75_000, 99_000) is None


def describe_line(shown: Trace, events: np.ndarray[Any, Any]) -> str:
    """Return the text of the line that most of these events come from, "" for none."""
    line = SourceLineFinder(shown).find_common_line(events)
    return "" if line is None else line.text


def test_evidence_names_the_line_of_most_of_its_time() -> None:
    shown = trace(
        python("train.py(1): often", 0, 50),
        *(cpu("aten::add", 1 + 4 * k, 2) for k in range(10)),
        python("train.py(2): long", 60, 100),
        cpu("aten::mm", 61, 90),
        cpu("aten::none", 200, 10),
    )
    assert describe_line(shown, np.arange(len(shown), dtype=np.int32)) == "train.py(2): long"
    adds = np.array([event_of(shown, "aten::add", k) for k in range(10)])
    assert describe_line(shown, adds) == "train.py(1): often"
    assert describe_line(shown, np.array([event_of(shown, "aten::none")])) == ""
    assert describe_line(shown, np.array([event_of(shown, "aten::none"), event_of(shown, "aten::add")])) == ""
    assert describe_line(shown, np.empty(0, np.int32)) == ""


def test_args_are_not_read_again_where_they_have_no_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = trace(*(cpu("aten::add", 4 * k, 2) for k in range(50)))
    read: list[int] = []

    def read_entry(_: Trace, ordinal: int) -> dict[str, Any]:
        read.append(ordinal)
        return {"args": {}}

    monkeypatch.setattr(Trace, "read_entry", read_entry)
    assert describe_line(shown, np.arange(50)) == ""
    assert len(read) == 3


def test_the_library_and_the_forward_of_most_of_the_time_are_kept() -> None:
    def calls(library: str, start: int, duration: int) -> list[Any]:
        return [python(library, start, duration), cpu("aten::mm", start + 1, duration - 2)]

    shown = trace(
        python("train.py(1): step", 0, 100),
        *calls("transformers/a.py(1): f", 10, 50),
        *calls("transformers/b.py(2): g", 70, 10),
    )
    both = np.flatnonzero(shown.name == shown.names.index("aten::mm"))
    line = SourceLineFinder(shown).find_common_line(both)
    assert line is not None
    assert (line.text, line.library, line.from_forward) == ("train.py(1): step", "a.py(1): f", False)


# -- oracles -------------------------------------------------------------------------------------------------

REAL = {
    "gpt2_train_stack_memory": (SHARED_TRACES, ("make_traces.py",)),
    "train_gpt_stack_memory": (SAMPLES, ("/repo/profiler_runs/",)),
}
"""Traces with stacks, and what the files of the user's own code begin with, as read from their names."""


def expected_lines(entries: list[dict[str, Any]], mine: tuple[str, ...]) -> dict[int, str | None]:
    """Return the frame of each launch (by its index in the file), by comparing it with every frame of its thread.

    Forward ops are found by sequence number alone: the last to start with the number of the backward node.
    """
    complete = [(k, e) for k, e in enumerate(entries) if e.get("ph") == "X"]
    frames, ops, forwards = defaultdict(list), defaultdict(list), defaultdict(list)
    for _, entry in complete:
        if entry.get("cat") == "python_function" and entry["name"].startswith(mine):
            frames[entry["tid"]].append(entry)
        elif entry.get("cat") == "cpu_op":
            ops[entry["tid"]].append(entry)
            if entry["args"].get("Fwd thread id") == 0:
                forwards[entry["args"].get("Sequence number")].append(entry)
    work = ("kernel", "gpu_memcpy", "gpu_memset")
    correlations = {e["args"].get("correlation") for _, e in complete if e.get("cat") in work}
    (stepping,) = {
        e["tid"] for _, e in complete if e["name"].startswith("ProfilerStep#") and e["cat"] == "user_annotation"
    }

    def innermost(start: float, end: float, candidates: list[dict[str, Any]]) -> dict[str, Any] | None:
        found = [c for c in candidates if c["ts"] <= start and c["ts"] + c["dur"] >= end]
        return min(found, key=lambda c: float(c["dur"]), default=None)

    lines: dict[int, str | None] = {}
    for k, call in complete:
        is_call = call.get("cat") in ("cuda_runtime", "cuda_driver")
        if not is_call or call["args"].get("correlation") not in correlations:
            continue
        start, end = call["ts"], call["ts"] + call["dur"]
        frame = innermost(start, end, frames[call["tid"]])
        nodes = [op for op in ops[call["tid"]] if op["args"].get("Fwd thread id", 0) > 0]
        node = innermost(start, end, nodes)
        engine = innermost(start, end, [op for op in ops[call["tid"]] if op["name"].startswith("autograd::engine")])
        if node is not None and forwards[node["args"]["Sequence number"]]:
            forward = max(forwards[node["args"]["Sequence number"]], key=lambda op: float(op["ts"]))
            frame = innermost(forward["ts"], forward["ts"] + forward["dur"], frames[forward["tid"]])
        elif engine is not None and engine["tid"] != stepping:
            frame = innermost(engine["ts"], engine["ts"], frames[stepping])
        lines[k] = frame["name"] if frame else None
    return lines


@pytest.mark.long
@pytest.mark.parametrize("name", keep_some(reversed(REAL), 1))
def test_every_launch_of_a_real_trace(name: str) -> None:
    folder, mine = REAL[name]
    path: Path = folder / f"{name}.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("needs the shared traces")
    shown = load_trace(str(path), cache=False)
    expected = expected_lines(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"], mine)
    finder = SourceLineFinder(shown)
    row_of = {int(ordinal): row for row, ordinal in enumerate(shown.ordinal.tolist())}
    actual: dict[int, str | None] = {}
    for ordinal in expected:
        line = finder.find_line(row_of[ordinal], read_args=False)
        is_frame = line is not None and line.file is not None
        actual[ordinal] = f"{line.file}({line.line}): {line.function}" if line is not None and is_frame else None
    differing = {k: (expected[k], actual[k]) for k in expected if expected[k] != actual[k]}
    assert len(expected) > 300
    assert not differing
    work = np.flatnonzero(shown.links.launch_of >= 0)
    for row in work[::7].tolist():
        assert finder.find_line(row) == finder.find_line(int(shown.links.launch_of[row]))


@pytest.mark.long  # each push: the same kind of stack in args, above
def test_a_trace_of_torch_1_9_has_its_stacks_in_args() -> None:
    path = SHARED_TRACES / "public/IBM+kineto-spyre/worker0.1623143089861.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("needs the shared traces")
    shown = load_trace(str(path), cache=False)
    line = line_of(shown, "aten::conv2d")
    assert line is not None
    assert line.file == "resnet50_profiler_api.py"
    assert line.line in range(40, 55)


@pytest.mark.parametrize("name", keep_some(reversed(REAL), 1))
def test_gaps_of_a_real_trace(name: str) -> None:
    """Compare with the exact share of each window that the frames of each name cover."""
    folder, mine = REAL[name]
    path: Path = folder / f"{name}.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("needs the shared traces")
    shown = load_trace(str(path), cache=False)
    finder = SourceLineFinder(shown)
    step_event = shown.steps[0].event
    lane = shown.lanes[int(shown.lane[step_event])]
    rows = [
        row
        for row in range(lane.first, lane.last)
        if shown.names[shown.name[row]].startswith(mine) and shown.kind[row] == Kind.PYTHON
    ]
    starts = shown.start[rows]
    ends = starts + shown.duration[rows]
    names = [shown.names[shown.name[row]] for row in rows]
    found = 0
    for number in range(60):
        length = 200_000 * (1 + number % 5)
        begin = shown.steps[0].start + number * 350_000
        overlap = np.maximum(np.minimum(ends, begin + length) - np.maximum(starts, begin), 0)
        shares: dict[str, float] = defaultdict(float)
        for frame, ns in zip(names, overlap.tolist(), strict=True):
            shares[frame] += ns / length
        line = finder.find_gap_line(int(shown.lane[step_event]), begin, begin + length)
        if line is None or line.file is None or not f"{line.file}".startswith(mine):
            assert max(shares.values()) < 0.6
            continue
        found += 1
        chosen = f"{line.file}({line.line}): {line.function}"
        assert shares[chosen] > 0.4
        inside = [frame for frame, share in shares.items() if share > 0.6 and frame != chosen]
        assert all(shares[frame] >= shares[chosen] - 0.05 for frame in inside)  # what covers more encloses it
    assert found > 30


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
    line = SourceLineFinder(trace(*STARVED)).find_line(event_of(trace(*STARVED), "aten::mm"))
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
    line = SourceLineFinder(trace(*STARVED)).find_gap_line(0, 910_000, 990_000)
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
    known = SourceLineFinder(shown).find_line(event_of(shown, "aten::mm"))
    assert known is not None
    assert known.location == "train.py:10"
    unknown = SourceLineFinder(shown).find_line(event_of(shown, "aten::add"))
    assert unknown is not None
    assert unknown.text == f"train.py: main ({UNKNOWN})"


def test_a_recorded_call_in_a_cut_trace_has_its_line() -> None:
    shown = trace(frame("scheduler.py(2919): run_batch", 0, 100, 1_150_346, 1_150_227), cpu("aten::mm", 10, 50))
    assert not open_names(shown)
    line = SourceLineFinder(shown).find_line(event_of(shown, "aten::mm"))
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
    line = SourceLineFinder(shown).find_line(event_of(shown, "aten::mm"))
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
