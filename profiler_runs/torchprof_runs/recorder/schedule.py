"""Plan which steps wait, warm up and are recorded (torch.profiler.schedule), and format messages about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch.profiler

NONE, WARMUP, RECORD, SAVE = "NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"  # the names of ProfilerAction's members


@dataclass(frozen=True)
class Cycle:
    """One recorded cycle, from `first_step` to `last_step`, both included.

    `is_complete`: everything that the plan asked for is in it. `counts_steps`: the program takes steps.
    """

    number: int
    first_step: int
    last_step: int
    is_complete: bool
    counts_steps: bool
    seconds: float


@dataclass(frozen=True)
class Phase:
    """The phase of a run: step `step` (from 1) of `total` in it, both 0 if the phase has no steps."""

    name: str
    step: int = 0
    total: int = 0
    cycle: int = 1
    cycles: int = 1


class RecordingPlan(Protocol):
    """What to do in each step, from step 0.

    `counts_steps`: the program takes steps. `open_ended`: a recording is complete wherever it ends.
    """

    counts_steps: bool
    open_ended: bool

    def action(self, step: int) -> str:
        """Return the name of the ProfilerAction for `step`."""

    def phase(self, step: int) -> Phase:
        """Return the phase to report for `step`."""

    def is_measured(self, step: int) -> bool:
        """Return whether the preflight measures `step`."""


class StepPlan:
    """Plan steps by wait, warmup, active and repeat as torch.profiler.schedule takes them; `repeat` 0 is unlimited."""

    counts_steps, open_ended = True, False

    def __init__(self, wait: int, warmup: int, active: int, repeat: int, preflight: bool = True) -> None:
        self.wait, self.warmup, self.active, self.repeat = wait, warmup, active, repeat
        self.recorded = active  # of the active steps of a cycle, the first ones; `record_fewer` lowers it
        self.cycle_length = wait + warmup + active
        # The first step contains the program's start-up and says nothing about the others, so the preflight measures
        # the last step that waits, if there are at least two.
        self._measured_step = wait - 1 if preflight and wait >= 2 else None
        self._schedule = self._create_schedule()

    def _create_schedule(self) -> Callable[[int], Any]:
        schedule: Callable[[int], Any] = torch.profiler.schedule(
            wait=self.wait,
            warmup=self.warmup or 1,  # torch warns about 0, the user's choice here; `action` skips the extra step
            active=self.active,
            repeat=self.repeat,
        )
        return schedule

    def record_fewer(self, count: int, ends_early: bool) -> None:
        """Record only `count` steps in each cycle. Call it before the first of them.

        `ends_early`: cycles become shorter. Otherwise the plan is done in the same step as before, as all ranks of a
        program must be.
        """
        self.recorded = count
        if ends_early:
            self.active = count
            self.cycle_length = self.wait + self.warmup + count
            self._schedule = self._create_schedule()

    @property
    def total(self) -> int | None:
        """Number of steps until the last one is recorded; None if there is no last one."""
        return self.cycle_length * self.repeat or None

    def is_done(self, step: int) -> bool:
        """Return whether every cycle ends before `step`."""
        return self.repeat > 0 and step >= self.cycle_length * self.repeat

    def action(self, step: int) -> str:
        if self.recorded < self.active and not self.is_done(step):
            active_step = step % self.cycle_length - self.wait - self.warmup
            if active_step >= self.recorded - 1:
                return SAVE if active_step == self.recorded - 1 else NONE
        if self.warmup == 0:
            cycle, position = divmod(step, self.cycle_length)
            # Skip the one warm-up step that the schedule was created with.
            step = cycle * (self.cycle_length + 1) + position + (position >= self.wait)
        return str(self._schedule(step).name)

    def phase(self, step: int) -> Phase:
        cycle, position = divmod(step, self.cycle_length)
        cycle_fields = {"cycle": cycle + 1, "cycles": self.repeat}
        if self.is_done(step):
            return Phase("running on")
        if self.is_measured(step):
            return Phase("measuring", position + 1, self.wait, **cycle_fields)
        if position < self.wait:
            return Phase("waiting", position + 1, self.wait, **cycle_fields)
        if position < self.wait + self.warmup:
            return Phase("warming up", position - self.wait + 1, self.warmup, **cycle_fields)
        if position >= self.wait + self.warmup + self.recorded:
            return Phase("running on")
        return Phase("recording", position - self.wait - self.warmup + 1, self.recorded, **cycle_fields)

    def is_measured(self, step: int) -> bool:
        return step == self._measured_step


class WholeRunPlan:
    """Record everything from the start to the end. With `counts_steps`, steps are marked in the trace."""

    open_ended = True

    def __init__(self, counts_steps: bool = False) -> None:
        self.counts_steps = counts_steps

    def action(self, step: int) -> str:
        return RECORD

    def phase(self, step: int) -> Phase:
        return Phase("recording", step + 1 if self.counts_steps else 0)

    def is_measured(self, step: int) -> bool:
        return False
