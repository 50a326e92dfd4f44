"""One recorded process from its start to its end."""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Mapping
from typing import Any

from . import rank_environment, rank_launcher, run_folder, target_program, torch_capabilities
from .atomic_files import explain_os_error
from .exit_handlers import ExitHandlers, SaveAbandoned, StopRun, end_with_parent
from .options import DEFAULT_ACTIVE, Options, UsageError, parse_options
from .program_outcome import exit_status, format_exit_status, print_exception
from .status_messages import PARENT_VARIABLE, STATUS_VARIABLE, Reporter

USAGE_EXIT_STATUS = 2  # as the command line's: the input or the call is wrong
MAX_STOP_ATTEMPTS = 3  # times that a program may catch being stopped
LEAVE_WITHIN_SECONDS = 30.0  # seconds that a stopped program has for its threads and exit handlers


def main(argv: list[str]) -> int:
    """Run the command line `argv`; an exit status, where the program's own way out does not raise."""
    environment = dict(os.environ)
    rank = rank_environment.identify_rank(environment)
    parent = environment.get(PARENT_VARIABLE)
    name = "torchprof" if parent is None else "torchprof-tui"
    reporter = Reporter(rank.rank if rank else None, environment.get(STATUS_VARIABLE), name)
    if parent is not None:
        end_with_parent(parent)
    reporter.report_phase("starting")
    try:
        options = parse_options(argv)
        if rank_launcher.is_multi_rank(options):
            return rank_launcher.run_ranks(options, reporter)
        for variable in (
            STATUS_VARIABLE,
            PARENT_VARIABLE,
            run_folder.FOLDER_VARIABLE,
        ):  # between us and the app, not for the program
            os.environ.pop(variable, None)
        torch = torch_capabilities.load_torch()
        return RecordingSession(options, torch, reporter, rank, environment).run()
    except (UsageError, torch_capabilities.NoTorchError) as error:
        reporter.log(str(error))
        reporter.report_phase("done", exit_status=USAGE_EXIT_STATUS, kept=[])
        return USAGE_EXIT_STATUS


def resolve_workload_steps(options: Options) -> Options:
    """`options` for a built-in workload: its own --active, if given, is the number of steps to record too.

    A workload runs as many steps as its --active says after two that wait and warm up; a schedule that needs more
    asks it for them. It ends by itself, so it is not stopped.
    """
    from argparse import ArgumentParser
    from dataclasses import replace

    name, *arguments = options.command
    if options.is_timed or options.step == "none":
        return options
    own = ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--active", type=int)
    said = own.parse_known_args(arguments)[0].active
    wait = target_program.WORKLOAD_WAIT if options.wait is None else options.wait
    warmup = target_program.WORKLOAD_WARMUP if options.warmup is None else options.warmup
    active = options.active or said or DEFAULT_ACTIVE
    needed = (wait + warmup + active) * (options.repeat or 1)
    if said is None:
        arguments += ["--active", str(max(1, needed - target_program.WORKLOAD_WAIT - target_program.WORKLOAD_WARMUP))]
    return replace(
        options,
        command=(name, *arguments),
        wait=wait,
        warmup=warmup,
        active=active,
        step=target_program.WORKLOAD_STEP if options.step == "auto" else options.step,
        then=options.then or "finish",
    )


