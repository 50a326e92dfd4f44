"""Record a workload or the user's own command and open its trace: `torchprof-tui run`."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from torchprof_tui.answers.recording import build_recording
from torchprof_tui.commands.common import terminal
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.options import reject_undecided_alone
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.open import OpenOptions
from torchprof_tui.commands.open import main as open_command
from torchprof_tui.commands.run import RunOptions
from torchprof_tui.program.terminal_progress import TerminalProgress, notify
from torchprof_tui.runs.history import save_request
from torchprof_tui.runs.recording_request import RecordingRequest, RequestError, remember_interpreter
from torchprof_tui.runs.run_result import RunResult, read_result
from torchprof_tui.runs.status_channel import SAVING_PHASES, SaveProgress, StatusChannel, StatusMessage
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.readable import wait_until_readable

if TYPE_CHECKING:
    from torchprof_tui.commands.run.baseline import Baseline

LINE_INTERVAL_SECONDS = 10.0
"""Between lines about the progress of a save where stderr is no terminal, whose line could be replaced."""

PHASE_DELAY_SECONDS = 1.0  # phases shorter than this are not reported; most steps are shorter
POLL_SECONDS = 0.2  # upper bound on noticing that a run ended without a status message

_TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def run(options: RunOptions) -> int:
    request = RecordingRequest(options.command, options.recording, options.python, options.output)
    try:
        argv = request.argv()
    except RequestError as error:
        raise UsageError(str(error)) from error
    baseline: Baseline | None = None
    if options.compare_to is not None:
        # Imported by name, as commands are: no other recording needs numpy in this process.
        baseline = importlib.import_module("torchprof_tui.commands.run.baseline").find_baseline(
            options.compare_to, options.fail_on, options.undecided, request
        )
    elif options.fail_on is not None:
        raise UsageError("--fail-on compares two recordings: add --compare-to LAST or a trace")
    else:
        reject_undecided_alone(options.fail_on, options.undecided)

    with contextlib.closing(StatusChannel()) as channel:
        result = _record_run(request, argv, channel, quiet=options.json)
    if count := len(result.traces):
        notify(f"recorded {count} trace{'' if count == 1 else 's'}: {' '.join(options.command)}", sys.stderr)
    for problem in result.problems:
        _report(problem)
    if baseline is not None:
        return _report_comparison(baseline, result, options.json)
    if options.json:
        print_answer(build_recording(result))
    elif result.folder is not None:
        _print_result(result)
    opens = not (options.json or options.no_open) and not terminal.find_terminal_problem()
    if opens and result.traces:
        _open_explorer(result, options)
    return result.exit_status


def _report_comparison(baseline: Baseline, result: RunResult, as_json: bool) -> int:
    """Print the result and what changed. A failure of the program comes before the exit status of the comparison."""
    document, status, failure = None, 2, "not compared: no trace was recorded"
    if not as_json and result.folder is not None:
        _print_result(result)
    if result.traces:
        try:
            if not as_json:
                print(flush=True)
            document, status = baseline.compare(result, as_json)
            failure = ""
        except UsageError as error:
            failure = str(error)
    if as_json:
        print_answer(build_recording(result, document, failure))
    if failure:
        _report(failure)
    return result.exit_status or status


def _record_run(request: RecordingRequest, argv: list[str], channel: StatusChannel, quiet: bool) -> RunResult:
    """Run the recording to its end. `quiet` sends the program's stdout to stderr."""
    # On a terminal both processes share it, and ctrl+c reaches both. Without one, the run gets its own session and
    # receives the signals that this process forwards.
    shared = os.isatty(0)
    started = time.monotonic()
    with _SignalForwarder(shared) as signals:
        try:
            process = subprocess.Popen(
                argv,
                env={**os.environ, **channel.environment, **request.search_environment()},
                stdout=2 if quiet else None,
                start_new_session=not shared,
            )
        except OSError as error:
            raise UsageError(f"{argv[0]}: {error.strerror or error}") from error
        signals.process = process
        _relay_status(process, channel, request)
        status = process.wait()
        signals.terminate_group()
    result = read_result(channel.folder, status, time.monotonic() - started, request.command)
    if result.traces:
        remember_interpreter(argv[0])
    return result


