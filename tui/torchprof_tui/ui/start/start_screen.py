"""The first screen: traces that can be opened with one key, a line to type another, and what there is to know.

Also what `o` shows over the explorer. Everything that touches a disk runs in a thread: a home folder may be far away.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from torchprof_samples import ORIGIN, SAMPLES
from torchprof_tui import __version__
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.specs.address import ListedTrace
from torchprof_tui.trace.specs.rank_groups import RankRun, group_runs
from torchprof_tui.ui.common.cell_text import truncate
from torchprof_tui.ui.common.number_format import format_value
from torchprof_tui.ui.start.beginner_guide import GUIDE
from torchprof_tui.ui.start.local_traces import LocalTrace, find_traces
from torchprof_tui.ui.start.path_input import PathInput
from torchprof_tui.ui.start.recent_traces import RecentTrace, list_recent_traces

RECENT_SHOWN, LOCAL_SHOWN = 8, 12
"""So that the samples are within a page or two; a path can always be typed."""

SCAN_LIMIT = 600
"""Traces in this folder: a run's ranks are told from one another only if all are seen."""

REMOTE_SHOWN = 200
"""Of a folder elsewhere, beside its runs: who looks for an older one names it."""

RUNS_SHOWN = 4
"""Of this folder; as many as are a page with the traces and the samples."""

NAME_CELLS = 34

RECORD_HINT = "runs it under torch.profiler, shows what it prints, then opens the trace"

RECORD_SPEC = "\0record"
"""The line that opens no trace; no path is called so."""

