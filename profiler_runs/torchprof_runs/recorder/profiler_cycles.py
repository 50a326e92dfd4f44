"""The profiler, driven through a plan: prepared, started and stopped at the ends of steps, each cycle saved."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.profiler

from .exit_handlers import let_children_exit
from .schedule import NONE, RECORD, SAVE, WARMUP, Phase, RecordingPlan
from .torch_capabilities import quiet_kineto

OWN_PROFILE_ATTRIBUTE = "_torchprof_own"  # an attribute of the profiles that are ours, not the program's


@dataclass(frozen=True)
class Cycle:
    """One stretch that was recorded, from step `first` to step `last`, both within it.

    `whole` where all that the plan asked for is in it; `counted` where steps mean something.
    """

    number: int
    first_step: int
    last_step: int
    is_complete: bool
    counts_steps: bool
    seconds: float


@dataclass(frozen=True)
class ProfilerFlags:
    """What is recorded besides ops and kernels, as torch.profiler.profile names it."""

    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False


@dataclass(frozen=True)
class RecorderCallbacks:
    """Who hears of a recording.

    `save` keeps a cycle, `measure` looks at the step that the preflight measures, `tell` hears where the run is,
    `fail` hears that torch refused, which ends the recording and never the program.
    """

    save: Callable[[Any, Cycle], None]
    measure: Callable[[Any], None]
    report_phase: Callable[[Phase], None]
    report_failure: Callable[[Exception], None]


class Recorder:
    """Records what a plan says. Only the thread that is in it may step or close: a profiler belongs to its thread.

    `held()` is entered around all that must not be interrupted.
    """

    def __init__(
        self,
        flags: ProfilerFlags,
        listeners: RecorderCallbacks,
        hold_signals: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._flags, self._listeners, self._hold_signals = flags, listeners, hold_signals
        self._plan: RecordingPlan | None = None
        self._action = NONE  # what the plan says of this step
        self._state = NONE  # what the profiler is doing: NONE, WARMUP or RECORD
        self._measuring = False  # it is doing so for the preflight
        self._profile: Any = None
        self._step_range: Any = None
        self._thread_id = 0
        self._first_step, self._start_time, self._cycle_count = 0, 0.0, 0
        self._counts_steps = self._open_ended = False  # as the plan says
        self._profiler_used = False
        self.is_creating_profile = False  # a profile that is made now is ours, not the program's
        self.step_number = 0

    @property
    def is_active(self) -> bool:
        """Whether torch's profiler is in use, warming up or recording."""
        return self._state != NONE

    @property
    def is_on_other_thread(self) -> bool:
        """Whether the profiler is on in another thread than this one, which cannot touch it then."""
        return self.is_active and threading.get_ident() != self._thread_id

    def begin(self, plan: RecordingPlan, step: int = 0) -> None:
        """Follow `plan` from now on, which is in step `step`."""
        self._plan, self._counts_steps, self._open_ended = plan, plan.counts_steps, plan.open_ended
        self.step_number = step
        self._thread_id = threading.get_ident()
        self._begin_step(plan, plan.action(step))

    def step(self) -> None:
        """A step has ended, the next one begins."""
        plan = self._plan
        if plan is None or self.is_on_other_thread:
            return
        self._thread_id = threading.get_ident()
        self._close_step_range()
        ended, self.step_number = self._action, self.step_number + 1
        action = plan.action(self.step_number)
        if self._measuring or (self._state == RECORD and ended == SAVE):
            self._stop_profiler(at_step_end=True)
        if self._plan is not None:  # else torch refused
            self._begin_step(plan, action)

    def close(self) -> None:
        """Stop, and save what there is of the cycle that is being recorded. Nothing is recorded after it."""
        self._close_step_range()
        self._plan = None
        if self.is_active and not self.is_on_other_thread:
            self._stop_profiler(at_step_end=False)

    def discard(self) -> None:
        """Stop, and keep nothing of the cycle that is being recorded."""
        self._close_step_range()
        self._plan = None
        if self.is_active and not self.is_on_other_thread:
            self._stop_profiler(at_step_end=False, keep=False)

    def _begin_step(self, plan: RecordingPlan, action: str) -> None:
        """Do what the beginning of this step asks for."""
        self._action = action
        wanted = RECORD if action == SAVE else action
        if plan.is_measured(self.step_number):
            self._measuring, wanted = True, RECORD
        self._listeners.report_phase(plan.phase(self.step_number))
        if wanted != self._state:
            try:
                with self._hold_signals():
                    self._advance_state(wanted)
            except Exception as error:  # whatever torch says, the program goes on
                self._abort_recording(error)
                return
        if self._state == RECORD and plan.counts_steps:
            # Kept before it is opened: a signal that ends the run in between finds it. Holding signals back would cost
            # tens of microseconds, each step.
            self._step_range = torch.autograd.profiler.record_function(f"ProfilerStep#{self.step_number}")
            self._step_range.__enter__()

    def _advance_state(self, wanted: str) -> None:
        """Bring the profiler from doing less to doing `wanted`."""
        self.is_creating_profile = True
        try:
            if self._state == NONE and wanted in (WARMUP, RECORD):
                self._profile = torch.profiler.profile(**vars(self._flags))
                setattr(self._profile, OWN_PROFILE_ATTRIBUTE, True)
                with quiet_kineto(), warnings.catch_warnings():
                    # torch 2.11 warns of losing earlier cycles: each of ours has a profile of its own.
                    warnings.filterwarnings("ignore", "Warning: Profiler clears events", UserWarning)
                    self._profile.prepare_trace()
                if not self._profiler_used:
                    self._profiler_used = True
                    let_children_exit()
                self._state = WARMUP
            if self._state == WARMUP and wanted == RECORD:
                self._profile.start_trace()
                self._state = RECORD
                self._first_step, self._start_time = self.step_number, time.monotonic()
        finally:
            self.is_creating_profile = False

    def _stop_profiler(self, at_step_end: bool, keep: bool = True) -> None:
        """Stop the profiler and hand on what it recorded."""
        profile, state, measuring = self._profile, self._state, self._measuring
        seconds = time.monotonic() - self._start_time
        with self._hold_signals():
            self._profile, self._state, self._measuring = None, NONE, False
            try:
                if state == WARMUP:  # torch can only stop what was started
                    profile.start_trace()
                profile.stop_trace()
            except Exception as error:  # whatever torch says, the program goes on
                self._abort_recording(error)
                return
            if measuring:
                if at_step_end:
                    self._listeners.measure(profile)
            elif state == RECORD and keep:
                self._cycle_count += 1
                # At the end of a step the next one is not in it; cut off within a step, that step's beginning is.
                last = self.step_number - 1 if at_step_end else self.step_number
                whole = at_step_end or self._open_ended
                cycle = Cycle(self._cycle_count, self._first_step, last, whole, self._counts_steps, seconds)
                self._listeners.save(profile, cycle)

    def _abort_recording(self, error: Exception) -> None:
        self._plan, self._profile, self._state, self._measuring = None, None, NONE, False
        self._listeners.report_failure(error)

    def _close_step_range(self) -> None:
        if self._step_range is not None:
            with contextlib.suppress(Exception):  # a signal came before it was open; closing it twice does nothing
                self._step_range.__exit__(None, None, None)
            self._step_range = None
