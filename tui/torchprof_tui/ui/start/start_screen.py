"""Start screen: traces to open, an input for another path, and a guide for beginners.

The key `o` shows it over the explorer, too. All disk access runs in workers, because a home folder may be on a slow
network disk.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from textual import events, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from torchprof_samples import SAMPLES
from torchprof_tui import __version__
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.user_files import make_absolute
from torchprof_tui.trace.specs.address import ListedTrace
from torchprof_tui.trace.specs.runs_by_name import RankRun, group_runs
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.bindings import style_hints
from torchprof_tui.ui.common.cell_text import truncate
from torchprof_tui.ui.common.compare_asked import TraceAsked
from torchprof_tui.ui.common.guarded_screen import GuardedScreen
from torchprof_tui.ui.common.number_format import format_age, format_file_size
from torchprof_tui.ui.common.path_completions import complete_path, list_completions, type_text

if TYPE_CHECKING:
    from torchprof_tui.ui.start.recent_traces import RecentTrace

KNOWN_TRACES = "torchprof_tui.ui.start.recent_traces"
"""Imported by name on the thread that lists traces: what reads small files of others is not needed before the first
frame."""


class PathInput(Input):
    """An Input whose tab completes a path like a shell's."""

    BINDINGS = keys.PATH_INPUT

    def __init__(self, *, placeholder: str, id: str) -> None:  # noqa: A002  (textual's own word)
        super().__init__(
            placeholder=placeholder, id=id, suggester=_PathSuggester(), compact=True, select_on_focus=False
        )

    def action_complete(self) -> None:
        self.run_worker(complete_path(self), exclusive=True, group="complete")


class _PathSuggester(Suggester):
    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        completions = await asyncio.to_thread(list_completions, value)
        return completions[0] if completions else None


GUIDE = Content.from_markup("""\
[b]What this does[/b]
Opens traces that torch.profiler recorded, and shows the
ops, launches and kernels of each training step.

[b]Record your own loop in one line[/b], from a shell
  torchprof-tui run python train.py
It records three steps and opens them; [b]r[/b] does it from here.
For code that you cannot start this way:
  with torch.profiler.profile() as prof:
      train_step(batch)
  prof.export_chrome_trace("trace.json.gz")

[b]New here?[/b] [b]Learn[/b], or open a sample, then
  [b]d a[/b]     pan               [b]w s[/b]    zoom in, out
  [b]← →[/b]     next event        [b]↑ ↓[/b]    parent, child
  [b]][/b]       from a launch to its kernel, [b]\\[[/b] back
  [b]} {[/b]     next, previous step
  [b]f[/b]       fit the event on screen, [b]0[/b] everything
  [b]/[/b]       search, then [b]n N[/b]
  [b]c l k t[/b] cheatsheet, chain, kernel, table
  [b]?[/b]       every key      [b]ctrl+p[/b]  every command

[b]Without this screen[/b]
  torchprof-tui info trace.json.gz --json
  torchprof-tui check trace.json.gz
  torchprof-tui snapshot trace.json.gz -o picture.svg
""")


RECENT_SHOWN, LOCAL_SHOWN = 8, 12
"""Few enough that the samples are on the first or second page; a path can always be typed."""

SCAN_LIMIT = 600  # traces searched for in this folder. To group the ranks of a run, all of them must be found
REMOTE_SHOWN = 200  # traces listed of a remote folder, besides its runs; the path of an older one can be typed
RUNS_SHOWN = 4  # runs listed of this folder; with the traces and the samples they fit on a page

NAME_CELLS, NAME_SHARE = 34, 0.4  # cells that names take at most on a narrow screen, and their share of a wide one
_TRACE_SUFFIX = re.compile(r"\.pt\.trace\.json(\.\w+)?$")
"""Of nearly every trace: it says nothing, and takes the room in which names differ."""

RECORD_HINT = "runs it under torch.profiler, shows what it prints, then opens the trace"

RECORD_SPEC, LEARN_SPEC = "\0record", "\0learn"
"""Specs of the rows that record a run and list the cases; no path contains a NUL."""

_COMMAND_SPECS = (RECORD_SPEC, LEARN_SPEC)

LEARN_HINT = (
    "a case is a sample and a few questions: expect, look at the lanes, read what it is; also: torchprof-tui learn"
)

WIDE_MIN_WIDTH = 150  # minimal width for the guide beside the list: fewer cells would leave no room for the summaries


