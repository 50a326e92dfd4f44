"""Screen of running jobs: `enter` records the rank at the cursor, `r` all ranks of its job, at the same iteration."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.cells import set_cell_size
from textual.app import ComposeResult
from textual.message import Message

from torchprof_attach.hang_watch import Dumped, HangWatch, choose_ranks
from torchprof_attach.session import Job, Recorded, Session, Wish, find_same_iterations, name_output
from torchprof_tui.trace.core.errors import format_error
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.ui.common.cell_text import fit_column
from torchprof_tui.ui.common.child_screen import ListScreen
from torchprof_tui.ui.common.guides import Guide
from torchprof_tui.ui.common.keys import parse_hints, parse_keys
from torchprof_tui.ui.common.number_format import format_file_size, format_share
from torchprof_tui.ui.common.painted_widget import LinesPanel, RowList, RowPicked, TextRun
from torchprof_tui.ui.common.status_line import StatusLine

KEYS = parse_keys("""\
= move.up move.down move.page-up move.page-down move.first move.last
move.open  record_one  record: record the rank of the cursor, and open its trace
program.record  record_all  all ranks: record all ranks of its job at the same iteration, and open them together
= write.copy write.copy-all
write.export  take_dump  hang: write what each rank of its job waits for, and open it: which rank did not come
move.clear  cancel  stop: stop waiting for a trace; the job is not touched
""")

HINTS = parse_hints("? = help; q = quit; enter = record; r = all ranks; e = why it hangs; esc = stop; y Y = copy")

GUIDE = Guide(
    "Jobs that are running",
    (
        ("way", "how it can be recorded: Kineto's socket, a server's endpoint, SIGUSR2 …; below: why not"),
        ("it/s", "iterations per second in the last recording here; an iteration is an optimizer step"),
        ("GPU, memory", "load of its busiest GPU and what it holds on GPUs, by NVML"),
        (
            "--watch-hang",
            "a job that makes no progress for so many seconds is dumped, and the rank named that did not come",
        ),
        ("waiting", "a profiler asks every 5 s what to record; all ranks then begin at the same iteration"),
    ),
    ("step",),
)

REFRESH_SECONDS = 2.0
LISTING = "looking for jobs …"
NOT_LISTED = "the key came before the list: press it again"
COLUMNS = (("host", 11), ("pid", 8), ("rank", 9), ("job", 16), ("way", 8), ("it/s", 6), ("GPU", 6), ("memory", 9))
"""Headings and cells; the command has the rest."""

UNKNOWN = "–"


@dataclass
class JobsListed(Message):
    """The processes of all hosts."""

    jobs: list[Job]


@dataclass
class Progress(Message):
    """A line about the recording that goes on."""

    line: str


@dataclass
class RecordingEnded(Message):
    """A recording came to its end. `problem`: why there was none at all."""

    done: list[Recorded]
    problem: str = ""


@dataclass
class HangDumped(Message):
    """What the ranks of a job wait for was taken. `is_asked`: by a key."""

    dumped: Dumped
    is_asked: bool = False


class AttachScreen(ListScreen):
    """The lowest screen of `torchprof-tui attach`. Posts `TracesAsked`."""

    BINDINGS = KEYS
    TITLE = "attach"
    help_topic = GUIDE
    CSS_PATH = "attach_screen.tcss"

    @dataclass
    class TracesAsked(Message):
        """Open these traces."""

        paths: tuple[str, ...]

    @dataclass
    class HangAsked(Message):
        """Open what was taken of a job that hangs."""

        folder: Path

    def __init__(
        self,
        session: Session,
        connect: Callable[[], None],
        wish: Wish,
        folder: Path,
        next_time: tuple[str, str],
        watch_seconds: float | None = None,
    ) -> None:
        """`next_time`: what to set for a recording, and for a dump. `watch_seconds`: after which a job hangs."""
        super().__init__()
        self.session = session
        self.jobs: list[Job] = []
        self.is_recording = False
        self._is_listed = False  # whether a list is on the screen: keys typed before must not act on a job unseen
        self._connect, self._wish, self._folder = connect, wish, folder
        self._next_time, self._next_time_hang = next_time
        self._watch_seconds = watch_seconds
        self._watch = HangWatch(session, watch_seconds or math.inf, folder, self._say)
        self._title = StatusLine(id="attach-title")
        self.rows = RowList(self._build_row, self._build_header, id="attach-rows")
        self._detail = LinesPanel(id="attach-detail")
        self._is_left = threading.Event()

    def compose(self) -> ComposeResult:
        yield from (self._title, self.rows, self._detail, self._status)

    def on_mount(self) -> None:
        self.follow_theme(HINTS)
        self.rows.empty_text = LISTING
        self._title.show_state("attach: " + ", ".join(self.session.names))
        threading.Thread(target=self._list_jobs, name="attach list", daemon=True).start()

    def on_unmount(self) -> None:
        self._is_left.set()

    def _list_jobs(self) -> None:
        """List the jobs again and again. Runs on a thread."""
        self._connect()
        if self._watch_seconds is not None:
            threading.Thread(target=self._watch_jobs, name="attach watch", daemon=True).start()
        while not self._is_left.is_set():
            self.post_message(JobsListed(self.session.list_jobs(self._wish.inject)))
            self._is_left.wait(REFRESH_SECONDS)

    def _watch_jobs(self) -> None:
        """Dump jobs that hang. Runs on a thread."""
        while not self._is_left.is_set():  # it ends with the last job
            for dumped in self._watch.watch(lambda: choose_ranks(self.jobs), self._is_left):
                self.post_message(HangDumped(dumped))
            self._is_left.wait(REFRESH_SECONDS)

    def on_jobs_listed(self, message: JobsListed) -> None:
        before = self._cursor_job
        if message.jobs == self.jobs and self.rows.empty_text != LISTING:
            return
        self.jobs = message.jobs
        keys = [job.key for job in self.jobs]
        first = next((row for row, job in enumerate(self.jobs) if job.way and not job.launcher), 0)
        self.rows.empty_text = f"No process of yours uses torch here; {self._next_time}"
        self.rows.set_row_count(len(keys), keys.index(before.key) if before and before.key in keys else first)
        ready = sum(bool(job.way) and not job.launcher for job in self.jobs)
        lost = "".join(f" · {host}: {reason}" for host, reason in sorted(self.session.problems.items()))
        hosts = ", ".join(self.session.hosts)
        watch = "" if self._watch_seconds is None else f" · watching for hangs of {self._watch_seconds:g} s"
        self._title.show_state(f"attach {hosts}: {ready} of {len(self.jobs)} processes can be recorded{lost}{watch}")
        self.handle_cursor_move()
        self.call_after_refresh(setattr, self, "_is_listed", True)

    @property
    def _cursor_job(self) -> Job | None:
        return self.jobs[self.rows.cursor] if self.rows.cursor < len(self.jobs) else None

    def on_row_picked(self, message: RowPicked) -> None:
        if message.opened:
            self.action_record_one()

    def handle_cursor_move(self) -> None:
        job = self._cursor_job
        if job is None:
            self._detail.lines = ()
        else:
            why = [] if job.way else [self._next_time]
            about = job.why or "by Kineto's socket: its profiler asks every 5 s"
            self._detail.lines = (f"{job.label}, {job.job}: {about}", job.command, *why)
        self._detail.refresh_content()

    # -- rows ----------------------------------------------------------------------------------------------

    def _build_header(self, width: int) -> list[TextRun]:
        line = "".join(set_cell_size(name, cells) for name, cells in COLUMNS)
        return [(set_cell_size(f"  {line}command", width), self.rows.palette.muted)]

    def _build_row(self, index: int, width: int, selected: bool) -> list[TextRun]:
        job, palette = self.jobs[index], self.rows.palette
        texts = (
            job.host,
            str(job.pid),
            "launcher" if job.launcher else UNKNOWN if job.rank is None else str(job.rank),
            job.job,
            job.way or "none",
            UNKNOWN if not job.step_seconds else f"{1 / job.step_seconds:.3g}",
            UNKNOWN if job.gpu_load_share is None else format_share(job.gpu_load_share),
            UNKNOWN if job.gpu_memory_bytes is None else format_file_size(job.gpu_memory_bytes),
        )
        line = "".join(fit_column(clean(text), cells) for text, (_, cells) in zip(texts, COLUMNS, strict=True))
        style = palette.active if selected else palette.text if job.way else palette.muted
        return [(set_cell_size(f"{'▶' if selected else ' '} {line}{clean(job.command)}", width), style)]

    # -- recording -----------------------------------------------------------------------------------------

    def action_record_one(self) -> None:
        job = self._cursor_job
        if job is not None:
            self._record([job])

    def action_record_all(self) -> None:
        job = self._cursor_job
        if job is not None:
            self._record([each for each in self.jobs if each.group == job.group and each.way and not each.launcher])

    def _record(self, jobs: list[Job]) -> None:
        job = self._cursor_job
        if self._is_busy():
            return
        if job is not None and (not jobs or not jobs[0].way):
            self._status.show_message(f"{job.label} cannot be recorded: {job.why}", is_warning=True)
        else:
            self.is_recording = True
            threading.Thread(target=self._run, args=(jobs,), name="attach record", daemon=True).start()

    def _is_busy(self) -> bool:
        """Return whether a key must not act on a job now, and say why."""
        if self._is_listed and not self.is_recording:
            return False
        self.show_message("a recording goes on; esc stops waiting for it" if self._is_listed else NOT_LISTED)
        return True

    def _run(self, jobs: list[Job]) -> None:
        """Record and say what happens. Runs on a thread."""
        try:
            target = name_output(jobs, self._folder)
            done = self.session.record(jobs, self._wish, target, self._say)
            self.post_message(RecordingEnded(done))
        except Exception as error:  # reported on the screen: nothing else looks at this thread
            self.post_message(RecordingEnded([], format_error(error)))

    def _say(self, line: str) -> None:
        self.post_message(Progress(line))

    def on_progress(self, message: Progress) -> None:
        self.show_message(f"{time.strftime('%H:%M:%S')} {message.line}")

    def on_recording_ended(self, message: RecordingEnded) -> None:
        self.is_recording = False
        problems = [f"{each.job.label}: {each.problem}" for each in message.done if each.problem]
        notes = [f"{each.job.label}: {note}" for each in message.done for note in each.notes]
        paths = tuple(path for each in message.done for path in each.paths)
        same = find_same_iterations(message.done)
        told = [message.problem] if message.problem else [*problems, *notes]
        if told:
            self._status.show_message("; ".join(told), is_warning=True)
            self.app.notify(
                "\n".join(map(clean, told[:4])), title="attach", severity="warning", timeout=10, markup=False
            )
        else:
            self.show_message(f"wrote {paths[0]}" if same is None else f"{len(paths)} ranks, the same iterations")
        if paths:
            self.post_message(self.TracesAsked(paths))

    def action_take_dump(self) -> None:
        job = self._cursor_job
        if not self._is_busy() and job is not None:
            ranks = [each for each in self.jobs if each.group == job.group and (each is job or not each.launcher)]
            self.is_recording = True
            threading.Thread(target=self._dump, args=(ranks, job.label), name="attach dump", daemon=True).start()

    def _dump(self, ranks: list[Job], label: str) -> None:
        """Take what the ranks of a job wait for. Runs on a thread."""
        try:
            self.post_message(HangDumped(self._watch.dump(ranks, f"{label}: asked"), is_asked=True))
        except Exception as error:  # reported on the screen: nothing else looks at this thread
            self.post_message(RecordingEnded([], format_error(error)))

    def on_hang_dumped(self, message: HangDumped) -> None:
        dumped = message.dumped
        if message.is_asked:
            self.is_recording = False
        lines = [dumped.line, *dumped.problems, *([] if dumped.has_files else [self._next_time_hang])]
        self._status.show_message("; ".join(lines), is_warning=True)
        if message.is_asked and dumped.has_files:
            self.post_message(self.HangAsked(dumped.folder))
        else:
            self.app.notify(
                "\n".join(map(clean, lines[:4])), title="hang", severity="warning", timeout=20, markup=False
            )

    def action_cancel(self) -> None:
        if not self.is_recording:
            self.show_message("nothing is being recorded; q: quit")
            return
        self.session.cancel()
        self.show_message("stopping …")

    def action_copy(self, everything: bool) -> None:
        job = self._cursor_job
        if everything:
            self.copy_text(self.rows.visible_text(self.rows.size.width) + "\n", "the list")
        elif job is not None:
            self.copy_text(f"torchprof-tui attach {job.pid} --steps {self._wish.steps}", f"the command for {job.label}")