WIDE_MIN_WIDTH = 118
"""From this width on the guide has room beside the list."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One line of the list: what opening it means, and how it reads. `more`: the other ranks that open with it."""

    spec: str
    name: str
    summary: str  # size, age, or what ran
    hint: str  # for the line below the list, when it is the current one
    other_specs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What tells it from the other lines; no path has a NUL in it."""
        return "\0".join((self.spec, *self.other_specs))


class StartScreen(Screen[None]):
    """`over`: something lies beneath that esc goes back to. `elsewhere`: a folder on another host and its traces."""

    CSS_PATH = "start_screen.tcss"
    TITLE = "start"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE_MIN_WIDTH, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]
    AUTO_FOCUS = "#start-list"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "type_path('')", "type a path", id="start.path", tooltip="type the path of a trace", show=False),
        Binding("escape", "back", "back", id="start.back", tooltip="back to the list, or to the trace", show=False),
        Binding(
            "?", "guide", "guide", id="start.guide", tooltip="what this does, and the keys to begin with", show=False
        ),
        Binding("up", "scroll_guide(-1)", show=False),
        Binding("down", "scroll_guide(1)", show=False),
    ]

    @dataclass
    class Chosen(Message):
        """Open this, and with it these, as the ranks of one run."""

        spec: str
        other_specs: tuple[str, ...] = ()

    class RecordAsked(Message):
        """Record a run."""

    class Left(Message):
        """Esc, where there is something to go back to."""

    def __init__(
        self,
        can_go_back: bool = False,
        folder: Path | None = None,
        remote_folder: tuple[str, list[ListedTrace]] | None = None,
    ) -> None:
        super().__init__()
        self._remote_folder = remote_folder
        self._can_go_back = can_go_back
        self._folder = folder or Path()
        self._rows: dict[str, TraceRow] = {}

    def compose(self) -> ComposeResult:
        yield Static(
            Content.from_markup(
                "[b]torchprof-tui[/b] $version   record a torch.profiler trace and read it here",
                version=__version__,
            ),
            id="start-title",
        )
        yield PathInput(placeholder="path of a trace, host:path or URL: o or / to type, tab completes", id="start-path")
        with Horizontal(id="start-body"):
            with Vertical(id="start-left"):
                yield OptionList(id="start-list", markup=False)
                yield Static(id="start-hint")
            with VerticalScroll(id="start-guide", can_focus=False):
                yield Static(GUIDE, id="start-guide-text")
        yield Static(id="start-keys")

    def on_mount(self) -> None:
        self._show_rows([], [])
        back = "   esc back" if self._can_go_back else ""
        self.query_one("#start-keys", Static).update(
            f"↑ ↓ choose   enter open   o type a path   R record{back}   ? guide   q quit"
        )
        self._search_traces()

    @work(thread=True, exclusive=True, group="look")
    def _search_traces(self) -> None:
        """Recent traces first, because they are known at once; then those in the folder."""
        known = list_recent_traces()
        self.app.call_from_thread(self._show_rows, known, [])
        found = find_traces(self._folder, SCAN_LIMIT)
        self.app.call_from_thread(self._show_rows, known, found)

    def _show_rows(self, known: list[RecentTrace], found: list[LocalTrace]) -> None:
        """The whole list anew, with the current line kept where it still is."""
        listing = next(iter(self.query(OptionList)), None)
        if listing is None:  # left while the folder was looked through
            return
        current = listing.highlighted_option.id if listing.highlighted_option is not None else None
        touched = current is not None and current != self._first_trace_key
        sections = [
            *self._remote_section(),
            ("New", [TraceRow(RECORD_SPEC, "Record a run", "a workload, or a command of your own: R", RECORD_HINT)]),
            ("Recent", [_format_recent_row(entry) for entry in known[:RECENT_SHOWN]]),
            (f"In this folder, {clean(str(self._folder.absolute()))}", self._local_rows(found)),
            (f"Samples ({ORIGIN})", [TraceRow(f"sample:{s.name}", s.name, s.ran, s.look) for s in SAMPLES]),
        ]
        self._rows = {row.key: row for _, rows in sections for row in rows}
        options: list[Option | None] = []
        for title, rows in sections:
            if rows:
                options += [None] if options else []
                options.append(Option(Content.styled(title, "bold"), disabled=True))
                options += [Option(_format_row(row), id=row.key) for row in rows]
        with self.app.batch_update():
            listing.clear_options()
            listing.add_options(options)
            if current is not None and touched and current in self._rows:
                listing.highlighted = listing.get_option_index(current)
            elif self._first_trace_key is not None:
                listing.highlighted = listing.get_option_index(self._first_trace_key)

    @property
    def _first_trace_key(self) -> str | None:
        """The first trace."""
        return next((spec for spec in self._rows if spec != RECORD_SPEC), None)

    def _remote_section(self) -> list[tuple[str, list[TraceRow]]]:
        if self._remote_folder is None:
            return []
        folder, found = self._remote_folder
        rows = [_format_run_row(run, folder) for run in group_runs(found)]
        for each in found[:REMOTE_SHOWN]:
            rank = f"  rank {each.rank}" if each.rank is not None else ""
            rows.append(
                TraceRow(each.spec, _relative_name(each.spec, folder), f"{_format_size_and_age(each)}{rank}", each.spec)
            )
        more = len(found) - REMOTE_SHOWN
        return [(f"{clean(folder)}{f', the newest {REMOTE_SHOWN} of {len(found):,}' if more > 0 else ''}", rows)]

    def _local_rows(self, found: list[LocalTrace]) -> list[TraceRow]:
        listed = [ListedTrace(str(each.path), each.size, each.modified) for each in found]
        rows = [_format_run_row(run, f"{self._folder}/") for run in group_runs(listed)[:RUNS_SHOWN]]
        for each in listed[:LOCAL_SHOWN]:
            # A path is cut at its end, where it tells traces apart: so the name comes first and the folder last.
            path = Path(each.spec)
            folder = "" if path.parent == self._folder else f"  {path.parent}/"
            rows.append(TraceRow(each.spec, path.name, f"{_format_size_and_age(each)}{folder}", each.spec))
        return rows

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        row = self._rows.get(event.option_id or "")
        self.query_one("#start-hint", Static).update(Content(clean(row.hint) if row else ""))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if event.option_id == RECORD_SPEC:
            self.post_message(self.RecordAsked())
        elif event.option_id is not None:
            row = self._rows[event.option_id]
            self.post_message(self.Chosen(row.spec, row.other_specs))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if spec := event.value.strip():
            self.post_message(self.Chosen(spec))

    def on_key(self, event: events.Key) -> None:
        """A path that is simply typed needs no key before it."""
        if event.character in ("/", "~", ".") and not self.query_one(PathInput).has_focus:
            event.stop()
            self.action_type_path(event.character)

    def action_type_path(self, start: str) -> None:
        field = self.query_one(PathInput)
        field.value = start
        field.cursor_position = len(start)
        field.focus()

    def action_guide(self) -> None:
        """Where it has no room beside the list: instead of it."""
        self.toggle_class("guided")
        if not self.has_class("guided"):
            self.query_one("#start-list").focus()

    def action_scroll_guide(self, direction: int) -> None:
        """Arrows come here only while the list, which has them otherwise, is out of sight."""
        self.query_one("#start-guide").scroll_relative(y=direction, animate=False)

    def action_back(self) -> None:
        if self.has_class("guided"):
            self.action_guide()
            return
        if self.query_one(PathInput).has_focus:
            self.query_one(OptionList).focus()
        elif self._can_go_back:
            self.post_message(self.Left())


def _relative_name(spec: str, folder: str) -> str:
    """All of a listing lie below one folder: what tells them apart is what follows it."""
    return spec.removeprefix(folder).lstrip("/")


def _format_size_and_age(each: ListedTrace | RankRun) -> str:
    size = "" if each.size is None else format_value(each.size, "bytes")
    age = f"  {format_age(time.time() - each.modified)}" if each.modified else ""
    return f"{size:>9}{age}"


def _format_run_row(run: RankRun, folder: str) -> TraceRow:
    """All ranks of a run, in one line."""
    numbers = run.ranks
    whole = numbers == list(range(len(numbers)))
    ranks = f"all {len(numbers)} ranks" if whole else f"{len(numbers)} ranks, {numbers[0]} to {numbers[-1]}"
    spec, *more = run.specs
    hint = run.pattern or f"{spec} and the {len(more)} others of this run"
    return TraceRow(spec, _relative_name(run.name, folder), f"{_format_size_and_age(run)}  {ranks}", hint, tuple(more))


def _format_recent_row(entry: RecentTrace) -> TraceRow:
    path = Path(entry.spec)
    size = f"{format_value(entry.size, 'bytes'):>9}  " if entry.size is not None else " " * 11
    shown = _run_name(path) or path.name if entry.size is not None else entry.spec
    return TraceRow(entry.spec, shown, f"{size}opened {format_age(time.time() - entry.opened_at)}", entry.spec)


def _run_name(path: Path) -> str:
    """``train-20260101-120000 rank1`` for what `run` kept, where every run of one program has the same file names."""
    stem, *parts = path.name.partition(".pt.trace.json")[0].split(".")
    return " ".join([path.parent.name, *parts]) if path.parent.name.startswith(f"{stem}-") else ""


def _format_row(row: TraceRow) -> Content:
    name = truncate(clean(row.name), NAME_CELLS)
    return Content.assemble("  ", name, " " * (NAME_CELLS - len(name) + 2), (clean(row.summary), "$text-muted"))


def format_age(seconds: float) -> str:
    """How long ago, as people say it."""
    steps: tuple[tuple[float, float, Callable[[int], str]], ...] = (
        (90, 1, lambda _: "just now"),
        (90 * 60, 60, lambda n: f"{n} minutes ago"),
        (36 * 3600, 3600, lambda n: f"{n} hours ago"),
        (60 * 86400, 86400, lambda n: f"{n} days ago"),
        (float("inf"), 30 * 86400, lambda n: f"{n} months ago"),
    )
    for below, unit, say in steps:
        if seconds < below:
            return say(round(seconds / unit))
    return ""