class RecordingSession:
    """Runs one program under the profiler. All that it puts into the process is inert in a forked child."""

    def __init__(
        self,
        options: Options,
        torch: Any,
        reporter: Reporter,
        rank: rank_environment.RankInfo | None,
        environment: Mapping[str, str],
    ) -> None:
        # These need torch, which is known to be there only now.
        from .manifest import Manifest
        from .profiler_conflict import ProfilerConflictWatcher
        from .profiler_cycles import ProfilerFlags, Recorder, RecorderCallbacks
        from .recording_modes import StepsMode, TimeWindowMode, WholeRunMode
        from .size_estimate import MemoryGuard
        from .time_window import MainThreadCaller
        from .trace_export import TraceExporter

        self.requested_options = options
        self.options = options = resolve_workload_steps(options) if target_program.is_workload(options) else options
        self.torch, self.reporter, self.rank, self._environment = torch, reporter, rank, environment
        self._pid = os.getpid()
        self._finished = False
        self._recorded = False
        self._data_lost = False  # something was recorded that could not be kept, which has been told
        self.torch_refused = False  # by torch, which has been told
        self._stop_count = 0
        self.yielded_to_program = False  # the program profiles itself
        self.logged_notices: set[str] = set()

        flags = ProfilerFlags(**{name: getattr(options, name) for name in ProfilerFlags.__dataclass_fields__})
        self.exit_handlers = ExitHandlers(self.finish, reporter.log)
        self.main_thread = MainThreadCaller()
        self.recorder = Recorder(
            flags,
            RecorderCallbacks(
                save=self._save_cycle,
                measure=self._measure_step,
                report_phase=self._report_phase,
                report_failure=self._report_refusal,
            ),
            self.exit_handlers.hold_signals,
        )
        mode_type = TimeWindowMode if options.is_timed else WholeRunMode if options.step == "none" else StepsMode
        self.mode = mode_type(self)
        self.program = target_program.find_program(options, *self.mode.find_step_function())

        stem = run_folder.make_stem(options.command[0])
        try:
            path = environment.get(run_folder.FOLDER_VARIABLE) or (
                run_folder.join_folder(options.output, stem, rank.launch_id, rank.rank)
                if rank
                else run_folder.create_folder(options.output, stem)
            )
        except OSError as error:
            raise UsageError(f"cannot make a folder in {options.output}: {error.strerror or error}") from error
        self.folder = run_folder.RunFolder(path, stem, rank.rank if rank else None)
        self.reporter.open_log(self.folder.log_path())
        self.manifest = Manifest(
            self.folder.manifest_path(),
            list(options.command) if not options.module else ["-m", *options.command],
            self.requested_options.as_dict(),
            rank.rank if rank else None,
            rank.world_size if rank else 1,
        )
        self.exporter = TraceExporter(self.folder, options.table, self.log, reporter.report_phase)
        self.conflict_watcher = ProfilerConflictWatcher(self.recorder, self._yield_profiler)
        limit = None if options.max_memory is None else options.max_memory * 1_000_000
        self.memory_guard = MemoryGuard(
            limit, lambda growth: self.main_thread.call(lambda: self._end_at_memory_limit(growth))
        )

    # --- the program -------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run the program to its end, however it ends; the exit status, unless what it raises carries that."""
        refused = self.manifest.write()
        if refused is not None:
            raise UsageError(f"cannot write to {self.folder.path}: {explain_os_error(refused)}")
        self.reporter.report_phase("starting", folder=self.folder.path)
        self.exit_handlers.install()
        self.exit_handlers.watch_native_code(self.torch, self.main_thread.call)
        self.conflict_watcher.install()
        atexit.register(self.finish, "finished", 0)
        self.mode.install()
        try:
            self.mode.start()
            self.program.run()
        except StopRun:
            return self._finish_stopped()
        except SystemExit as error:
            self.finish("sys.exit", exit_status(error.code))
            raise
        except KeyboardInterrupt as error:
            self.exit_handlers.interrupted = True
            print_exception(error)
            self.finish("interrupted", -2)
            sys.excepthook = lambda *_: None  # it was shown; Python ends by the signal when it sees it again
            raise
        except BaseException as error:
            print_exception(error)
            self.finish("exception", 1)
            return 1
        if not _has_other_threads():  # else Python waits for them, and the exit handler saves after that
            self.finish("finished", 0)
        return 0

    def _finish_stopped(self) -> int:
        self.finish("stopped", 0)
        if self.rank is not None:
            others = rank_environment.list_local_ranks(self._environment, self.rank)
            rank_environment.wait_for_manifests(
                self.folder.manifest_path(other) for other in others if other != self.rank.rank
            )
        # A thread that the program meant to run for days must not keep a program that is to stop.
        leave = threading.Timer(LEAVE_WITHIN_SECONDS, os._exit, [0])
        leave.daemon = True
        leave.start()
        return 0

    def _stop_program(self) -> None:
        """Raise StopRun in the main thread; a program that keeps catching it is ended."""
        self._stop_count += 1
        if self._stop_count > MAX_STOP_ATTEMPTS:
            self.log("the program caught being stopped each time: ending it")
            self.finish("stopped", 0)
            os._exit(0)
        self.main_thread.call(_raise_stop)

    # --- what the parts say ------------------------------------------------------------------------------------------

    def log(self, text: str) -> None:
        """A line for the user, kept in the manifest too."""
        self.reporter.log(text)
        if hasattr(self, "manifest"):
            self.manifest.facts["messages"].append(text)

    def log_once(self, text: str) -> None:
        """Say it once."""
        if text not in self.logged_notices:
            self.logged_notices.add(text)
            self.log(text)

    def complete_recording(self) -> None:
        """All that was asked for is recorded. Called again after each further step of a program that goes on."""
        if self._finished or self.yielded_to_program:
            return
        first, self._recorded = not self._recorded, True
        if (self.options.then or "stop") == "finish":
            self.reporter.report_phase("running on")
        elif first:
            self.log("recorded what was asked: stopping the program (--then finish lets it go on)")
            self._stop_program()
        elif threading.current_thread() is threading.main_thread():
            self._stop_program()  # it has caught that

    def _report_phase(self, phase: Any) -> None:
        if phase.name in ("measuring", "warming up", "recording"):
            self.memory_guard.start()  # before the profiler is on: its thread is not in the trace
        self.manifest.add_phase(phase)
        self.reporter.report_phase(
            phase.name,
            step=phase.step,
            of=phase.of,
            cycle=phase.cycle,
            cycles=phase.cycles,
            **self.mode.progress_fields(),
        )

    def _save_cycle(self, profile: Any, cycle: Any) -> None:
        self.memory_guard.stop()
        try:
            kept = self.exporter.save_cycle(profile, cycle)
        except SaveAbandoned:
            self._data_lost = True
            self.log(f"gave up saving cycle {cycle.number}")
            return
        if kept is None:
            self._data_lost = True
            self.log(f"nothing of cycle {cycle.number} could be kept")
            return
        self.manifest.add_trace(kept)
        self.manifest.write()
        what = f"steps {cycle.first} to {cycle.last}" if cycle.counted else f"{cycle.seconds:.3g} s"
        part = ", cut off" if kept.partial and not cycle.whole and cycle.counted else ""
        self.log(f"kept {what}{part}: {kept.counts.events:,} events in {kept.trace}")
        missing = torch_capabilities.explain_missing_gpu(self.torch, kept.counts.gpu_events, kept.counts.launches)
        if missing:
            self.log_once(missing)

    def _measure_step(self, profile: Any) -> None:
        from .size_estimate import format_size_estimate, read_available_memory

        step = self.exporter.measure_trace(profile)
        if step is None:
            return
        active = self.options.active or DEFAULT_ACTIVE
        disk = shutil.disk_usage(self.folder.path).free
        text, warning = format_size_estimate(step, active, self.options.with_stack, disk, read_available_memory())
        self.manifest.facts["preflight"] = {
            "events_per_step": step.events,
            "json_bytes_per_step": step.bytes,
            "steps": active,
            "warning": warning,
        }
        self.log(text)

    def _report_refusal(self, error: Exception) -> None:
        self.torch_refused = True
        self.log(f"torch refused to record: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")

    def _yield_profiler(self, made: bool) -> None:
        """The program, or a library in it, is about to use torch's profiler itself."""
        if made and not self.yielded_to_program:
            self.yielded_to_program = True
            self.manifest.facts["script_profiles_itself"] = True
            self.log("the program uses torch.profiler itself: it is left alone, nothing more is recorded here")
            self.mode.abandon()
            self.reporter.report_phase("running on")
        elif self.recorder.is_active:
            self.log("torch's profiler was started by something else: the recording here ends")
            self.recorder.close()

    def _end_at_memory_limit(self, growth: int) -> None:
        if not self.recorder.is_active:
            return
        self.log(
            f"memory grew by {growth / 1e6:,.0f} MB while recording: ending the recording "
            "(record fewer steps, or set --max-memory)"
        )
        self.recorder.close()
        self.complete_recording()

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(self, how: str, status: int | None) -> None:
        """Save what was recorded and say what was kept. The first call counts; in a forked child none does."""
        if self._finished or os.getpid() != self._pid:
            return
        self._finished = True
        self.exit_handlers.is_saving = True
        # A Ctrl-C that came while it was saved: the program is over, and so it ends as it would have.
        with contextlib.suppress(KeyboardInterrupt), self.exit_handlers.hold_signals():
            self.mode.cancel()
            self.memory_guard.stop()
            try:
                if self.recorder.is_on_other_thread:
                    self.log("the recording goes on in a thread that did not come to its end: it cannot be saved")
                self.recorder.close()
            except SaveAbandoned:
                self.log("gave up saving what was recorded")
            self._report_end(how, status)

    def _report_end(self, how: str, status: int | None) -> None:
        facts = self.manifest.facts
        facts["script_traces"] = self.conflict_watcher.script_traces
        if facts["script_traces"]:
            self.log("the program wrote its own: " + ", ".join(facts["script_traces"]))
        elif not facts["kept"] and not (self.yielded_to_program or self._data_lost or self.torch_refused):
            self.log(f"nothing was recorded: {self.mode.explain_no_trace()}")
        facts["environment"] = torch_capabilities.describe_environment(self.torch)
        self.manifest.set_outcome("ended", how, status)
        command = shlex.join(facts["command"])
        kept = len(facts["kept"])
        self.log(
            f"{command}: {how}{format_exit_status(status)} after {facts['seconds']:.1f} s; "
            f"{kept or 'no'} trace{'' if kept == 1 else 's'} kept in {self.folder.path}"
        )
        error = self.manifest.write()
        if error is not None:
            self.reporter.log(f"cannot write {self.folder.manifest_path()}: {explain_os_error(error)}")
        traces = [os.path.join(self.folder.path, each["trace"]) for each in facts["kept"]]
        self.reporter.report_phase("done", exit_status=status, ended=how, kept=traces or facts["script_traces"])


def _raise_stop() -> None:
    raise StopRun


def _has_other_threads() -> bool:
    return any(not thread.daemon and thread is not threading.current_thread() for thread in threading.enumerate())
