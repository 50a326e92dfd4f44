"""Record one process from its start to its end."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import dataclasses
import importlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import (
    attached,
    hang_watch,
    memory_snapshot,
    rank_environment,
    rank_launcher,
    run_folder,
    target_program,
    torch_capabilities,
)
from .atomic_files import explain_os_error
from .exit_handlers import ExitHandlers, SaveAbandoned, StopRun, end_by_signal, end_with_parent
from .manifest import Manifest
from .options import DEFAULT_ACTIVE, Options, UsageError, parse_options
from .program_outcome import exit_status, format_exit_status, print_exception
from .status_messages import ANSWERS_VARIABLE, PARENT_VARIABLE, STATUS_VARIABLE, Reporter
from .time_window import MainThreadCaller

if TYPE_CHECKING:
    from .profiler_cycles import Recorder
    from .schedule import Cycle, Phase

TRIAL_VARIABLE = "TORCHPROF_TRIAL"
USAGE_EXIT_STATUS = 2  # as in the viewer's command line: the input or the arguments are wrong
MAX_STOP_ATTEMPTS = 3  # times that a program may catch StopRun before it is ended
LEAVE_WITHIN_SECONDS = 30.0  # seconds that a stopped program has for its threads and exit handlers


def main(argv: list[str]) -> int:
    """Run the command line `argv`. Returns the exit status, unless the program's own exception carries it."""
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
        # The program must not see the variables that only the app and the recorder use.
        for variable in (STATUS_VARIABLE, PARENT_VARIABLE, ANSWERS_VARIABLE, run_folder.FOLDER_VARIABLE):
            os.environ.pop(variable, None)
        if options.watch_hang is not None:
            hang_watch.enable_flight_recorder()
        torch = torch_capabilities.load_torch()
        if target_program.is_workload(options) and {"-h", "--help"} & set(options.command[1:]):
            return _print_help(options, reporter)  # without a folder of the run: nothing is recorded
        session = RecordingSession(options, torch, reporter, rank, environment)
    except KeyboardInterrupt:
        return _report_interrupt(reporter)
    except (UsageError, torch_capabilities.NoTorchError) as error:
        return _report_usage_error(reporter, error)
    try:
        return session.run()
    except UsageError as error:
        return _report_usage_error(reporter, error)


def _report_interrupt(reporter: Reporter) -> int:
    """Report that Ctrl-C came while torch was loading, and end as Python does."""
    reporter.log("interrupted before the program began; nothing was recorded")
    reporter.report_phase("done", exit_status=-signal.SIGINT, kept=[])
    end_by_signal(signal.SIGINT)
    return 128 + signal.SIGINT


def _report_usage_error(reporter: Reporter, error: Exception) -> int:
    reporter.log(str(error))
    reporter.report_phase("done", exit_status=USAGE_EXIT_STATUS, kept=[])
    return USAGE_EXIT_STATUS


def _print_help(options: Options, reporter: Reporter) -> int:
    """Run a workload that only prints its options. Returns the exit status."""
    try:
        target_program.find_program(options, None, None).run()
    except SystemExit as error:
        status = exit_status(error.code)
        reporter.report_phase("done", exit_status=status, kept=[])
        return status
    return 0


def resolve_workload_steps(options: Options) -> Options:
    """Return `options` with the schedule of a built-in workload filled in.

    A workload runs one step to wait, one to warm up, and as many more as its own --active says. If the user passed
    --active to the workload, that is also the number of steps to record; otherwise the workload gets an --active that
    is large enough for the schedule. A workload ends by itself, so it is not stopped.
    """
    name, *arguments = options.command
    if options.is_timed or options.step == "none":
        return options
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--active", type=int)
    workload_active = parser.parse_known_args(arguments)[0].active
    wait = target_program.WORKLOAD_WAIT if options.wait is None else options.wait
    warmup = target_program.WORKLOAD_WARMUP if options.warmup is None else options.warmup
    active = options.active or workload_active or DEFAULT_ACTIVE
    steps = (wait + warmup + active) * (options.repeat or 1)
    if workload_active is None:
        arguments += ["--active", str(max(1, steps - target_program.WORKLOAD_WAIT - target_program.WORKLOAD_WARMUP))]
    return dataclasses.replace(
        options,
        command=(name, *arguments),
        wait=wait,
        warmup=warmup,
        active=active,
        step=target_program.WORKLOAD_STEP if options.step == "auto" else options.step,
        then=options.then or "finish",
    )


