"""Screen of remedies that are tried: the table fills while the program runs, and stays when it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.message import Message

from torchprof_try.answers import TrialRemedy, Tried, build_tried, format_patches
from torchprof_try.program_process import TrialsStopped
from torchprof_try.row_text import TITLES, describe_best, describe_forecast, describe_program, format_cells
from torchprof_try.trials import Trials, read_recorded_run
from torchprof_tui.trace.core.errors import format_error
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.cell_text import fit_column
from torchprof_tui.ui.common.child_screen import ListScreen, write_new_file
from torchprof_tui.ui.common.compare_asked import CompareAsked
from torchprof_tui.ui.common.comparison_request import ComparisonRequest
from torchprof_tui.ui.common.guides import Guide
from torchprof_tui.ui.common.keys import parse_hints, parse_keys
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.painted_widget import LinesPanel, RowList, TextRun
from torchprof_tui.ui.common.status_line import StatusLine

KEYS = parse_keys("""\
= move.up move.down move.page-up move.page-down move.first move.last
move.open  compare  diff: compare a trace of the program as it is with one of the row's remedy, which is recorded first
write.export  ask_patch  patch: write what the row changes as a .patch file, for review; nothing is applied
= write.copy write.copy-all
move.clear  stop  stop: end the run that goes on, and keep the table
""")
KEYS = [
    replace(each, key=f"{each.key},P") if isinstance(each, Binding) and each.id == "write.export" else each
    for each in KEYS
]
"""`P` is a second key of the verb that writes a file: here the file is a patch."""

HINTS = parse_hints("? = help; q = quit; esc = stop; enter = diff; P = patch; y Y = copy")
PATCH = "write the patch to"

GUIDE = Guide(
    "Remedies, measured",
    (
        ("measured", "the share of a step that it saves, ± half of its 95 % interval; (not shown): it may be none"),
        ("predicted", "the most that check forecasts for it"),
        ("loss", "beside that of the program as it is: equal, within rounding, or DIFFERENT"),
        ("memory", "the peak of the allocator; of the process where there is no GPU"),
        ("below", "what the remedy of the row is, and what to write: a diff where its place in the program is known"),
    ),
    ("step",),
)

WAITING = (
    "The program runs as it is, then a trace of it is recorded and checked. What the trace suggests is listed here, "
    "and tried one after the other."
)
SECONDS = 1.0  # between looks at the clock: the time that is left is shown in seconds

CELLS = {"remedy": 24, "predicted": 10, "measured": 28, "step": 9, "memory": 9, "loss": 16}
NARROW = {"remedy": 17, "predicted": 10, "measured": 27, "memory": 8, "loss": 16}
WIDE_FROM = 110  # cells of the screen from which all columns are shown


@dataclass
class TableChanged(Message):
    """The table has changed. `names`: its rows in the order in which they are tried."""

    tried: Tried
    names: tuple[str, ...]


@dataclass
class TrialsEnded(Message):
    """Nothing runs any more. `problem`: why the program cannot be tried; `is_stopped`: by the user."""

    problem: str
    is_stopped: bool


@dataclass
class RecordingEnded(Message):
    """The program was recorded with a remedy. `trace`: of the program as it is; None where there is a `problem`."""

    trace: Trace | None
    other: str
    problem: str


class TryScreen(ListScreen):
    """The screen of `torchprof-tui try`. It starts the trials and owns them: it ends them when it is left."""

    BINDINGS = KEYS
    TITLE = "try"
    help_topic = GUIDE
    CSS_PATH = "try_screen.tcss"

    def __init__(self, trials: Trials) -> None:
        super().__init__()
        self.trials = trials
        self.tried = build_tried(trials)
        self.problem = ""
        self.is_trying = True
        self.recorded = ""  # the remedy that is being recorded
        self._records: list[TrialRemedy] = []
        self._title = StatusLine(id="try-title")
        self._program = StatusLine(id="try-program")
        self._progress = StatusLine(id="try-progress")
        self.rows = RowList(self._build_row, self._build_header, id="try-rows")
        self._detail = LinesPanel(id="try-detail")
        self._began = time.monotonic()
        # No daemon: the interpreter waits until its process has ended and its files are removed.
        self._thread = threading.Thread(target=self._run, name="try")

    def compose(self) -> ComposeResult:
        yield from (self._title, self._program, self._progress, self.rows, self._detail, self._status, self._prompt)

    def on_mount(self) -> None:
        self.follow_theme(HINTS)
        self.rows.empty_text = WAITING
        self._title.show_state(f"try: {' '.join(self.trials.request.command)}")
        self.set_interval(SECONDS, self._show_progress)
        self._thread.start()

    def on_unmount(self) -> None:
        threading.Thread(target=self.close_trials, name="try end").start()

    def close_trials(self) -> None:
        """End what runs, wait for it, and remove its files."""
        self.trials.stop()
        if self._thread.is_alive():
            self._thread.join()
        self.trials.close()

    # -- the run ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Try all, and post the table after each change. Runs on a thread."""
        problem, is_stopped = "", False
        try:
            for _ in self.trials.run():
                self._post_table()
        except TrialsStopped:
            is_stopped = True
        except Exception as error:  # reported on the screen: nothing else looks at this thread
            problem = format_error(error)
        self._post_table()
        self.post_message(TrialsEnded(problem, is_stopped))

    def _post_table(self) -> None:
        self.post_message(TableChanged(build_tried(self.trials), tuple(row.name for row in self.trials.rows)))

    def on_table_changed(self, message: TableChanged) -> None:
        before = self._cursor_record
        self.tried = message.tried
        by_name = {each.name: each for each in message.tried.remedies}
        self._records = [by_name[name] for name in message.names if name in by_name]
        row = next((row for row, each in enumerate(self._records) if before and each.name == before.name), 0)
        self.rows.set_row_count(len(self._records), row)
        if message.tried.baseline_us is not None:
            self._program.show_state("; ".join(describe_program(message.tried)))
        if any(each.saved_low_share is not None for each in self._records):
            self._title.show_state(describe_best(message.tried))
        self._show_progress()
        self.handle_cursor_move()

    def on_trials_ended(self, message: TrialsEnded) -> None:
        self.is_trying, self.problem = False, message.problem
        if message.problem:
            self._title.show_message(message.problem, is_warning=True)
            self.rows.empty_text = "Nothing was measured; q: quit"
            self.rows.repaint()
        took = f"{time.monotonic() - self._began:.0f} s"
        ended = "all is tried" if self.tried.complete else "ended early: what is missing was not tried"
        self._progress.show_state(f"○ {'it cannot be tried' if message.problem else ended}, {took}")
        self.show_message("")

    def _show_progress(self) -> None:
        if self.is_trying:
            stop = "esc: stop, keep the table"
            self._progress.show_state(f"● {self.trials.progress.line} · {stop}")

    # -- rows ---------------------------------------------------------------------------------------------------

    @property
    def _cursor_record(self) -> TrialRemedy | None:
        return self._records[self.rows.cursor] if self.rows.cursor < len(self._records) else None

    def on_resize(self, event: events.Resize) -> None:
        self.rows.repaint()

    def _build_header(self, width: int) -> list[TextRun]:
        return [(truncate(f"  {_join(TITLES, width)}", width), self.rows.palette.muted)]

    def _build_row(self, index: int, width: int, selected: bool) -> list[TextRun]:
        record, palette = self._records[index], self.rows.palette
        line = f"{'▶' if selected else ' '} {_join(tuple(map(clean, format_cells(record))), width)}"
        style = palette.muted if record.state in ("waiting", "unused") else palette.text
        style = palette.active if selected else palette.strong if record.won else style
        return [(truncate(line, width), style)]

    def handle_cursor_move(self) -> None:
        record = self._cursor_record
        lines = []
        if record is not None:
            lines = [*filter(None, (f"{record.name}: {record.says}", describe_forecast(record)))]
            if record.diff:  # its changed lines, without the heads of its files
                changed = (
                    line for line in record.diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")
                )
                lines += [f"{record.place}:", *changed]
            else:
                lines += record.patch.splitlines()
        if lines != self._detail.lines:
            self._detail.lines = lines
            self._detail.refresh_content()

    # -- keys ---------------------------------------------------------------------------------------------------

    def action_stop(self) -> None:
        if self.is_trying or self.recorded:
            self.trials.stop()
            self.show_message("ending the run that goes on …")
        else:
            self.show_message("nothing runs; q: quit")

    def action_copy(self, everything: bool) -> None:
        record = self._cursor_record
        if everything:
            self.copy_text(self.rows.visible_text(160) + "\n", "the table")
        elif record is not None:
            self.copy_text(record.patch + "\n", f"what to write for {record.name}")
        else:
            self.show_message("no row yet")

    def action_ask_patch(self) -> None:
        record = self._cursor_record
        if record is None:
            self.show_message("no row yet")
        else:
            self._open_prompt(PATCH, "a new file", f"{record.name}.patch")

    def submit(self, text: str) -> str:
        """Write the patch of the row. Returns why it was not written, else ""."""
        record = self._cursor_record
        if record is None:
            return "no row"
        formatters = {".patch": lambda: format_patches(self.tried, [record.name], self.trials.places)}
        return self.report_written(*write_new_file(text, formatters, f"the patch of {record.name}"))

    # -- traces -------------------------------------------------------------------------------------------------

    def action_compare(self) -> None:
        record = self._cursor_record
        if self.is_trying:
            self.show_message("measuring goes on, and a recording would disturb it: esc stops it")
        elif record is None or record.state in ("unused", "failed"):
            self.show_message("nothing to compare: " + ("no row" if record is None else record.reason or record.state))
        elif self.recorded:
            self.show_message(f"{self.recorded} is being recorded; esc stops it")
        else:
            self.recorded = record.name
            self._progress.show_state(f"● recording a trace with {record.name} · esc: stop")
            self._thread = threading.Thread(target=self._record, args=(record.name,), name="try record")
            self._thread.start()

    def _record(self, name: str) -> None:
        """Record the program with a remedy, and read the trace of the program as it is. Runs on a thread."""
        trace, other, problem = None, "", ""
        try:
            base, other = self.trials.record(name)
            trace = load_trace(base, cache=False)
        except TrialsStopped:
            problem = "stopped"
        except Exception as error:  # reported on the screen: nothing else looks at this thread
            problem = format_error(error)
        self.post_message(RecordingEnded(trace, other, problem))

    def on_recording_ended(self, message: RecordingEnded) -> None:
        name, self.recorded = self.recorded, ""
        if message.trace is None:
            self._progress.show_state(f"○ no trace with {name}")
            self._status.show_message(message.problem, is_warning=True)
            return
        self._progress.show_state(f"○ recorded with {name}; enter compares again")
        self.post_message(CompareAsked(ComparisonRequest(message.other), message.trace, "the program as it is"))


def _join(texts: Sequence[str], width: int) -> str:
    """Join the cells of a row in columns; the last one takes what is left, and is left out where little is."""
    sizes = CELLS if width >= WIDE_FROM else NARROW
    cells = [fit_column(text, sizes[title]) for title, text in zip(TITLES, texts, strict=True) if title in sizes]
    return "".join(cells) + (texts[-1] if width >= WIDE_FROM else "")


PROCESS_SECONDS = 60.0


def create_screen(trace: str, finding: str) -> TryScreen:
    """Create a screen that tries the remedies of a finding, "" for all findings. Raises TraceError."""
    return TryScreen(Trials(replace(read_recorded_run(trace), finding=finding, limit=PROCESS_SECONDS)))
