"""The chain panel: each hop of the dispatch chain from the step down to the GPU work, its times, and the launch delays.

↑ ↓ move the selection along the chain; the lanes follow. One entry is the line of the program; enter opens its source.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rich.cells import cell_len

from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.labels import describe_kind
from torchprof_tui.ui.common.name_display import clean, shorten, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Lines, TextRun, join_columns, wrap_text
from torchprof_tui.ui.common.step_table import KERNEL_TITLE, build_step_table
from torchprof_tui.ui.explorer.panels.kernel_panel import format_kernel, format_kernel_brief
from torchprof_tui.ui.explorer.panels.panel import (
    FIRST_KEYS,
    Panel,
    SourceTarget,
    check_line,
    format_captured,
    format_title,
    shorten_event_name,
    shorten_name_of_kind,
)

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.chain import Chain
    from torchprof_tui.analysis.dispatch.source_line import SourceLine
    from torchprof_tui.analysis.dispatch.step_rows import StepRows
    from torchprof_tui.analysis.graphs.captured_ops import CapturedChain
    from torchprof_tui.analysis.kernel.kernel_summary import KernelSummary
    from torchprof_tui.ui.explorer.event_reading import ChainRead

TWO_COLUMNS_MIN_WIDTH = 150
"""Width from which the kernel's footprint is shown beside the chain instead of in a line below it."""

MAX_INDENT = 16
MAX_WORK_LISTED = 200  # maximum number of listed pieces of GPU work beneath an op, longest first; the rest is counted
MAX_STEPS_LISTED = 100  # maximum number of listed steps, those around the selected event's
LINE_ENTRY = -2  # stands for the line of the program among the events that the cursor visits
NUMBER_CELLS = 33  # width of the three numbers of a hop: offset, total time, self time

MAX_FIRST_PAGES = 2  # pages from its beginning on which the cursor of a new chain is left where it is


