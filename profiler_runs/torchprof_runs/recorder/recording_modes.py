"""Recording modes: steps, a window of time, or the whole run. Each decides when a recording begins and ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import torch_capabilities
from .options import DEFAULT_ACTIVE, DEFAULT_REPEAT, DEFAULT_WAIT, DEFAULT_WARMUP, Options
from .schedule import NONE, StepPlan, WholeRunPlan
from .step_detection import FunctionStepCounter, OptimizerStepCounter
from .time_window import TimeWindow

if TYPE_CHECKING:
    from .recording_session import RecordingSession


def create_mode(session: RecordingSession) -> WholeRunMode:
    """Create the mode that the options of `session` ask for."""
    if session.options.is_timed:
        return TimeWindowMode(session)
    return WholeRunMode(session) if session.options.step == "none" else StepsMode(session)


class WholeRunMode:
    """Record everything, from the program's start to its end."""

    def __init__(self, session: RecordingSession) -> None:
        self.session = session

    def find_step_function(self) -> tuple[str | None, Callable[..., Any] | None]:
        """Return the function of ``__main__`` that counts as a step and its decorator, or (None, None)."""
        return None, None

    def install(self) -> None:
        """Install the step counter, before the program runs."""

    def start(self) -> None:
        """Begin recording, or the wait for it; called when the program starts."""
        self.session.recorder.begin(WholeRunPlan())

    def describe_extent(self) -> str:
        """Describe what is recorded before the program is ended; "" where it is recorded to its own end."""
        return ""

    @property
    def step_count(self) -> int:
        """Number of steps that the program has taken."""
        return 0

    def cancel(self) -> None:
        """Prevent recordings that have not begun from beginning."""

    def record_fewer(self, count: int, ends_early: bool) -> None:
        """Record only `count` steps, see `StepPlan`; does nothing where no steps are counted."""

    def abandon(self) -> None:
        """Stop because the program profiles itself; save what the user asked for so far."""
        self.cancel()
        self.session.recorder.close()

    def progress_fields(self) -> dict[str, Any]:
        """Return the fields that every phase report carries besides steps."""
        return {}

    def explain_no_trace(self) -> str:
        """Explain why the run ended with nothing recorded, and what to do."""
        return "torch refused to record"


class TimeWindowMode(WholeRunMode):
    """Record from --after seconds on, for --for seconds."""

    def __init__(self, session: RecordingSession) -> None:
        super().__init__(session)
        options = session.options
        self._optimizer_steps = OptimizerStepCounter(self._on_step)
        self._window = TimeWindow(options.after or 0.0, options.duration, session.main_thread, self._begin, self._end)
        self._start_time = 0.0

    def install(self) -> None:
        self._optimizer_steps.install()

    def start(self) -> None:
        self._start_time = time.monotonic()
        if self._window.after:
            self.session.reporter.report_phase("waiting", **self.progress_fields())
        self._window.start()

    @property
    def step_count(self) -> int:
        return self._optimizer_steps.step_count

    def describe_extent(self) -> str:
        if self._window.duration is None:
            return ""
        return f"{self._window.duration:g} s from {self._window.after:g} s on"

    def cancel(self) -> None:
        self._window.cancel()

    def progress_fields(self) -> dict[str, Any]:
        return {"after_s": self._window.after, "for_s": self._window.duration}

    def explain_no_trace(self) -> str:
        elapsed = time.monotonic() - self._start_time
        if self._window.begun:
            return "torch refused to record"
        if elapsed > self._window.after:
            return "from --after to its end, the program was in native code or still loading torch"
        return f"the program ended after {elapsed:.1f} s, before --after {self._window.after:g} was over"

    def _begin(self) -> None:
        # Mark steps only if the program takes some: a single mark over the whole window would be useless.
        self.session.recorder.begin(
            WholeRunPlan(counts_steps=self._optimizer_steps.step_count > 0), self._optimizer_steps.step_count
        )

    def _on_step(self) -> None:
        self.session.note_step()
        if self.session.recorder.is_active:
            self.session.recorder.step()

    def _end(self) -> None:
        self.session.recorder.close()
        if not self.session.torch_refused:
            self.session.complete_recording()


