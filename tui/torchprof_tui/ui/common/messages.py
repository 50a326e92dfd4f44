"""What widgets tell their screen. Dataclasses, nothing else: data goes down as attributes, messages come up.

Times are ns from the trace's first event, fractional where a pointer stands between two of them. They are called
`at`, because a textual message has a `time` of its own: when it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:  # what finds these out is imported by the threads that ask it
    from torchprof_tui.analysis.dispatch.chain import Chain
    from torchprof_tui.analysis.dispatch.event_context import EventContext
    from torchprof_tui.analysis.doctor.remark import Diagnosis
    from torchprof_tui.analysis.kernel.kernel_summary import KernelSummary
    from torchprof_tui.analysis.patterns.engine.latest_only_checker import CheckResult
    from torchprof_tui.analysis.time.range_statistics import RangeStatistics


@dataclass
class EventPicked(Message):
    """Somebody clicked on a lane."""

    event: int  # -1: no event there
    lane: int  # -1: not on a lane


@dataclass
class ZoomAsked(Message):
    """The wheel turned over the lanes or the ruler."""

    at: float  # stays where it is on the screen
    steps: int  # positive zooms in


@dataclass
class PanAsked(Message):
    """A horizontal wheel, or shift and the wheel."""

    cells: int


@dataclass
class ScrollAsked(Message):
    """The wheel over the gutter, or a key."""

    lines: int


@dataclass
class RangeDragged(Message):
    """The mouse marks a range; `done` when its button is let go."""

    start: float
    end: float
    done: bool

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, RangeDragged) and not message.done


@dataclass
class PointerMoved(Message):
    """The mouse is over the lanes (at a time) or has left them (None)."""

    at: float | None

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, PointerMoved)


@dataclass
class LanesResized(Message):
    """The lanes have another size, in cells."""

    width: int
    height: int

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, LanesResized)


@dataclass
class JumpAsked(Message):
    """A click on the overview: put this time in the middle."""

    at: float

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, JumpAsked)


@dataclass
class LanesFolded(Message):
    """A click on a lane's label, or on the heading over several."""

    lanes: tuple[int, ...]


@dataclass
class PanelPicked(Message):
    """A click on a panel's tab."""

    panel: str


@dataclass
class PromptChanged(Message):
    """Something was typed into the prompt."""

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
    """What takes a moment to find out about an event, its args among it, has been found out."""

    event: int
    context: EventContext


@dataclass
class ChainRead(Message):
    """The dispatch chain through an event, and what is known of the GPU work at its end."""

    chain: Chain
    kernel: KernelSummary | None


@dataclass
class TraceChecked(Message):
    """The cheatsheet of the whole trace (of several ranks that at `place`); what its lanes say beside names is known
    as well."""

    checked: CheckResult
    rank_index: int = 0


@dataclass
class ScopeChecked(Message):
    """The cheatsheet of what one looks at; of several ranks that at `place`."""

    checked: CheckResult
    rank_index: int = 0


@dataclass
class RangeRead(Message):
    """The statistics of a marked range."""

    range: RangeStatistics


@dataclass
class DiagnosisReady(Message):
    """What the trace doctor says."""

    diagnosis: Diagnosis


@dataclass
class SliceWritten(Message):
    """A slice of the trace was written, or was not: the line that says so."""

    line: str
    failed: bool
