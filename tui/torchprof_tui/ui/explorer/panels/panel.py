"""What a panel of the explorer is: a text with a name, what it requests after a move, and what keys do in it.

A new panel is a file with a subclass of `Panel`, and one line in `panel_controller`. Events have the same short name,
share of the step and captured op on all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from rich.cells import cell_len

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Event, Trace
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.name_display import clean, shorten, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Lines, TextPanel, wrap_text

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.source_line import SourceLine
    from torchprof_tui.analysis.graphs.captured_ops import CapturedChain
    from torchprof_tui.analysis.patterns.engine.pattern import Finding
    from torchprof_tui.trace.model.ranks import Rank
    from torchprof_tui.ui.common.debounced_worker import DebouncedWorker
    from torchprof_tui.ui.explorer.background_queries import BackgroundQueries
    from torchprof_tui.ui.lanes.timeline import Timeline
    from torchprof_tui.ui.lanes.view_state import ViewState


RECORD_STACKS_HINT = "r: record again with stacks (--with-stack)"
NO_SOURCE_PANEL = "L opens the source line of a finding (c) or of an event's chain (l): open one of them"

SourceTarget: TypeAlias = "tuple[SourceLine | None, Rank, str]"
"""The line of the program that a panel names, None where it cannot be opened; its rank; why it cannot be opened."""


@record(slots=False)
class PanelContext:
    """What the panels share.

    `show_panel` makes the panel of a name the active one, `leave_panel` the details instead of it; `is_shown`: whether
    the panel of a name is on screen.
    """

    view_state: ViewState
    timeline: Timeline
    queries: BackgroundQueries
    worker: DebouncedWorker
    show_panel: Callable[[str], None]
    leave_panel: Callable[[str], None]
    is_shown: Callable[[str], bool]


class Panel(TextPanel):
    """A panel of the explorer. Its handlers of results (`on_chain_read`) may return a message for the status line."""

    NAME: ClassVar[str]
    """Its id, and its title in the dock."""

    context: PanelContext
    """Set once by the controller, before the first update."""

    def __init__(self) -> None:
        super().__init__(id=self.NAME)

    @property
    def has_keys(self) -> bool:
        """Whether the arrow and page keys act on this panel; else on the lanes."""
        return False

    @property
    def shows_chain(self) -> bool:
        """Whether the selection's chain is highlighted on the lanes while this panel is the active one."""
        return True

    @property
    def finding(self) -> Finding | None:
        """The finding whose evidence is highlighted on the lanes instead of the chain."""
        return None

    def list_next_keys(self) -> list[tuple[str, str]]:
        """List (key, label) of the keys that lead on from what the panel shows, most useful first. Cheap."""
        return []

    def update(self) -> None:
        """Show the state after a move. Cheap: data that takes longer than a frame is requested and arrives later."""

    def move(self, distance: int) -> str:
        """Handle ↑ ↓, where the panel has the keys. Returns a message."""
        raise NotImplementedError

    def enter(self) -> str | None:
        """Handle enter. Returns a message, or None where the selection is to be fitted."""
        return None

    def next_evidence(self, distance: int) -> str | None:
        """Handle n N. Returns a message, or None where the search should handle the key."""
        return None

    def follow(self) -> str | None:
        """Handle ] where the selected event has no link. Returns a message, or None where the panel has none either."""
        return None

    @property
    def is_on_line(self) -> bool:
        """Whether the cursor is on a line of the program, so that enter opens its source."""
        return False

    def find_source_line(self) -> SourceTarget:
        """Handle L: find the line of the program that the panel names."""
        state = self.context.view_state
        return None, state.trace.rank_of_event(max(state.selected, 0)), NO_SOURCE_PANEL


FIRST_KEYS = [("→", "takes an event"), ("/", "finds one"), ("t", "lists all")]
"""The next keys of a panel about the selected event while there is none."""


def check_line(line: SourceLine | None, rank: Rank, owner: str) -> SourceTarget:
    """Check whether a line can be opened; `owner`: what it is the line of."""
    if line is None:
        return None, rank, f"{owner}: no source line known; {RECORD_STACKS_HINT}"
    if line.file is None:
        return None, rank, f"the file of this {line.kind} is unknown; {RECORD_STACKS_HINT}"
    return line, rank, ""


def shorten_event_name(event: Event) -> str:
    """Return the cleaned name as it stands on the lanes: decoded for a kernel, else its distinctive part."""
    return shorten_name_of_kind(event.name, event.kind)


def shorten_name_of_kind(name: str, kind: Kind) -> str:
    """Return the cleaned short name of an event of this kind."""
    if kind in GPU_WORK:
        decoded = decode_kernel_name(name)
        if decoded.known and decoded.display:
            return clean(decoded.display)
    return shorten(clean(name))


def describe_share(trace: Trace, event: Event) -> str:
    """Describe the share of the step that an event starts in; of the trace where it starts in none."""
    for step in trace.rank_of_event(event.index).steps:
        if step.start <= event.start < step.start + step.duration and step.event != event.index:
            if event.duration > step.duration:  # such as a collective that waits until the next one
                return f"longer than step #{step.number}, {format_duration(step.duration)}"
            return f"{format_share(event.duration / step.duration)} of step #{step.number}"
    start, end = trace.span
    return f"{format_share(event.duration / (end - start))} of the trace" if end > start else ""


def format_title(trace: Trace, event: Event, palette: Palette, width: int) -> Lines:
    """Format the short name, the duration and its share on one line; the full name stands elsewhere."""
    time = f"  {format_duration(event.duration)} · {describe_share(trace, event)}"
    name = truncate(shorten_event_name(event), max(width - cell_len(time), 12))
    return [[(name, palette.strong), (time, palette.text)]]


MAX_HOPS = 8  # innermost hops of the capture that are listed; the others are counted

KIND_OF_ROLE = {"python": Kind.PYTHON, "op": Kind.OP, "launch": Kind.RUNTIME, "step": Kind.STEP}


def format_captured(captured: CapturedChain | str | None, palette: Palette, width: int) -> Lines:
    """Format the op, its shapes and its innermost callers in the capture, or why they are unknown."""
    if captured is None:
        return []
    if isinstance(captured, str):
        return wrap_text(f"captured op unknown: {captured}", width, palette.muted)
    lines = wrap_text(f"from the capture: {describe_captured(captured)}", width, palette.strong)
    hidden = len(captured.hops) - MAX_HOPS
    if hidden > 0:
        lines.append([(f"  {hidden} outer {'call' if hidden == 1 else 'calls'}", palette.muted)])
    for depth, hop in enumerate(captured.hops[-MAX_HOPS:]):
        kind = KIND_OF_ROLE.get(hop.role.value, Kind.ANNOTATION)
        name = truncate(shorten(clean(hop.name)), max(width - depth - 2, 8))
        lines.append([("▌ ", palette.ink(kind)), (" " * depth + name, palette.text)])
    if captured.doubt:
        lines += wrap_text(captured.doubt, width, palette.strong)
    return lines


def describe_captured(captured: CapturedChain) -> str:
    """Describe a captured op in one line: name, input shapes, file."""
    shapes = f" {captured.input_dims}" if captured.input_dims else ""
    file = "" if captured.op.trace is None else f" · {os.path.basename(captured.op.trace.label)}"
    annotation = captured.op.annotation if captured.op.trace is not None else ""
    note = f" · {clean(annotation)}" if annotation else ""
    return f"{clean(captured.op.op_name)}{clean(shapes)}{note}{clean(file)}"