class StepsMode(WholeRunMode):
    """Record --active steps after --wait and --warmup, of an optimizer or of a function.

    With --step auto, a program without an optimizer is recorded whole. That recording begins at the start, or with a
    GPU present at its first use; it is discarded once the program creates an optimizer.
    """

    def __init__(self, session: RecordingSession) -> None:
        super().__init__(session)
        options = session.options
        self.plan = StepPlan(
            DEFAULT_WAIT if options.wait is None else options.wait,
            DEFAULT_WARMUP if options.warmup is None else options.warmup,
            DEFAULT_ACTIVE if options.active is None else options.active,
            DEFAULT_REPEAT if options.repeat is None else options.repeat,
            options.preflight,
        )
        # Whether the whole run may still be what is recorded. If the plan warms up or records in step 0, the profiler
        # is in use from the start and cannot record the whole run besides.
        self._undecided = options.step == "auto" and self.plan.action(0) == NONE
        self._step_counter: FunctionStepCounter | OptimizerStepCounter
        if options.step in ("auto", "optimizer"):
            self._step_counter = OptimizerStepCounter(self._on_step, self._switch_to_steps)
        else:
            self._step_counter = FunctionStepCounter(_resolve_step_name(options), self._on_step, session.log_once)

    def find_step_function(self) -> tuple[str | None, Callable[..., Any] | None]:
        counter = self._step_counter
        if isinstance(counter, FunctionStepCounter) and counter.module == "__main__":
            return counter.function, counter.decorate
        return None, None

    def install(self) -> None:
        self._step_counter.install()

    def start(self) -> None:
        session = self.session
        if not self._undecided:
            session.recorder.begin(self.plan)
        elif torch_capabilities.is_gpu_present(session.torch):
            # A profiler initializes the CUDA driver. Before the program does so itself, that would break CUDA in the
            # worker processes that it forks.
            session.reporter.report_phase("waiting")
            session.torch.cuda._lazy_call(lambda: session.main_thread.call(self._record_whole_run))
        else:
            self._record_whole_run()

    def describe_extent(self) -> str:
        plan = self.plan
        if not plan.repeat:
            return ""
        first = plan.wait + plan.warmup
        last = first + plan.active - 1
        extent = f"steps {first} to {last}" if last > first else f"step {first}"
        if plan.repeat > 1:
            cycles = f"{plan.repeat - 1} more cycle{'' if plan.repeat == 2 else 's'}"
            extent += f" and {cycles} up to step {plan.cycle_length * plan.repeat - 1}"
        return f"{extent} of its optimizer if it has one" if self._undecided else extent

    @property
    def step_count(self) -> int:
        return self._step_counter.step_count

    def abandon(self) -> None:
        if self._undecided:
            self._undecided = False
            self.session.recorder.discard()
        else:
            super().abandon()

    def cancel(self) -> None:
        self._undecided = False

    def explain_no_trace(self) -> str:
        plan, step_count = self.plan, self._step_counter.step_count
        if step_count == 0 and isinstance(self._step_counter, FunctionStepCounter):
            return f"{self._step_counter.name} was never called (calls from compiled code do not count)"
        if step_count == 0:
            return (
                "no optimizer step was called: use --step MODULE:FUNCTION, --after and --for, or --step none for the "
                "whole run"
            )
        return (
            f"the program took {step_count} step{'' if step_count == 1 else 's'}, but the first "
            f"{plan.wait + plan.warmup} are for --wait and --warmup: use --wait 0 --warmup 0"
        )

    def _record_whole_run(self) -> None:
        if self._undecided and not self.session.yielded_to_program:
            self.session.recorder.begin(WholeRunPlan())

    def _switch_to_steps(self) -> None:
        """Record the steps of the optimizer that was found, instead of the whole run."""
        if self._undecided:
            self._undecided = False
            self.session.main_thread.call(self._begin_steps)

    def record_fewer(self, count: int, ends_early: bool) -> None:
        self.plan.record_fewer(count, ends_early)

    def _begin_steps(self) -> None:
        self.session.recorder.discard(self.session.graph_captures.save_if_captured)
        self.session.recorder.begin(self.plan)

    def _on_step(self) -> None:
        session, recorder = self.session, self.session.recorder
        session.note_step()
        if session.yielded_to_program:
            return
        if recorder.is_on_other_thread:
            session.log_once("steps run in another thread than the recorded one and are not counted")
            return
        self._switch_to_steps()
        recorder.step()
        if self.plan.is_done(recorder.step_number):
            session.complete_recording()


def _resolve_step_name(options: Options) -> str:
    """Return --step MODULE:FUNCTION, with ``__main__`` in place of the program's own module name.

    That name is ``train`` for ``train.py`` and ``a.b`` for ``-m a.b``; the program only ever runs as ``__main__``.
    """
    module, _, function = options.step.partition(":")
    program = options.command[0]
    program_module = program if options.module else os.path.basename(program).removesuffix(".py")
    return f"__main__:{function}" if module == program_module else options.step