class ChainPanel(Panel):
    """Show the chain of the selected event. It is kept as long as the selection is one of its events."""

    NAME = "chain"

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace
        self._selected = -1
        self.chain: Chain | None = None
        self._kernel: KernelSummary | None = None
        self._end_chain: Chain | None = None
        self._end_kernel: KernelSummary | None = None
        self._step_rows: StepRows | None = None  # of the selected event
        self._line: SourceLine | None = None
        self._captured: CapturedChain | str | None = None  # of the GPU work at the end
        self._on_line = False  # whether the cursor is on the line of the program, instead of the selected event
        self._revealed = -1  # the cursor that was scrolled to last, -1 for a new chain
        self._path_note = ""  # what the critical path says of the selected event
        self._chain_events: list[int] = []
        self._line_by_event: dict[int, int] = {}

    @property
    def has_keys(self) -> bool:
        return self.chain is not None

    @property
    def is_on_line(self) -> bool:
        return self._on_line and self._line is not None

    def list_next_keys(self) -> list[tuple[str, str]]:
        if self._selected < 0:
            return FIRST_KEYS
        ends = self._end_kernel is not None
        line = [("L", "source")] if self._line is not None and self._line.file is not None else []
        return [*([("k", "kernel")] if ends else [("→", "next event")]), *line, ("enter", "fit"), ("t", "its row")]

    def update(self) -> None:
        """Show the selected event, and request its chain."""
        event = self.context.view_state.selected
        if event == self._selected:
            return
        if event >= 0:
            self.context.worker.submit("chain", partial(self.context.queries.compute_chain, event))
            compare = partial(self.context.queries.compare_steps, event)
            self.context.worker.answer("chain steps", compare, partial(self._show_steps, event))
        self._selected = event
        self._step_rows = None
        self._on_line = False
        if event not in self._chain_events:
            self.chain, self._kernel, self._line, self._chain_events = None, None, None, []
            self._captured = None
        self._end_chain, self._end_kernel = self.chain, self._kernel
        self.refresh_content(top=False)

    def on_chain_read(self, message: ChainRead) -> None:
        chain, line = message.chain, message.line
        if chain.event != self._selected:
            return
        if self._selected not in self._chain_events:
            self.chain, self._kernel = self._end_chain, self._end_kernel = chain, message.kernel
            self._captured = message.captured
            self._line, self._on_line = line, False
            hops = [hop.event for hop in chain.hops]
            other_work = [work.event for work in chain.work[:MAX_WORK_LISTED] if work.event not in hops]
            self._revealed = -1
            self._chain_events = hops + ([LINE_ENTRY] if line is not None else []) + other_work
            self.refresh_content(top=True)
        elif int(self._trace.kind[chain.event]) in GPU_WORK:  # other work of the same chain
            self._end_chain, self._end_kernel, self._captured = chain, message.kernel, message.captured
            if self._line is not None and line is not None:
                self._line = line
            self.refresh_content(top=False)

    def _show_steps(self, event: int, found: StepRows) -> None:
        if event == self._selected:
            self._step_rows = found
            self.refresh_content(top=False)

    def show_path_note(self, note: str) -> None:
        """Set what the critical path says of the selected event, "" while no path is shown."""
        if note != self._path_note:
            self._path_note = note
            self.refresh_content(top=False)

    def move(self, distance: int) -> str:
        current = LINE_ENTRY if self._on_line else self._selected
        index = self._chain_events.index(current) + distance if current in self._chain_events else -1
        if not 0 <= index < len(self._chain_events):
            return f"the {'end' if distance > 0 else 'beginning'} of the chain; tab leaves it"
        entry = self._chain_events[index]
        self._on_line = entry == LINE_ENTRY
        self.refresh_content(top=False)
        if self._on_line:
            location = None if self._line is None else self._line.location
            return "its file is unknown" if location is None else f"enter opens {clean(location)}"
        self.context.view_state.select(entry)
        return ""

    def find_source_line(self) -> SourceTarget:
        state = self.context.view_state
        if self.chain is None:
            return super().find_source_line()
        return check_line(self._line, state.trace.rank_of_event(max(state.selected, 0)), "this event")

    def prepare(self, size: object) -> None:
        super().prepare(self.size)
        entry = LINE_ENTRY if self._on_line else self._selected
        line = self._line_by_event.get(entry)
        if entry == self._revealed or line is None or not self.size.height:
            return  # the panel was scrolled away from it
        is_new, self._revealed = self._revealed == -1, entry
        if is_new and line < MAX_FIRST_PAGES * self.size.height:
            return  # a new chain is shown from its beginning, unless Python frames fill it
        if not self._top <= line < self._top + self.size.height:
            self._top = max(0, min(line - self.size.height // 2, len(self._content) - self.size.height))

    def content(self, width: int) -> Lines:
        palette = self.palette
        chain = self.chain
        self._line_by_event = {}
        if chain is None:
            if self._selected >= 0:
                return [[("…", palette.muted)]]
            hint = (
                "No event is selected: → takes the next one, / finds one by name. Of an op the chain shows what it "
                "launched, of a kernel what launched it."
            )
            return wrap_text(hint, width, palette.muted)
        end = self._end_kernel
        two_columns = width >= TWO_COLUMNS_MIN_WIDTH and end is not None
        bound = "" if end is None else self.context.queries.describe_limit(end.event)
        left = width * 3 // 5 - 2 if two_columns else width
        lines = self._format_delays(left)
        if self._path_note:
            lines += wrap_text(f"selected: {self._path_note}", left, palette.strong)
        lines += self._format_hops(chain, left, len(lines) + 1)
        lines += format_captured(self._captured, palette, left)
        if end is not None and not two_columns:
            lines += format_kernel_brief(end, palette, width, bound)
        lines += self._format_steps(left)
        lines += self._format_work(chain, left, len(lines))
        for label, event in (("this is the backward of", chain.forward_op), ("its backward is", chain.backward_node)):
            if event >= 0:
                lines += wrap_text(f"{label} {clean(self._trace.event(event).name)}", left, palette.text)
        if two_columns and end is not None:
            right = width - left - 2
            title = format_title(self._trace, self._trace.event(end.event), palette, right)
            is_collective = int(self._trace.kind[end.event]) == Kind.COLLECTIVE
            kernel = format_kernel(end, palette, right, is_collective=is_collective, bound=bound)
            return join_columns(lines, title + kernel, left + 2, palette.text)
        return lines

    def _format_delays(self, width: int) -> Lines:
        """Format the launch latency and queue delay of the GPU work, or why they are unknown."""
        chain = self._end_chain
        if chain is None or (not chain.note and (chain.launch_latency is None or chain.queue_delay is None)):
            return []
        text = chain.note
        if not text:
            delay = f"queue delay {format_duration(chain.queue_delay or 0)}"
            if chain.queue_delay is not None and chain.queue_delay < 0:
                delay = "it began before the call returned"
            elif chain.held_up:
                blocker = shorten(clean(self._trace.event(chain.held_up_by).name))
                delay += f" · the stream was busy for {format_duration(chain.held_up)} of it, last with {blocker}"
            text = f"launch latency {format_duration(chain.launch_latency or 0)} · {delay}"
        return wrap_text(text, width, self.palette.strong)

    def _format_hops(self, chain: Chain, width: int, first: int) -> Lines:
        """Format a row for each hop, the first one on line `first`, below their heading; then the line."""
        palette = self.palette
        heading = f"{' ' * max(width - NUMBER_CELLS, 0)}{'after':>10} {'total':>11}{'self':>11}"
        lines: Lines = [[(heading, palette.muted)]]
        name_width = max(width - NUMBER_CELLS - 2, 8)
        for depth, hop in enumerate(chain.hops):
            self._line_by_event[hop.event] = first + depth
            kind = int(self._trace.kind[hop.event])
            selected = hop.event == self._selected and not self._on_line
            indent = " " * min(depth, MAX_INDENT) + ("⇢ " if kind in GPU_WORK else "")
            name = clean(hop.name)
            if kind == Kind.PYTHON or cell_len(name) > name_width - len(indent):  # frames are named as on the lanes
                name = shorten_name_of_kind(hop.name, Kind(kind))
            name = truncate(name, name_width - len(indent))
            padded = indent + name + " " * max(name_width - len(indent) - cell_len(name), 0)
            offset = f"+{format_duration(hop.offset)}" if depth else ""
            self_time = "" if kind in GPU_WORK else format_duration(hop.self_duration)
            row: list[TextRun] = [
                ("▶" if selected else "▌", palette.ink(kind)),
                (" " + padded, palette.active if selected else palette.text),
                (f"{offset:>10} {format_duration(hop.duration):>11}{self_time:>11}", palette.text),
            ]
            lines.append(row)
        if self._line is not None:
            self._line_by_event[LINE_ENTRY] = first + len(chain.hops)
            lines.append(self._format_line(self._line, width))
        return lines

    def _format_line(self, line: SourceLine, width: int) -> list[TextRun]:
        """Format the line of the program, or the annotation or module that is known instead."""
        palette = self.palette
        captured = self._captured
        is_captured = captured is not None and not isinstance(captured, str) and line is captured.line
        label = f"{describe_kind(line)}{' in the capture' if is_captured else ''}: "
        hint = " · enter opens it" if self._on_line and line.file is not None else ""
        text = truncate(shorten(clean(line.text)), max(width - 2 - len(label) - len(hint), 8))
        rest = f" through {clean(line.library)}" if line.library else ""
        room = width - 2 - len(label) - cell_len(text) - len(hint)
        return [
            ("▶" if self._on_line else "▌", palette.ink(Kind.PYTHON)),
            (f" {label}", palette.muted),
            (text, palette.active if self._on_line else palette.strong),
            (truncate(rest, room) if room > len(" through …") else "", palette.muted),
            (hint, palette.muted),
        ]

    def _format_steps(self, width: int) -> Lines:
        """Format one row per step for the selected event, below what is typical; [] for fewer than two steps."""
        found, palette = self._step_rows, self.palette
        if found is None or len(found.rows) < 2:
            return []
        table = build_step_table(found)
        columns = table.columns
        kept = list(range(len(columns)))
        cells = [max(cell_len(row[k]) for row in (*table.rows, [title for title, _ in columns])) for k in kept]
        while sum(cells[k] + 2 for k in kept) > width and len(kept) > 2:  # the last columns say least, but the kernel's
            kept.remove(next(k for k in reversed(kept) if columns[k][0] != KERNEL_TITLE))
        lines: Lines = [[(truncate(f"{len(found.rows):,} steps", width), palette.strong)]]
        for note in table.notes:
            lines += wrap_text(note, width, palette.text)

        def format_cells(row: list[str]) -> str:
            return "  ".join(
                " " * (cells[k] - cell_len(row[k])) + row[k]
                if columns[k][1]
                else row[k] + " " * (cells[k] - cell_len(row[k]))
                for k in kept
            )

        lines.append([(truncate(f"  {format_cells([title for title, _ in columns])}", width), palette.muted)])
        first = len(table.rows) - len(found.rows)
        shown_from = first + max(0, min(found.selected - MAX_STEPS_LISTED // 2, len(found.rows) - MAX_STEPS_LISTED))
        for index, row in enumerate(table.rows):
            if first <= index < shown_from or index >= shown_from + MAX_STEPS_LISTED:
                continue
            is_selected = index - first == found.selected
            style = palette.muted if index < first else palette.active if is_selected else palette.text
            marked = "▸ " if is_selected else "  "
            lines.append([(truncate(marked + format_cells(row), width), style)])
        if len(found.rows) > MAX_STEPS_LISTED:
            lines.append([(truncate("  … all of them: torchprof-tui chain --all-steps", width), palette.muted)])
        return lines

    def _format_work(self, chain: Chain, width: int, first: int) -> Lines:
        palette = self.palette
        if len(chain.work) < 2:
            return []
        total = sum(work.duration for work in chain.work)
        head = (
            f"{shorten_event_name(self._trace.event(chain.event))} launched {len(chain.work):,} pieces of GPU work, "
            f"{format_duration(total)} together, longest first"
        )
        lines: Lines = [[(truncate(head, width), palette.strong)]]
        for work in chain.work[:MAX_WORK_LISTED]:
            self._line_by_event.setdefault(work.event, first + len(lines))
            event = self._trace.event(work.event)
            selected = work.event == self._selected and not self._on_line
            name = truncate(shorten_event_name(event), max(width - 22, 8))
            row: list[TextRun] = [
                ("▶" if selected else "▌", palette.ink(event.kind)),
                (f" {format_duration(work.duration):>10} {format_share(work.share):>6}  ", palette.text),
                (name, palette.active if selected else palette.text),
            ]
            lines.append(row)
        if len(chain.work) > MAX_WORK_LISTED:
            lines.append([(f"… and {len(chain.work) - MAX_WORK_LISTED:,} more", palette.muted)])
        return lines