ADVICE = (
    'add prof.export_chrome_trace("trace.json.gz") after its block, or remove the profiler: run records without one'
)
"""What to do about a program whose own profiler recorded nothing that can be written."""


class RecordingSession:
    """Run one program under the profiler. Everything that it installs in the process does nothing in a forked child."""

    def __init__(
        self,
        options: Options,
        torch: Any,
        reporter: Reporter,
        rank: rank_environment.RankInfo | None,
        environment: Mapping[str, str],
    ) -> None:
        # deferred: these modules import torch, which load_torch() has checked by now.
        from . import (
            child_processes,
            graph_captures,
            profiler_conflict,
            recording_modes,
            size_estimate,
            size_preflight,
            trace_export,
        )

        requested_options = options
        self.options = options = resolve_workload_steps(options) if target_program.is_workload(options) else options
        self.torch, self.reporter, self.rank, self.environment = torch, reporter, rank, environment
        self.preflight = size_preflight.SizePreflight(self)
        self._pid, self._stop_count = os.getpid(), 0
        self._finished = self._recorded = False
        self._data_lost = False  # a cycle was recorded and could not be saved; this has been logged
        self.torch_refused = False  # torch raised an error when asked to record; this has been logged
        self._program_began = self._interrupted_early = self._declined = False
        self._found_no_op = False  # a whole run was recorded, and torch did nothing in it: its trace is removed
        self.yielded_to_program = False  # the program uses torch.profiler itself
        self.logged_notices: set[str] = set()

        self.exit_handlers = ExitHandlers(self.finish, reporter.log)
        self.main_thread = MainThreadCaller()
        self.recorder = self._create_recorder()
        self.mode = recording_modes.create_mode(self)
        # Before the folder is made: an argument that is wrong leaves no empty folder.
        self.program = target_program.find_program(options, *self.mode.find_step_function())

        self.folder = self._create_folder()
        self.reporter.open_log(self.folder.log_path())
        self.manifest = Manifest(
            self.folder.manifest_path(),
            list(options.command) if not options.module else ["-m", *options.command],
            requested_options.as_dict(),
            rank.rank if rank else None,
            rank.world_size if rank else 1,
        )
        self.exporter = trace_export.TraceExporter(
            self.folder, options.table, self.log, reporter.report_phase, self.exit_handlers.allow_skip
        )
        self.snapshot = self._create_snapshot()
        self.hang_watch = self._create_hang_watch()
        self.children = child_processes.ChildProcessCounter()
        self.conflict_watcher = profiler_conflict.ProfilerConflictWatcher(self.recorder, self._yield_profiler)
        limit = None if options.max_memory is None else options.max_memory * 1_000_000
        self.graph_captures = graph_captures.GraphCaptureRecorder(self, run_folder.CaptureFolder(self.folder))
        self.memory_guard = size_estimate.MemoryGuard(
            limit, lambda growth: self.main_thread.call(lambda: self._end_at_memory_limit(growth))
        )

    def _create_recorder(self) -> Recorder:
        from . import profiler_cycles  # deferred: needs torch

        flag_names = profiler_cycles.ProfilerFlags.__dataclass_fields__
        self.flags = profiler_cycles.ProfilerFlags(**{name: getattr(self.options, name) for name in flag_names})
        callbacks = profiler_cycles.RecorderCallbacks(
            save=self._save_cycle,
            measure=self.preflight.measure,
            confirm=self.preflight.confirm,
            report_phase=self._report_phase,
            report_failure=self._report_refusal,
        )
        return profiler_cycles.Recorder(self.flags, callbacks, self.exit_handlers.hold_signals)

    def _create_hang_watch(self) -> hang_watch.HangWatch | None:
        rank, seconds = self.rank, self.options.watch_hang
        if seconds is None:
            return None
        folder = os.path.join(self.folder.path, hang_watch.FOLDER)
        number, world_size = (rank.rank, rank.world_size) if rank else (0, 1)
        return hang_watch.HangWatch(folder, number, world_size, seconds, self.log)

    def _create_snapshot(self) -> memory_snapshot.MemorySnapshot | None:
        if not self.options.memory_snapshot:
            return None
        return memory_snapshot.MemorySnapshot(self.torch, self.folder.snapshot_path(), self.log)

    def _create_folder(self) -> run_folder.RunFolder:
        """Make or join the run's folder. Raises UsageError where it cannot be made."""
        options, rank = self.options, self.rank
        stem = run_folder.make_stem(options.command[0])
        try:
            path = self.environment.get(run_folder.FOLDER_VARIABLE) or (
                run_folder.join_folder(options.output, stem, rank.launch_id, rank.rank)
                if rank
                else run_folder.create_folder(options.output, stem)
            )
        except OSError as error:
            raise UsageError(f"cannot make a folder in {options.output}: {error.strerror or error}") from error
        return run_folder.RunFolder(path, stem, rank.rank if rank else None)

    # --- running the program -----------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run the program to its end. Returns the exit status, unless the exception that it raises carries it."""
        write_error = self.manifest.write()
        if write_error is not None:
            raise UsageError(f"cannot write to {self.folder.path}: {explain_os_error(write_error)}")
        self.reporter.report_phase("starting", folder=self.folder.path)
        self.exit_handlers.install()
        self.exit_handlers.watch_native_code(self.torch, self.main_thread.call)
        self.conflict_watcher.install()
        atexit.register(self.finish, "finished", 0)
        self.mode.install()
        self.graph_captures.install()
        self.children.install()
        if self.snapshot is not None:
            self.snapshot.start()
        if self.hang_watch is not None:
            self.hang_watch.start()
            with contextlib.suppress(OSError):
                attached.listen(self.hang_watch)
        try:
            self._announce_end()
            self.mode.start()
            self._program_began = True
            self._prepare_trial()
            self.program.run()
        except StopRun:
            return self._finish_stopped()
        except SystemExit as error:
            self.finish("sys.exit", exit_status(error.code))
            raise
        except KeyboardInterrupt as error:
            self.exit_handlers.interrupted = True
            self._finish_interrupted(error)
            sys.excepthook = lambda *_: None  # it was printed; Python ends by the signal when it is raised again
            raise
        except BaseException as error:
            print_exception(error)
            self._end_hang_watch("exception", error)
            self.finish("exception", 1)
            return 1
        if not _has_other_threads():  # otherwise Python joins them first, and the exit handler saves after that
            self.finish("finished", 0)
        return 0

    def _prepare_trial(self) -> None:
        """Apply the remedies of `torchprof-tui try` whose effect is recorded, if there are any."""
        spec = os.environ.pop(TRIAL_VARIABLE, None)
        if spec is not None:
            importlib.import_module(".trial", __package__).prepare_recording(spec)

    @property
    def ends_program(self) -> bool:
        """Whether the program is ended when all that was requested is recorded."""
        # A watched job runs on: it hangs after the recording, if at all.
        return (self.options.then or ("stop" if self.hang_watch is None else "finish")) == "stop"

    def _announce_end(self) -> None:
        """Log before the program starts that it is ended after the recording, and how to let it run on."""
        extent = self.mode.describe_extent()
        if extent and self.ends_program and (self.rank is None or self.rank.rank == 0):
            self.reporter.log(f"records {extent}, then ends the program (--keep-going lets it run on)")

    def _finish_interrupted(self, error: KeyboardInterrupt) -> None:
        """Save what was recorded, and show the program's traceback unless it was interrupted before there was any."""
        if self.mode.step_count:
            print_exception(error)  # first: the save may take long
            self.finish("interrupted", -2)
            return
        self._interrupted_early = True
        if not self._program_began:
            with self.exit_handlers.hold_signals(saves=False):
                self.recorder.discard()
        self.finish("interrupted", -2)
        if self.manifest.facts["kept"] or self.manifest.facts["script_traces"]:
            print_exception(error)

    def _finish_stopped(self) -> int:
        self.finish("stopped", 0)
        if self.rank is not None:
            local_ranks = rank_environment.list_local_ranks(self.environment, self.rank)
            rank_environment.wait_for_manifests(
                self.folder.manifest_path(rank) for rank in local_ranks if rank != self.rank.rank
            )
        # A thread that never ends must not keep a stopped program running.
        exit_timer = threading.Timer(LEAVE_WITHIN_SECONDS, os._exit, [0])
        exit_timer.daemon = True
        exit_timer.start()
        return 0

    def _stop_program(self) -> None:
        """Raise StopRun in the main thread; end the process if the program keeps catching it."""
        self._stop_count += 1
        if self._stop_count > MAX_STOP_ATTEMPTS:
            self.log("the program ignored all requests to stop: terminating it")
            self.finish("stopped", 0)
            os._exit(0)
        self.main_thread.call(_raise_stop)

    def note_step(self) -> None:
        """Note the end of a step for the watch of hangs."""
        if self.hang_watch is not None:
            self.hang_watch.note_step()

    def _end_hang_watch(self, reason: str, error: BaseException | None = None) -> None:
        if self.hang_watch is not None:
            self.hang_watch.finish(reason, error)
            self.hang_watch = None

    # --- callbacks of the recorder, the mode and the guards ----------------------------------------------------------

    def log(self, text: str) -> None:
        """Log a line for the user, also in the manifest."""
        self.reporter.log(text)
        if hasattr(self, "manifest"):
            self.manifest.facts["messages"].append(text)

    def log_once(self, text: str) -> None:
        """Log a line unless it was logged before."""
        if text not in self.logged_notices:
            self.logged_notices.add(text)
            self.log(text)

    def complete_recording(self) -> None:
        """End the run, or report that it goes on: all that was requested is recorded.

        Called again after each further step of a program that goes on.
        """
        if self._finished or self.yielded_to_program:
            return
        is_first_call, self._recorded = not self._recorded, True
        if not self.ends_program:
            self.reporter.report_phase("running on")
            if is_first_call:  # before, its profiler would be in the way of this one
                self.main_thread.call(lambda: (attached.install(), None)[1])
        elif is_first_call:
            self.log("recording complete: stopping the program (--keep-going lets it run on)")
            self._stop_program()
        elif threading.current_thread() is threading.main_thread():
            self._stop_program()  # the program caught the first StopRun

    def _report_phase(self, phase: Phase) -> None:
        if phase.name in ("measuring", "warming up", "recording"):
            self.memory_guard.start()  # before the profiler starts, so that the guard's thread is not in the trace
        self.manifest.add_phase(phase)
        self.reporter.report_phase(
            phase.name,
            step=phase.step,
            of=phase.total,
            cycle=phase.cycle,
            cycles=phase.cycles,
            **self.mode.progress_fields(),
        )

    def _save_cycle(self, profile: Any, cycle: Cycle) -> None:
        self.memory_guard.stop()
        try:
            saved = self.exporter.save_cycle(profile, cycle, self.preflight.expected_bytes)
        except SaveAbandoned:
            self._data_lost = True
            self.log(f"stopped without saving cycle {cycle.number}")
            return
        if saved is not None and not cycle.counts_steps and not self.options.is_timed and saved.counts.is_empty:
            self._found_no_op = True
            for path in (saved.trace, saved.table, saved.averages):
                if path is not None:
                    os.unlink(path)
            return
        if saved is None:
            self._data_lost = True
            self.log(f"cycle {cycle.number} could not be saved")
            return
        self.manifest.add_trace(saved)
        self.manifest.write()
        extent = f"steps {cycle.first_step} to {cycle.last_step}" if cycle.counts_steps else f"{cycle.seconds:.3g} s"
        cut_off = ", cut off" if saved.partial and not cycle.is_complete and cycle.counts_steps else ""
        self.log(f"kept {extent}{cut_off}: {saved.counts.events:,} events in {saved.trace}")
        missing_gpu = torch_capabilities.explain_missing_gpu(self.torch, saved.counts.gpu_events, saved.counts.launches)
        if missing_gpu:
            self.log_once(missing_gpu)

    def decline_recording(self) -> None:
        """Stop the program with nothing recorded, because the user wants no trace of this size."""
        self._declined = True
        self.log("nothing is recorded, as you chose: stopping the program (--active, --max-size)")
        self.mode.abandon()
        self._stop_program()

    def _report_refusal(self, error: Exception) -> None:
        self.torch_refused = True
        self.log(f"torch refused to record: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")

    def _yield_profiler(self, is_creation: bool) -> None:
        """End the recording because the program, or a library in it, is about to use torch's profiler itself."""
        if is_creation and not self.yielded_to_program:
            self.yielded_to_program = True
            self.manifest.facts["script_profiles_itself"] = True
            self.log("the program uses torch.profiler itself: this recording ends, and the program continues")
            self.mode.abandon()
            self.graph_captures.disable()
            self.reporter.report_phase("running on")
        elif self.recorder.is_active:
            self.log("other code started torch's profiler: this recording ends")
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

    # --- the end of the run ------------------------------------------------------------------------------------------

    def finish(self, end_reason: str, status: int | None) -> None:
        """Save what was recorded and report what was kept, once. Does nothing in a forked child."""
        if self._finished or os.getpid() != self._pid:
            return
        self._finished = True
        self._end_hang_watch(end_reason)
        self.exit_handlers.is_saving = True
        # A Ctrl-C during the save is dropped: the program has ended already, and its exit status stays.
        with contextlib.suppress(KeyboardInterrupt), self.exit_handlers.hold_signals():
            self.mode.cancel()
            self.memory_guard.stop()
            try:
                if self.recorder.is_on_other_thread:
                    self.log("the recorded thread did not end: the recording cannot be saved")
                self.recorder.close()
            except SaveAbandoned:
                self.log("stopped without saving what was recorded")
            if self.snapshot is not None:
                self.manifest.facts["memory_snapshot"] = self.snapshot.save()
            self._report_end(end_reason, status)

    @property
    def _explained_no_trace(self) -> bool:
        """Whether a line has already said why nothing is kept."""
        return self.yielded_to_program or self._data_lost or self.torch_refused or self._declined

    def _report_end(self, end_reason: str, status: int | None) -> None:
        facts = self.manifest.facts
        facts["captures"] = [os.path.relpath(path, self.folder.path) for path in self.graph_captures.files]
        kept = self.conflict_watcher.export_unwritten(self.folder.trace_path(), self.folder.table_path())
        facts["script_traces"] = self.conflict_watcher.script_traces
        for line in self.children.describe():
            self.log(line)
        if kept:
            self.log(f"the program's profiler wrote no trace: what it recorded was written to {kept}")
        elif facts["script_traces"]:
            self.log("the program wrote its own: " + ", ".join(facts["script_traces"]))
        elif self.yielded_to_program:
            self.log(f"the program's profiler left no trace: {ADVICE}")
        elif not (facts["kept"] or self._interrupted_early or self._explained_no_trace):
            reason = "torch did nothing in this process" if self._found_no_op else self.mode.explain_no_trace()
            if end_reason == "exception" and self.mode.step_count:
                reason = f"the exception came after {self.mode.step_count} steps, before those to record"
            self.log(f"nothing was recorded: {reason}")
        facts["environment"] = torch_capabilities.describe_environment(self.torch)
        self.manifest.set_outcome("ended", end_reason, status)
        command = shlex.join(facts["command"])
        count = len(facts["kept"])
        ended = f"{command}: {end_reason}{format_exit_status(status)} after {facts['seconds']:.1f} s"
        if count or not facts["script_traces"]:
            ended += f"; {count or 'no'} trace{'' if count == 1 else 's'} kept in {self.folder.path}"
        if self._interrupted_early and not count:
            moment = "the first step" if self._program_began else "the program began"
            ended = f"{command}: interrupted before {moment}; nothing was recorded"
        self.log(ended)
        error = self.manifest.write()
        if error is not None:
            self.reporter.log(f"cannot write {self.folder.manifest_path()}: {explain_os_error(error)}")
        traces = [os.path.join(self.folder.path, entry["trace"]) for entry in facts["kept"]]
        self.reporter.report_phase("done", exit_status=status, ended=end_reason, kept=traces or facts["script_traces"])


def _raise_stop() -> None:
    raise StopRun


def _has_other_threads() -> bool:
    return any(not thread.daemon and thread is not threading.current_thread() for thread in threading.enumerate())