@record
class TraceRow:
    """One row of the list. `other_specs`: the other ranks of the run, which are opened together with `spec`."""

    spec: str
    name: str
    summary: str  # size, age, or what ran
    hint: str  # text below the list while the row is highlighted
    other_specs: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Unique id of the row; no path contains a NUL."""
        return "\0".join((self.spec, *self.other_specs))


class StartScreen(GuardedScreen[None]):
    """The list of traces with its guide.

    `can_go_back`: escape returns to the screen below. `remote_folder`: a folder on another host and its traces.
    """

    CSS_PATH = "start_screen.tcss"
    TITLE = "start"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE_MIN_WIDTH, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]
    AUTO_FOCUS = "#start-list"
    BINDINGS = keys.START

    class LearnAsked(Message):
        """The user wants to see the cases."""

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
        self._commands: dict[str, str] = {}  # of runs, by the spec of their traces

    def compose(self) -> ComposeResult:
        title = "[b]torchprof-tui[/b] $version   record a torch.profiler trace and read it here"
        yield Static(Content.from_markup(title, version=__version__), id="start-title")
        yield PathInput(
            placeholder="a name below, a path, host:path or URL: o or / to type, tab completes", id="start-path"
        )
        with Horizontal(id="start-body"):
            with Vertical(id="start-left"):
                yield from (OptionList(id="start-list", markup=False), Static(id="start-hint"))
            with VerticalScroll(id="start-guide", can_focus=False):
                yield Static(GUIDE, id="start-guide-text")
        yield Static(id="start-keys")

    def on_mount(self) -> None:
        self._show_rows([], [])
        back_key, leave = ("   esc back", "back") if self._can_go_back else ("", "quit")
        self.query_one("#start-keys", Static).update(
            style_hints(f"↑ ↓ choose   enter open   o type a path   r record   i guide   ? help{back_key}   q {leave}")
        )
        self.call_after_refresh(self._search_traces)  # the width of the list is known by then

    @work(thread=True, exclusive=True, group="look")
    def _search_traces(self) -> None:
        """List the recent traces, which are known at once, and then those in the folder, too."""
        known = importlib.import_module(KNOWN_TRACES)
        recent: list[RecentTrace] = known.list_recent_traces()
        self._commands = known.read_commands(trace.spec for trace in recent[:RECENT_SHOWN] if not trace.is_missing)
        self.app.call_from_thread(self._show_rows, recent, [])
        local: list[ListedTrace] = known.find_traces(self._folder, SCAN_LIMIT)
        self._commands = {**self._commands, **known.read_commands(trace.spec for trace in local[:LOCAL_SHOWN])}
        self.app.call_from_thread(self._show_rows, recent, local)

    def _show_rows(self, recent: list[RecentTrace], local: list[ListedTrace]) -> None:
        """Rebuild the list; a row that the user has moved to stays highlighted if it is still listed."""
        option_list = next(iter(self.query(OptionList)), None)
        if option_list is None:  # the screen was left while the folder was searched
            return
        current = option_list.highlighted_option.id if option_list.highlighted_option is not None else None
        was_moved = current is not None and current != self._first_trace_key
        commands = [
            TraceRow(LEARN_SPEC, "Learn to read a trace", "cases of a few questions each", LEARN_HINT),
            TraceRow(RECORD_SPEC, "Record a run", "a workload, or a command of your own: r", RECORD_HINT),
        ]
        sections = [
            *self._remote_section(),
            ("New", commands),
            ("Recent", [self._format_recent_row(trace) for trace in recent[:RECENT_SHOWN]]),
            (f"In this folder, {clean(make_absolute(str(self._folder)))}", self._local_rows(local)),
            *((f"Samples ({origin})", _list_samples(origin)) for origin in dict.fromkeys(s.origin for s in SAMPLES)),
        ]
        self._rows = {}
        names = [len(_shorten_name(row)) for _, rows in sections for row in rows]
        cells = min(max(names, default=0), max(NAME_CELLS, int(option_list.size.width * NAME_SHARE)))
        options: list[Option | None] = []
        for title, listed in sections:
            # A trace may be in a remote folder and among the recent ones, but ids must be unique: list it once.
            rows = list({row.key: row for row in listed if row.key not in self._rows}.values())
            self._rows.update((row.key, row) for row in rows)
            if rows:
                options += [None] if options else []
                options.append(Option(Content.styled(title, "bold"), disabled=True))
                options += [Option(_format_row(row, cells), id=row.key) for row in rows]
        with self.app.batch_update():
            option_list.clear_options()
            option_list.add_options(options)
            if current is not None and was_moved and current in self._rows:
                option_list.highlighted = option_list.get_option_index(current)
            elif self._first_trace_key is not None:
                option_list.highlighted = option_list.get_option_index(self._first_trace_key)

    @property
    def _first_trace_key(self) -> str | None:
        return next((spec for spec in self._rows if spec not in _COMMAND_SPECS), None)

    def _remote_section(self) -> list[tuple[str, list[TraceRow]]]:
        if self._remote_folder is None:
            return []
        folder, traces = self._remote_folder
        rows = [_format_run_row(run, folder) for run in group_runs(traces)]
        for trace in traces[:REMOTE_SHOWN]:
            rank = f"  rank {trace.rank}" if trace.rank is not None else ""
            summary = f"{_format_size_and_age(trace)}{rank}"
            rows.append(TraceRow(trace.spec, _relative_name(trace.spec, folder), summary, trace.spec))
        omitted = f", the newest {REMOTE_SHOWN} of {len(traces):,}" if len(traces) > REMOTE_SHOWN else ""
        return [(f"{clean(folder)}{omitted}", rows)]

    def _local_rows(self, local: list[ListedTrace]) -> list[TraceRow]:
        traces = [each for each in local if Path(each.spec).absolute().parent != _SAMPLES_FOLDER]  # listed as samples
        rows = [_format_run_row(run, f"{self._folder}/") for run in group_runs(traces)[:RUNS_SHOWN]]
        for trace in traces[:LOCAL_SHOWN]:
            # Long paths are cut at their end, where the file names differ: so the name comes first and the folder last.
            path = Path(trace.spec)
            folder = "" if path.parent == self._folder else f"{path.parent.relative_to(self._folder)}/"
            origin = self._commands.get(trace.spec, folder)  # a run's folder is in its name
            summary = f"{_format_size_and_age(trace)}  {origin}".rstrip()
            rows.append(TraceRow(trace.spec, name_trace(path), summary, trace.spec))
        return rows

    def _format_recent_row(self, trace: RecentTrace) -> TraceRow:
        size = f"{format_file_size(trace.size):>9}  " if trace.size is not None else " " * 11
        name = name_trace(Path(trace.spec)) if trace.size is not None else trace.spec
        origin = self._commands.get(trace.spec) or _describe_folder(trace)
        summary = f"{size}opened {format_age(time.time() - trace.opened_at)}  {origin}"
        return TraceRow(trace.spec, name, summary.rstrip(), trace.spec)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        row = self._rows.get(event.option_id or "")
        self.query_one("#start-hint", Static).update(Content(clean(row.hint) if row else ""))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if event.option_id == RECORD_SPEC:
            self.call_later(self.app.run_action, "record")
        elif event.option_id == LEARN_SPEC:
            self.post_message(self.LearnAsked())
        elif (row := self._rows.get(event.option_id or "")) is not None:  # else it left the list after the key
            self.post_message(TraceAsked(row.spec, row.other_specs))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Move to the first row whose name begins with what was typed, else the first that contains it."""
        if (row := self._find_row(event.value)) is not None:
            option_list = self.query_one(OptionList)
            option_list.highlighted = option_list.get_option_index(row.key)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Open the path that was typed, the row of that name where there is none, or the highlighted one."""
        if not (spec := event.value.strip()):
            self.query_one(OptionList).action_select()
        else:
            row = None if os.path.lexists(os.path.expanduser(spec)) else self._find_row(spec)
            self.post_message(TraceAsked(spec) if row is None else TraceAsked(row.spec, row.other_specs))

    def _find_row(self, typed: str) -> TraceRow | None:
        """Find the row of a trace by the beginning of its name, else by a part of it; a path and a host name none.

        A first slash is the key that began the typing.
        """
        text = typed.strip().removeprefix("/").casefold()
        if not text or set(text) & set("/:~"):
            return None
        named = [(_shorten_name(row).casefold(), row) for key, row in self._rows.items() if key not in _COMMAND_SPECS]
        begins = (row for name, row in named if name.startswith(text))
        return next(begins, next((row for name, row in named if text in name), None))

    def on_key(self, event: events.Key) -> None:
        """Start to type a path with its first character; the arrows lead from the path to the list."""
        if event.key in ("up", "down") and self.focused is self.query_one(PathInput):
            event.stop()
            (listed := self.query_one(OptionList)).focus()
            if not self.query_one(PathInput).value:  # nothing is typed: the arrow moves, as in the list
                getattr(listed, f"action_cursor_{event.key}")()
            return
        if event.character in ("/", "~", ".") and self.focused is not self.query_one(PathInput):
            event.stop()
            self.action_type_path(event.character)

    def action_type_path(self, start: str) -> None:
        field = self.query_one(PathInput)
        type_text(field, start)
        self.set_focus(field)  # at once: the next key may be a slash, which would start anew

    def action_guide(self) -> None:
        """Show or hide the guide; on a narrow screen it replaces the list."""
        self.toggle_class("guided")
        if not self.has_class("guided"):
            self.query_one("#start-list").focus()

    def action_scroll_guide(self, direction: int) -> None:
        """Scroll the guide. Arrow keys get here only while the list, which handles them otherwise, is hidden."""
        self.query_one("#start-guide").scroll_relative(y=direction, animate=False)

    def action_parent(self) -> None:
        """Go back to what the screen was opened from: the trace below, otherwise the parent of the folder."""
        if self.has_class("guided"):
            self.action_guide()
        elif self._remote_folder is not None:
            if (parent := parent_of_remote_folder(folder_name := self._remote_folder[0])) is None:
                self.notify(f"{clean(folder_name)} has no parent folder that can be listed: type a path with o")
            else:
                self.post_message(TraceAsked(parent))
        elif self._can_go_back:
            self.dismiss()
        elif (folder := self._folder.absolute()) == folder.parent:
            self.notify(f"{folder} has no parent folder: type a path with o", markup=False)
        else:
            self._folder = folder.parent
            self.query_one(OptionList).highlighted = None  # shows the first trace there, from wherever the list was
            self._search_traces()

    def action_back(self) -> None:
        if self.has_class("guided"):
            self.action_guide()
        elif self.query_one(PathInput).has_focus:
            self.query_one(OptionList).focus()
        elif self._can_go_back:
            self.dismiss()


def parent_of_remote_folder(spec: str) -> str | None:
    """Return the parent of ``host:runs/ddp/`` or of a URL, with a slash at its end; None at the top."""
    scheme, separator, rest = spec.rstrip("/").rpartition("://")
    parent, slash, _ = rest.rpartition("/")
    return f"{scheme}{separator}{parent}/" if slash and not parent.endswith(":") else None


def _relative_name(spec: str, folder: str) -> str:
    """Return the part of `spec` below `folder`, which all rows of a section have in common."""
    return spec.removeprefix(folder).lstrip("/")


def _format_size_and_age(trace: ListedTrace | RankRun) -> str:
    size = "" if trace.size is None else format_file_size(trace.size)
    age = f"  {format_age(time.time() - trace.modified)}" if trace.modified else ""
    return f"{size:>9}{age}"


def _describe_folder(trace: RecentTrace) -> str:
    """Describe where a local trace is, for names that occur in several folders; a remote spec names its own."""
    if trace.size is None:
        return ""
    folder = Path(trace.spec).absolute().parent
    return "sample" if folder == _SAMPLES_FOLDER else f"{folder}/".replace(f"{Path.home()}/", "~/", 1)


_SAMPLES_FOLDER = SAMPLES[0].path.absolute().parent


def _list_samples(origin: str) -> list[TraceRow]:
    return [TraceRow(f"sample:{s.name}", s.name, s.ran, s.look) for s in SAMPLES if s.origin == origin]


def _format_run_row(run: RankRun, folder: str) -> TraceRow:
    numbers = run.ranks
    is_complete = numbers == list(range(len(numbers)))
    ranks = f"all {len(numbers)} ranks" if is_complete else f"{len(numbers)} ranks, {numbers[0]} to {numbers[-1]}"
    spec, *other_specs = run.specs
    hint = run.pattern or f"{spec} and the {len(other_specs)} others of this run"
    summary = f"{_format_size_and_age(run)}  {ranks}"
    return TraceRow(spec, _relative_name(run.name, folder), summary, hint, tuple(other_specs))


def _shorten_name(row: TraceRow) -> str:
    return _TRACE_SUFFIX.sub("", clean(row.name))


def _format_row(row: TraceRow, cells: int) -> Content:
    name = truncate(_shorten_name(row), cells)
    return Content.assemble("  ", name, " " * (cells - len(name) + 2), (clean(row.summary), "$text-muted"))


def name_trace(path: Path) -> str:
    """Name a trace by its run (``train-20260101-120000 rank1``), by its file where it is not in a run's folder.

    All runs of a program have the same file names, so only the folder distinguishes them.
    """
    stem, *parts = path.name.partition(".pt.trace.json")[0].split(".")
    is_run = path.parent.name.startswith(f"{stem}-")
    return " ".join([path.parent.name, *parts]) if is_run else path.name
