"""Prepare, start and stop torch.profiler at step boundaries as a plan says, and save each cycle."""

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
from .schedule import NONE, RECORD, SAVE, WARMUP, Cycle, Phase, RecordingPlan
from .torch_capabilities import choose_threads, quiet_kineto

OWN_PROFILE_ATTRIBUTE = "_torchprof_own"  # set on the profiles that the recorder creates


@dataclass(frozen=True)
class ProfilerFlags:
    """What to record besides ops and kernels; the fields are arguments of torch.profiler.profile."""

    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False


@dataclass(frozen=True)
class RecorderCallbacks:
    """Callbacks of a recording.

    `save` saves a cycle, `measure` gets the profile of the step that the preflight measures, `confirm` is called after
    that and may ask the user, `report_phase` gets each new phase, `report_failure` gets an error of torch's, which ends
    the recording but never the program.
    """

    save: Callable[[Any, Cycle], None]
    measure: Callable[[Any], None]
    confirm: Callable[[], None]
    report_phase: Callable[[Phase], None]
    report_failure: Callable[[Exception], None]


class Recorder:
    """Record what a plan says.

    A torch profiler belongs to the thread that started it, so only that thread may call `step` or `close`.
    `hold_signals()` is entered around everything that a signal must not interrupt, with `saves=False` if nothing is
    written in it.
    """

    def __init__(
        self,
        flags: ProfilerFlags,
        callbacks: RecorderCallbacks,
        hold_signals: Callable[..., AbstractContextManager[None]],
    ) -> None:
        self._flags, self._callbacks, self._hold_signals = flags, callbacks, hold_signals
        self._plan: RecordingPlan | None = None
        self._action = NONE  # the plan's action for this step
        self._state = NONE  # what the profiler is doing: NONE, WARMUP or RECORD
        self._measuring = False  # the profiler is on for the preflight
        self._profile: Any = None
        self._step_range: Any = None
        self._thread_id = 0
        self._first_step, self._start_time, self._cycle_count = 0, 0.0, 0
        self._counts_steps = self._open_ended = False  # of the plan
        self._profiler_used = False
        self.is_creating_profile = False  # a profile that is created now is the recorder's, not the program's
        self.step_number = 0

    @property
    def is_active(self) -> bool:
        """Whether torch's profiler is in use, warming up or recording."""
        return self._state != NONE

    @property
    def is_on_other_thread(self) -> bool:
        """Whether the profiler is on in another thread, so that this one cannot stop it."""
        return self.is_active and threading.get_ident() != self._thread_id

    def begin(self, plan: RecordingPlan, step: int = 0) -> None:
        """Follow `plan` from now on, beginning with step `step`."""
        self._plan, self._counts_steps, self._open_ended = plan, plan.counts_steps, plan.open_ended
        self.step_number = step
        self._thread_id = threading.get_ident()
        self._begin_step(plan, plan.action(step))

    def step(self) -> None:
        """End the current step and begin the next one."""
        plan = self._plan
        if plan is None or self.is_on_other_thread:
            return
        self._thread_id = threading.get_ident()
        self._close_step_range()
        last_action, self.step_number = self._action, self.step_number + 1
        was_measuring = self._measuring
        if was_measuring or (self._state == RECORD and last_action == SAVE):
            self._stop_profiler(at_step_end=True)
        if was_measuring:
            self._callbacks.confirm()  # not in `_stop_profiler`, which holds signals: the user may press Ctrl-C
        if self._plan is not None:  # None: torch raised an error, or the user declined
            self._begin_step(plan, plan.action(self.step_number))

    def close(self) -> None:
        """Stop recording for good, and save the current cycle as far as it was recorded."""
        self._close_step_range()
        self._plan = None
        if self.is_active and not self.is_on_other_thread:
            self._stop_profiler(at_step_end=False)

    def discard(self, use: Callable[[Any], None] | None = None) -> None:
        """Stop recording, and drop the current cycle. `use` gets its profile before."""
        self._close_step_range()
        self._plan = None
        if self.is_active and not self.is_on_other_thread:
            self._stop_profiler(at_step_end=False, use_dropped=use or (lambda _: None))

    def _begin_step(self, plan: RecordingPlan, action: str) -> None:
        """Bring the profiler into the state that this step needs, and open the step's range."""
        self._action = action
        target_state = RECORD if action == SAVE else action
        if plan.is_measured(self.step_number):
            self._measuring, target_state = True, RECORD
        self._callbacks.report_phase(plan.phase(self.step_number))
        if target_state != self._state:
            try:
                with self._hold_signals(saves=False):
                    self._advance_state(target_state)
            except Exception as error:  # the user's program continues without a recording
                self._abort_recording(error)
                return
        if self._state == RECORD and plan.counts_steps:
            # Assigned before it is entered, so that a signal that ends the run in between can close it. Holding
            # signals back instead would cost tens of microseconds per step.
            self._step_range = torch.autograd.profiler.record_function(f"ProfilerStep#{self.step_number}")
            self._step_range.__enter__()

    def _advance_state(self, target_state: str) -> None:
        """Advance the profiler to `target_state`, in the order NONE, WARMUP, RECORD."""
        if self._state == NONE and target_state in (WARMUP, RECORD):
            self._profile = self.prepare_profile(self._flags)
            self._state = WARMUP
        if self._state == WARMUP and target_state == RECORD:
            self.start_profile(self._profile)
            self._state = RECORD
            self._first_step, self._start_time = self.step_number, time.monotonic()

    def prepare_profile(self, flags: ProfilerFlags) -> Any:
        """Create a profile of the recorder's own and warm the profiler up; `start_profile` starts it."""
        self.is_creating_profile = True
        try:
            profile = torch.profiler.profile(**vars(flags), **choose_threads(torch, flags.profile_memory))
            setattr(profile, OWN_PROFILE_ATTRIBUTE, True)
            with quiet_kineto(), warnings.catch_warnings():
                # torch 2.11 warns that earlier cycles are lost; here each cycle has a profile of its own.
                warnings.filterwarnings("ignore", "Warning: Profiler clears events", UserWarning)
                profile.prepare_trace()
            if not self._profiler_used:
                self._profiler_used = True
                let_children_exit()
        finally:
            self.is_creating_profile = False
        return profile

    def start_profile(self, profile: Any) -> None:
        """Start a prepared profile."""
        self.is_creating_profile = True
        try:
            profile.start_trace()
        finally:
            self.is_creating_profile = False

    def _stop_profiler(self, at_step_end: bool, use_dropped: Callable[[Any], None] | None = None) -> None:
        """Stop the profiler and pass its profile to the `save` or `measure` callback, else to `use_dropped`."""
        profile, state, measuring = self._profile, self._state, self._measuring
        seconds = time.monotonic() - self._start_time
        with self._hold_signals():
            self._profile, self._state, self._measuring = None, NONE, False
            try:
                if state == WARMUP:  # torch can only stop a profiler that was started
                    profile.start_trace()
                profile.stop_trace()
            except Exception as error:  # the user's program continues without a recording
                self._abort_recording(error)
                return
            if measuring:
                if at_step_end:
                    self._callbacks.measure(profile)
            elif state == RECORD and use_dropped is not None:
                use_dropped(profile)
            elif state == RECORD:
                self._cycle_count += 1
                # `step` has already counted the next step, which is not part of the cycle. A cycle that is cut off
                # within a step contains the beginning of that step.
                last_step = self.step_number - 1 if at_step_end else self.step_number
                is_complete = at_step_end or self._open_ended
                cycle = Cycle(self._cycle_count, self._first_step, last_step, is_complete, self._counts_steps, seconds)
                self._callbacks.save(profile, cycle)

    def _abort_recording(self, error: Exception) -> None:
        self._plan, self._profile, self._state, self._measuring = None, None, NONE, False
        self._callbacks.report_failure(error)

    def _close_step_range(self) -> None:
        if self._step_range is not None:
            with contextlib.suppress(Exception):  # a signal may come before it was entered; closing twice is harmless
                self._step_range.__exit__(None, None, None)
            self._step_range = None