def _relay_status(process: subprocess.Popen[bytes], channel: StatusChannel, request: RecordingRequest) -> None:
    """Report each long phase on stderr until the run ends; the run writes its own log lines.

    The request is saved as soon as the run folder exists, so that a killed run can be repeated.
    """
    remembered = False
    latest: StatusMessage | None = None
    since = 0.0
    progress = _ProgressLine()
    while process.poll() is None:
        wait_until_readable([channel.fileno()], POLL_SECONDS)
        now = time.monotonic()
        for said in channel.read():
            if said.rank == 0 and said.phase:
                if latest is None or said.phase != latest.phase:
                    since = now
                latest = said
                progress.update(said)
        if channel.folder is not None and not remembered:
            remembered = True
            save_request(channel.folder, request)
        if progress.show(now):
            since = 0.0
        elif latest is not None and since and now - since > PHASE_DELAY_SECONDS:
            since = 0.0
            if latest.phase not in ("starting", "asking", "done", "running on"):
                _report(latest.text)
    progress.clear()
    channel.read()  # a short run may have reported its folder just now
    if channel.folder is not None and not remembered:
        save_request(channel.folder, request)


class _ProgressLine:
    """The progress of a save on stderr: one line that is replaced in a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._progress = SaveProgress()
        self._phase = ""
        self._is_terminal = os.isatty(2)
        self._shown, self._shown_at = "", 0.0
        self._bar = TerminalProgress(sys.stderr)

    def update(self, message: StatusMessage) -> None:
        self._progress.update(message)
        self._bar.set(message.step / message.of if message.step and message.of else None)
        if message.phase not in SAVING_PHASES or message.phase != self._phase:
            if self._shown:
                os.write(2, b"\x1b[K")
            self._shown, self._shown_at = "", 0.0
        self._phase = message.phase

    def clear(self) -> None:
        """Remove the terminal's own progress bar, which goes on from the start of the run to its end."""
        self._bar.clear()

    def show(self, now: float) -> bool:
        """Show the progress if a save goes on. Returns whether one does."""
        text = self._progress.text(now)
        if not text:
            return False
        if self._is_terminal and text != self._shown:
            # The cursor stays at the start, so that the next line of the run overwrites this one.
            os.write(2, f"\rtorchprof-tui: {clean(text)}\x1b[K\r".encode())
            self._shown = text
        elif not self._is_terminal:
            self._shown_at = self._shown_at or now
            if now - self._shown_at > LINE_INTERVAL_SECONDS:
                self._shown_at = now
                _report(text)
        return True


class _SignalForwarder:
    """Forward termination signals to the run, so that it saves its trace first.

    The first ctrl+c saves, the second abandons the save, the third kills.
    """

    def __init__(self, shared: bool) -> None:
        self._terminal_is_shared = shared
        self._received_signals: list[int] = []
        self._previous_handlers: dict[int, Any] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> _SignalForwarder:
        for signum in (signal.SIGINT, *_TERMINATION_SIGNALS):
            if signal.getsignal(signum) != signal.SIG_IGN:  # ignored, as under nohup
                # A handler and not SIG_IGN, which the run would inherit.
                self._previous_handlers[signum] = signal.signal(signum, self._forward_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._previous_handlers.items():
            signal.signal(signum, handler)

    def _forward_signal(self, signum: int, frame: object) -> None:
        self._received_signals.append(signum)
        if self.process is None:
            return
        if self._received_signals.count(signal.SIGINT) > 2:
            self.process.kill()
        elif signum != signal.SIGINT or not self._terminal_is_shared:
            self.process.send_signal(signum)

    def terminate_group(self) -> None:
        """Send SIGTERM to the run's process group after it ended on a signal."""
        if self._received_signals and not self._terminal_is_shared and self.process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGTERM)


def _print_result(result: RunResult) -> None:
    for kind, paths in (("trace", result.traces), ("table", result.tables), ("memory snapshot", result.snapshots)):
        for path in paths:
            relative = os.path.relpath(path)
            print(f"{kind}  {path if relative.startswith('..') else relative}")


def _open_explorer(result: RunResult, options: RunOptions) -> None:
    shown, recorded = len(result.traces_to_open), len(result.traces)
    if shown < recorded:
        _report(f"opening {shown} of {recorded} traces; the others are in {result.folder}")
    open_command.run(OpenOptions(trace=result.traces_to_open, **options.list_appearance()))


def _report(text: str) -> None:
    os.write(2, f"torchprof-tui: {clean(text)}\n".encode())
