"""Messages that widgets post to their screen, as dataclasses. (Screens set attributes of widgets in return.)

Times are ns from the trace's first event, fractional if a pointer is between two ns. They are called `at`, because
textual's Message already has an attribute `time`: when it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:  # deferred: only the worker threads import these modules
    from torchprof_tui.analysis.dispatch.chain import Chain
    from torchprof_tui.analysis.dispatch.event_context import EventContext
    from torchprof_tui.analysis.dispatch.source_line import SourceLine
    from torchprof_tui.analysis.doctor.remark import Diagnosis
    from torchprof_tui.analysis.graphs.captured_chain import CapturedChain
    from torchprof_tui.analysis.kernel.kernel_summary import KernelSummary
    from torchprof_tui.analysis.patterns.engine.latest_only_checker import CheckResult
    from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
    from torchprof_tui.analysis.time.range_statistics import RangeStatistics
    from torchprof_tui.trace.sources.program_file import ProgramFile
    from torchprof_tui.ui.explorer.path.path_scope import PathScope
    from torchprof_tui.ui.explorer.path.shown_forecast import ShownForecast
    from torchprof_tui.ui.explorer.path.shown_path import ShownPath


class LoadingCancelled(Message):
    """The rest of a trace, whose beginning is on screen, is not to be loaded."""


@dataclass
class EventPicked(Message):
    """A click on a lane, or on its label."""

    event: int  # -1: no event there
    lane: int  # -1: not on a lane
    fit: bool = False  # a double click


@dataclass
class SeamPicked(Message):
    """A click on a seam of folded repeats, at the time that has its place there."""

    at: int


@dataclass
class ZoomAsked(Message):
    """The wheel was turned with ctrl or alt."""

    at: float  # the time that keeps its column on the screen
    steps: int  # positive zooms in


@dataclass
class PanAsked(Message):
    """A horizontal wheel was turned, or the wheel with shift, or the lanes were dragged with it."""

    cells: int


@dataclass
class ScrollAsked(Message):
    """The wheel was turned."""

    lines: int


@dataclass
class RangeDragged(Message):
    """The mouse marks a range; `done` when the button is released."""

    start: float
    end: float
    done: bool

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, RangeDragged) and not message.done


@dataclass
class PointerMoved(Message):
    """The mouse moved over the lanes (to time `at`) or left them (None)."""

    at: float | None

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, PointerMoved)


@dataclass
class LanesResized(Message):
    """The lanes area was resized; the size is in cells."""

    width: int
    height: int

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, LanesResized)


@dataclass
class JumpAsked(Message):
    """A click on the overview, or a drag of its visible part: centre the viewport on this time.

    `is_continued`: the drag has posted this message before.
    """

    at: float
    is_continued: bool = False

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, JumpAsked) and message.is_continued


@dataclass
class ViewDragged(Message):
    """A range of the overview was dragged over: show it. `is_continued`: the drag has posted this message before."""

    start: float
    end: float
    is_continued: bool = False

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, ViewDragged) and message.is_continued


@dataclass
class LanesFolded(Message):
    """A click on a lane's label, or on the heading above several lanes."""

    lanes: tuple[int, ...]


@dataclass
class PanelPicked(Message):
    """A click on a panel's tab."""

    panel: str


@dataclass
class PromptChanged(Message):
    """The text in the prompt changed."""

    purpose: str
    text: str

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, PromptChanged)


@dataclass
class PromptSubmitted(Message):
    """Enter in the prompt."""

    purpose: str
    text: str


@dataclass
class PromptClosed(Message):
    """Escape in the prompt."""

    purpose: str


@dataclass
class EventContextRead(Message):
    """A worker has read what is slow to read about an event, such as its args."""

    event: int
    context: EventContext
    captured: CapturedChain | str | None = None  # see ChainRead


@dataclass
class ChainRead(Message):
    """A worker has read the dispatch chain through an event, the summary of the kernel at its end, and its line.

    `captured`: of a replayed kernel the chain in its capture, or the reason why there is none; None for all others.
    """

    chain: Chain
    kernel: KernelSummary | None
    line: SourceLine | None = None
    captured: CapturedChain | str | None = None


@dataclass
class ProgramFileRead(Message):
    """A worker has read a file of the program; None if it could not, for the reason in `error`, one line."""

    file: ProgramFile | None
    error: str = ""


@dataclass
class VerdictDecided(Message):
    """The verdict on the whole trace (of the rank at `rank_index`), before its patterns have been checked."""

    verdict: Verdict
    rank_index: int = 0


@dataclass
class TraceChecked(Message):
    """The cheatsheet of the whole trace (of the rank at `rank_index`) has been checked.

    What the labels of its lanes show besides names is known, too.
    """

    checked: CheckResult
    rank_index: int = 0


@dataclass
class ScopeChecked(Message):
    """The cheatsheet of the current scope (of the rank at `rank_index`) has been checked."""

    checked: CheckResult
    rank_index: int = 0


@dataclass
class RangeRead(Message):
    """The statistics of a marked range have been computed."""

    range: RangeStatistics


@dataclass
class PathRead(Message):
    """A worker has found the critical path of a scope; None where there is none, for the reason in `problem`."""

    scope: PathScope
    path: ShownPath | None
    problem: str = ""


@dataclass
class WhatIfRead(Message):
    """A worker has predicted a step with the scenarios of a text; None where it cannot be, for the reason in `problem`.

    `is_final`: the text was submitted, not only typed.
    """

    text: str
    forecast: ShownForecast | None
    problem: str = ""
    is_final: bool = False


@dataclass
class DiagnosisReady(Message):
    """The trace doctor has made its diagnosis."""

    diagnosis: Diagnosis


@dataclass
class SliceWritten(Message):
    """A slice of the trace was written, or failed to be: `line` reports which."""

    line: str
    failed: bool
