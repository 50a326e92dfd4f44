"""Labels in GPU gaps: the gaps that are wide enough at any zoom, compared with a scan of all gaps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.trace_builder import kernel, runtime, trace
from torchprof_tui.analysis.patterns.engine.gpu_gaps import Gaps
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.lanes.event_labels import MIN_LABEL_CELLS, GapLabels

SHOWN = trace(
    runtime("cudaLaunchKernel", 0, 1, corr=1),
    runtime("cudaLaunchKernel", 1, 1, corr=2),
    kernel("k", 2, 500, corr=1, stream=7, device=0),
    kernel("k", 3, 500, corr=2, stream=8, device=1),
)


def build_gaps(start: I64, end: I64, device: I64) -> Gaps:
    """Build gaps whose time is that of launch calls."""
    time = np.zeros((len(start), len(IdleCause)), np.int64)
    time[:, IdleCause.LAUNCH] = end - start
    cause, flags = np.full(len(start), IdleCause.LAUNCH, np.uint8), np.zeros(len(start), np.bool_)
    return Gaps(start, end, device, np.full(len(start), -1), start, end, cause, cause, device, flags, time)


@st.composite
def some_gaps(draw: st.DrawFn) -> Gaps:
    """Draw disjoint gaps, ordered by device, then time."""
    rows: list[tuple[int, int, int]] = []
    for device in range(draw(st.integers(0, 3))):
        edges = sorted(draw(st.sets(st.integers(0, 5000), max_size=60)))
        rows += [(start, end, device) for start, end in zip(edges[::2], edges[1::2], strict=False)]
    start, end, device_of_gap = (
        np.array(column, np.int64) for column in (zip(*rows, strict=True) if rows else ((), (), ()))
    )
    return build_gaps(start, end, device_of_gap)


@given(some_gaps(), st.integers(-100, 5000), st.integers(1, 6000), st.integers(1, 200))
def test_those_on_the_screen_that_are_wide_enough(gaps: Gaps, begin: int, span: int, width: int) -> None:
    view = Viewport(begin, begin + max(span, width), width, (-10_000, 20_000))
    min_length = MIN_LABEL_CELLS * view.ns_per_cell
    expected = [
        gap
        for gap, (start, end) in enumerate(zip(gaps.start.tolist(), gaps.end.tolist(), strict=True))
        if end - start >= min_length and start < view.t1 and end > view.t0
    ]
    assert GapLabels(SHOWN, gaps)._find_wide_gaps(view) == expected


def test_a_label_lies_within_its_gap_on_the_first_stream_of_its_device() -> None:
    gaps = build_gaps(np.array([1000, 2000]), np.array([1900, 2050]), np.array([0, 0]))
    found = GapLabels(SHOWN, gaps).draw_labels(Viewport(0, 4000, 200, (0, 4000)))
    (lane,) = found
    assert SHOWN.lanes[lane].device == 0
    columns = [column for column, _ in found[lane]]
    assert "".join(character for _, character in found[lane]).strip("‹›") == IdleCause.LAUNCH.label
    assert columns[0] > 1000 / 20
    assert columns[-1] < 1900 / 20 - 1


def label_of(width: int, line: str) -> str:
    """Draw one gap of 800 ns on 1000 ns and `width` columns; return its label."""
    gaps = build_gaps(np.array([100]), np.array([900]), np.array([0]))
    found = GapLabels(SHOWN, gaps, lines={(0, 100): line}).draw_labels(Viewport(0, 1000, width, (0, 1000)))
    ((_, cells),) = found.items()
    columns = [column for column, _ in cells]
    assert columns == list(range(columns[0], columns[0] + len(columns)))
    assert columns[0] > 0.1 * width - 1
    assert columns[-1] < 0.9 * width
    return "".join(character for _, character in cells)


def test_a_wide_gap_names_its_line_as_well() -> None:
    line = "train.py(42): forward"
    assert label_of(100, line) == "‹launch · train.py(42): forward›"
    assert label_of(32, line) == "‹launch · train.py(42)…›"
    assert label_of(26, line) == "‹launch›"
    assert label_of(10, line) == "launch"
    assert label_of(20, "a.py(1)") == "‹launch›"
    assert label_of(24, "a.py(1)") == "‹launch · a.py(1)›"


def test_a_line_is_escaped_and_takes_one_cell_a_character() -> None:
    assert label_of(100, "a\x1b[31m.py(1): f") == "‹launch · a·[31m.py(1): f›"
    assert label_of(100, "模型.py(1): f") == "‹launch›"


def test_a_line_belongs_to_its_own_gap() -> None:
    gaps = build_gaps(np.array([100, 1100]), np.array([900, 1900]), np.array([0, 0]))
    labels = GapLabels(SHOWN, gaps, lines={(0, 1100): "a.py(1)", (1, 100): "b.py(1)"})
    ((_, cells),) = labels.draw_labels(Viewport(0, 2000, 200, (0, 2000))).items()
    assert "".join(character for _, character in cells) == "‹launch›‹launch · a.py(1)›"


def test_no_gaps_no_labels() -> None:
    nothing = np.zeros(0, np.int64)
    gaps = build_gaps(nothing, nothing, nothing)
    assert GapLabels(SHOWN, gaps).draw_labels(Viewport(0, 100, 80, (0, 100))) == {}
