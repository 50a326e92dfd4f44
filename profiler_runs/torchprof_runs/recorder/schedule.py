"""Which step waits, warms up and is recorded: torch.profiler.schedule, and what a person is told about each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch.profiler

NONE, WARMUP, RECORD, SAVE = "NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"  # the names of ProfilerAction's members


@dataclass(frozen=True)
class Phase:
    """Where a run is: step `step` (from 1) of `of` in this phase, 0 where nothing is counted."""

    name: str
    step: int = 0
    total: int = 0
    cycle: int = 1
    cycles: int = 1


class RecordingPlan(Protocol):
    """What to do in each step, from step 0.

    `counted` where steps mean something, `open_ended` where any moment is as good an end as another.
    """

    counts_steps: bool
    open_ended: bool

    def action(self, step: int) -> str:
        """The name of the ProfilerAction for `step`."""

    def phase(self, step: int) -> Phase:
        """What a person is told about `step`."""

    def is_measured(self, step: int) -> bool:
        """Whether `step` is the one that the preflight measures."""


class StepPlan:
    """wait, warmup, active, repeat as torch.profiler.schedule takes them; `repeat` 0 goes on for ever."""

    counts_steps, open_ended = True, False

    def __init__(self, wait: int, warmup: int, active: int, repeat: int, preflight: bool = True) -> None:
        self.wait, self.warmup, self.active, self.repeat = wait, warmup, active, repeat
        self.cycle_length = wait + warmup + active
        # The first step holds the program's start and is no measure of the others: it takes a second one to wait.
        self._measured_step = wait - 1 if preflight and wait >= 2 else None
        self._schedule: Callable[[int], Any] = torch.profiler.schedule(
            wait=wait,
            warmup=warmup or 1,  # torch warns about 0, which is the user's choice here; `action` leaves it out
            active=active,
            repeat=repeat,
        )

    @property
    def total(self) -> int | None:
        """Steps until the last one is recorded; None where it goes on for ever."""
        return self.cycle_length * self.repeat or None

    def is_done(self, step: int) -> bool:
        """Whether every cycle lies before `step`."""
        return self.repeat > 0 and step >= self.cycle_length * self.repeat

    def action(self, step: int) -> str:
        if self.warmup == 0:
            cycle, position = divmod(step, self.cycle_length)
            # Skip the one step of warm-up that the schedule was made with.
            step = cycle * (self.cycle_length + 1) + position + (position >= self.wait)
        return str(self._schedule(step).name)

    def phase(self, step: int) -> Phase:
        cycle, position = divmod(step, self.cycle_length)
        place = {"cycle": cycle + 1, "cycles": self.repeat}
        if self.is_done(step):
            return Phase("running on")
        if self.is_measured(step):
            return Phase("measuring", position + 1, self.wait, **place)
        if position < self.wait:
            return Phase("waiting", position + 1, self.wait, **place)
        if position < self.wait + self.warmup:
            return Phase("warming up", position - self.wait + 1, self.warmup, **place)
        return Phase("recording", position - self.wait - self.warmup + 1, self.active, **place)

    def is_measured(self, step: int) -> bool:
        return step == self._measured_step


class WholeRunPlan:
    """Everything from the start to the end; steps are only marks, where `counted`."""

    open_ended = True

    def __init__(self, counts_steps: bool = False) -> None:
        self.counts_steps = counts_steps

    def action(self, step: int) -> str:
        return RECORD

    def phase(self, step: int) -> Phase:
        return Phase("recording", step + 1 if self.counts_steps else 0)

    def is_measured(self, step: int) -> bool:
        return False
