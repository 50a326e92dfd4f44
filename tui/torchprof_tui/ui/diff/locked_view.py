"""The visible time of both sides: one viewport in time since a reference of each side; the lines of its parts. Pure.

A time t of a side is in the column of its distance to that side's reference. Both sides have the same viewport in
distances and the same width, so equal distances are in the same column, whatever is panned or zoomed. Times are ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Step
from torchprof_tui.trace.query.viewport import Viewport

Pair = tuple[int, int]  # a value of A and one of B
ZOOM_FACTOR = 0.75  # share of the visible time that one key press keeps, as on the lanes

PAN_DIVISOR = 10


class Lock(Enum):
    """What both sides are aligned at."""

    STEPS = "steps"
    OPS = "ops"


@record
class LockedView:
    """`view`: visible distances from the references, ns. `references`: a time of A and of B. `spans`: of the traces.

    `step`: the index of the pair of compared steps whose starts are the references, or were last.
    """

    view: Viewport
    references: Pair
    spans: tuple[Pair, Pair]
    lock: Lock = Lock.STEPS
    step: int = 0

    @classmethod
    def at(cls, references: Pair, spans: tuple[Pair, Pair], length: int, width: int) -> LockedView:
        """Show `length` ns from the references on."""
        whole = Viewport.whole(_join_spans(spans, references), max(width, 1))
        return cls(whole.fit(0, max(length, 1)), references, spans)

    def viewport(self, side: int) -> Viewport:
        """Return the viewport of a side (0: A, 1: B) in its own times."""
        offset, view = self.references[side], self.view
        limits = view.limits[0] + offset, view.limits[1] + offset
        return replace(view, t0=view.t0 + offset, t1=view.t1 + offset, limits=limits)

    def column(self, side: int, time: int) -> int:
        """Return the column of a time of a side."""
        return self.view.cell(time - self.references[side])

    def resize(self, width: int) -> LockedView:
        return self if width == self.view.width or width < 1 else replace(self, view=self.view.resize(width))

    def zoom(self, steps: int, anchor: int | None = None) -> LockedView:
        """Zoom in by `steps` key presses (out where negative) around a distance, else the middle."""
        middle = (self.view.t0 + self.view.t1) // 2 if anchor is None else anchor
        return replace(self, view=self.view.zoom(middle, ZOOM_FACTOR**steps))

    def pan(self, tenths: int) -> LockedView:
        return self.pan_cells(tenths * max(1, self.view.width // PAN_DIVISOR))

    def pan_cells(self, cells: int) -> LockedView:
        return replace(self, view=self.view.pan_cells(cells))

    def to_end(self, later: bool) -> LockedView:
        return replace(self, view=self.view.centre(self.view.limits[later]))

    def show_all(self) -> LockedView:
        """Show all of both traces."""
        low, high = self.view.limits
        return replace(self, view=replace(self.view, t0=low, t1=high))

    def fit(self, ranges: Sequence[tuple[int, int, int]]) -> LockedView:
        """Show ranges (side, start, end) of the sides' own times."""
        distances = [time - self.references[side] for side, *times in ranges for time in times]
        return replace(self, view=self.view.fit(min(distances), max(distances))) if distances else self

    def reveal(self, ranges: Sequence[tuple[int, int, int]]) -> LockedView:
        """Pan as little as needed to show ranges (side, start, end); the first one where not all fit."""
        view = self
        for side, start, end in reversed(ranges):
            offset = view.references[side]
            view = replace(view, view=view.view.reveal(start - offset, end - offset))
        return view

    def lock_at(self, references: Pair, lock: Lock, step: int | None = None, keep: bool = True) -> LockedView:
        """Align at other references. `keep`: A stays where it is; else the distances on screen stay the same."""
        shift = self.references[0] - references[0] if keep else 0
        limits = Viewport.whole(_join_spans(self.spans, references), self.view.width).limits
        view = replace(self.view, t0=self.view.t0 + shift, t1=self.view.t1 + shift, limits=limits)
        return replace(self, view=view, references=references, lock=lock, step=self.step if step is None else step)


def _join_spans(spans: tuple[Pair, Pair], references: Pair) -> Pair:
    """Return the distances that the spans of both traces cover together."""
    starts = [span[0] - reference for span, reference in zip(spans, references, strict=True)]
    ends = [span[1] - reference for span, reference in zip(spans, references, strict=True)]
    return min(starts), max(*ends, min(starts) + 1)


def list_step_starts(steps_a: Sequence[Step], steps_b: Sequence[Step], windows: tuple[Pair, Pair]) -> list[Pair]:
    """List the starts of the pairs of compared steps, by position; without steps on a side the windows' starts."""
    pairs = [(a.start, b.start) for a, b in zip(steps_a, steps_b, strict=False)]
    return pairs or [(steps_a[0].start if steps_a else windows[0][0], steps_b[0].start if steps_b else windows[1][0])]


MIN_WIDTH, MIN_HEIGHT = 40, 14
DOCK_SHARE = 0.36
MIN_DOCK, MAX_DOCK = 6, 24
LARGE_DOCK_SHARE = 0.6
MIN_LANES = 2
BESIDE_WIDTH, THREE_WIDTH = 140, 230  # widths from which two and three panels stand side by side

VERDICT_LINES = 3

_FIXED_LINES = 1 + VERDICT_LINES + 2 + 1 + 1  # title, verdict, ruler with the steps of A, steps of B, status


@record
class DiffLayout:
    """`dock`: lines of the panels; `panels`: how many stand side by side; `lanes`: lines for lanes of A and of B."""

    dock: int
    panels: int
    lanes: tuple[int, int]


def compute_layout(width: int, height: int, is_enlarged: bool, needed: tuple[int, int]) -> DiffLayout:
    """Compute the layout of a screen. `needed`: lines that show all lanes of A and of B; the panels get the others."""
    room = max(height - _FIXED_LINES, 6)
    dock = round(room * (LARGE_DOCK_SHARE if is_enlarged else DOCK_SHARE))
    dock = max(min(dock, room - 4), min(MIN_DOCK, room - 4), 2)
    if not is_enlarged:
        dock = min(dock, MAX_DOCK)
    lanes = room - dock
    all_a, all_b = (max(lines, MIN_LANES) for lines in needed)
    first = min(max(lanes - lanes // 2, lanes - all_b), all_a)
    second = min(lanes - first, all_b)
    panels = 3 if width >= THREE_WIDTH else 2 if width >= BESIDE_WIDTH else 1
    return DiffLayout(room - first - second, panels, (first, second))


def explain_small_screen(width: int, height: int) -> str:
    """Return why a screen is too small, "" if it is not."""
    if width >= MIN_WIDTH and height >= MIN_HEIGHT:
        return ""
    return f"the comparison needs {MIN_WIDTH}x{MIN_HEIGHT} cells; this terminal has {width}x{height}"
