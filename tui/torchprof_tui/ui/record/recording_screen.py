"""Screen of a run while it goes on: its output, the phase of the profiler, and what it saved.

The screen starts the run and owns it: when the screen is removed, for whatever reason, the run is stopped.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from torchprof_tui.runs.recording_process import Recording
from torchprof_tui.runs.recording_request import RecordingRequest
from torchprof_tui.runs.run_result import RunResult
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.bindings import style_hints
from torchprof_tui.ui.common.compare_asked import RunAsked
from torchprof_tui.ui.common.comparison_request import ComparisonRequest
from torchprof_tui.ui.common.guarded_screen import GuardedScreen
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.record.console_view import ConsoleView

POLL_SECONDS = 0.05  # 20 times a second; faster updates cannot be read

LIVE_KEY_HINTS = "ctrl+c stop, keep what was recorded   q stop and quit   page up, down scroll"
STOP_MESSAGES_SAVING = (
    "",
    "stopping and saving what was recorded; ctrl+c again stops without saving",
    "stopping without saving; the program is killed in a moment, or with ctrl+c at once",
    "killed",
)
STOP_MESSAGES_RUNNING = (
    "",
    "stopping; the program then saves its recording; ctrl+c again if it does not stop",
    "terminating the program and saving what was recorded; ctrl+c again kills it",
    "killed",
)
"""By the number of interrupts: while the run saves its recording, and while it does not save yet."""


class RecordingScreen(GuardedScreen[None]):
    """Run `request` in folder `cwd` with `environment`, as soon as the size of its terminal is known."""

    CSS_PATH = "recording_screen.tcss"
    AUTO_FOCUS = ""
    BINDINGS = keys.RECORDING

    @dataclass
    class Recorded(Message):
        """The run has ended with these traces to open: one trace, or the ranks of a run; and what to compare with."""

        traces: tuple[str, ...]
        comparison: ComparisonRequest | None = None

    def __init__(
        self, request: RecordingRequest, cwd: str, environment: Mapping[str, str] | None = None, earlier: str = ""
    ) -> None:
        """Run a request. `earlier`: the trace on screen before it, to compare the new one with."""
        super().__init__()
        self._earlier = earlier
        self.request, self.cwd = request, cwd
        self.result: RunResult | None = None
        self._environment = environment
        self._recording = Recording(request, cwd)
        self._timer: Timer | None = None
        self._start_error = ""  # why it could not be started

    @property
    def busy(self) -> bool:
        """Whether the run has not ended, so that leaving the screen would stop it."""
        return self.result is None and not self._start_error

    def compose(self) -> ComposeResult:
        command = clean(shlex.join(self.request.command))
        yield Static(Content.from_markup("[b]Recording[/b] $command", command=command), id="running-title")
        yield Static(id="running-phase")
        yield ConsoleView(id="running-output")
        yield Static(id="running-question")
        yield Static(id="running-end")
        yield Static(style_hints(LIVE_KEY_HINTS), id="running-keys")

    def on_console_view_resized(self, message: ConsoleView.Resized) -> None:
        if self._timer is not None or self._start_error:
            self._recording.resize(message.columns, message.lines)
            return
        try:
            self._recording.start(message.columns, message.lines, self._environment)
        except (ValueError, OSError) as error:  # RequestError, and characters that no argument can have
            self._start_error = str(error)
            self._show_end(f"This could not be started: {self._start_error}", "backspace change it   esc back   q quit")
            return
        self._timer = self.set_interval(POLL_SECONDS, self._poll)
        self._poll()

    def on_unmount(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._recording.close()

    def _poll(self) -> None:
        recording = self._recording
        data, dropped = recording.poll()
        if data or dropped:
            self.query_one(ConsoleView).feed(data, dropped)
        self.query_one("#running-phase", Static).update(self._format_phase())
        self._show_question(recording.choices)
        if recording.has_ended and self.result is None:
            if self._timer is not None:
                self._timer.stop()
            self._show_result(recording.result())

    def _format_phase(self) -> Content:
        recording = self._recording
        terminal = self.query_one(ConsoleView).terminal
        parts = [("ended" if recording.has_ended else recording.phase_text), format_elapsed(recording.seconds)]
        if terminal.discarded_lines:
            count = terminal.discarded_lines + len(terminal.lines)
            parts.append(f"{count:,} lines, the last {len(terminal.lines):,} are kept")
        if recording.interrupts and not recording.has_ended:
            is_saving = recording.save_abandoned if recording.interrupts > 1 else recording.is_saving
            parts.append((STOP_MESSAGES_SAVING if is_saving else STOP_MESSAGES_RUNNING)[min(recording.interrupts, 3)])
        elif recording.table_skipped and not recording.has_ended:
            parts.append("skipping torch's table; the trace is kept")
        return Content.assemble(("○ " if recording.has_ended else "● ", "$accent"), clean(" · ".join(parts)))

    def _show_question(self, choices: Mapping[str, str]) -> None:
        """Show what the run asks, with the key of each answer; hide the question if there is none."""
        if self.has_class("asked") == bool(choices):
            return
        self.set_class(bool(choices), "asked")
        parts: list[str | tuple[str, str]] = ["The trace will be large, as said above:"]
        for number, text in enumerate(choices.values(), 1):
            parts += ["\n  ", (str(number), "bold"), f" {clean(text)}"]
        self.query_one("#running-question", Static).update(Content.assemble(*parts))

    def action_answer(self, number: int) -> None:
        """Answer with the choice of this number, where the run asks and has so many."""
        choices = list(self._recording.choices)
        if number > len(choices):
            self.notify(f"answers: 1 to {len(choices)}" if choices else "the run asks nothing", markup=False)
            return
        self._recording.answer(choices[number - 1])
        self._show_question(self._recording.choices)

    def action_stop(self) -> None:
        if self.busy:
            self._recording.stop()
            self._poll()
        else:
            self.app.exit()

    def _show_result(self, result: RunResult) -> None:
        self.result = result
        self._recording.save_output(self.query_one(ConsoleView).terminal.text)
        was_stopped = self._recording.interrupts > 0
        compare = "D compare with the last   " if self._earlier else ""
        if result.traces and (result.exit_status == 0 or was_stopped):
            count = "1 trace" if len(result.traces) == 1 else f"{len(result.traces)} traces"
            self._show_end(f"{count} kept in {result.folder}", f"enter open it   {compare}r again   esc back   q quit")
            self.action_show_trace()
            return
        open_key = f"enter open the trace   {compare}" if result.traces else ""
        self._show_end(
            describe_outcome(result, was_stopped, self._recording.last_log),
            f"{open_key}r again   backspace change it   esc back   q quit   ↑ ↓ scroll",
        )

    def _show_end(self, text: str, keys: str) -> None:
        self.add_class("ended")
        self.set_class(self.result is None or not self.result.traces or self.result.exit_status != 0, "failed")
        self.query_one("#running-end", Static).update(Content(clean(text)))
        self.query_one("#running-keys", Static).update(style_hints(keys))

    def action_show_trace(self) -> None:
        if self.result is not None and self.result.traces:
            self.post_message(self.Recorded(self.result.traces_to_open))

    def action_compare(self) -> None:
        """Open the trace and compare it with the one before; that one is A."""
        if self.result is not None and self.result.traces and self._earlier:
            request = ComparisonRequest(self._earlier, is_other_first=True)
            self.post_message(self.Recorded(self.result.traces_to_open, request))
        elif not self.busy:
            reason = "no trace was recorded" if self._earlier else "no trace was open before this run"
            self.notify(f"nothing to compare: {reason}", markup=False)

    def action_again(self) -> None:
        if not self.busy:
            self.post_message(RunAsked(self.request, self.cwd))

    def action_back(self) -> None:
        if not self.busy:
            self.dismiss()

    def action_page(self, direction: int) -> None:
        console = self.query_one(ConsoleView)
        self.action_move(direction * max(console.size.height - 1, 1))

    def action_move(self, lines: int) -> None:
        self.query_one(ConsoleView).scroll_relative(y=lines, animate=False)

    def action_edge(self, end: bool) -> None:
        console = self.query_one(ConsoleView)
        (console.scroll_end if end else console.scroll_home)(animate=False)


def format_elapsed(seconds: float) -> str:
    """Format a duration: ``3.2 s``, from a minute on ``1:05``, from an hour on ``1:01:05``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, whole_seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{whole_seconds:02}" if hours else f"{minutes}:{whole_seconds:02}"


def describe_outcome(result: RunResult, was_stopped: bool, last_log: str) -> str:
    """Describe how a run ended whose trace is not opened automatically."""
    after = f"after {format_elapsed(result.seconds)}"
    if result.exit_status > 128:
        ending = f"It was ended by signal {result.exit_status - 128} {after}"
    elif result.exit_status:
        ending = f"It failed with exit status {result.exit_status} {after}"
    else:
        ending = f"It ended {after}"
    if result.traces:
        return f"{ending}; what it recorded was kept. Its output is above, and in {result.folder}"
    if was_stopped and result.exit_status == 128 + signal.SIGKILL:
        return f"{ending}, before it saved what it had recorded."
    if was_stopped:
        return f"{ending}, stopped before anything was recorded."
    if result.folder is None:
        return f"{ending}, before anything could be recorded: the reason is above."
    if result.problems:
        return f"{ending}, and the saved files cannot be read: {result.problems[0]}, in {result.folder}"
    last_message = f" Last message of the profiler: {last_log}." if last_log else ""
    return f"{ending}, and there is no trace.{last_message} Its output is above, and in {result.folder}"
