"""One of the two recordings that are compared: a trace and the steps of it that are."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.trace.model.trace import Step, Trace


@dataclass(frozen=True, slots=True)
class Side:
    """A trace and its compared steps. `trace` is that of one rank; times are ns of its own clock.

    Without steps the whole trace is compared as if it were one step: `steps` is empty, and `step_count` is 1.
    """

    trace: Trace
    label: str
    window: tuple[int, int]  # from the start of the first compared step to the end of the last one
    steps: tuple[Step, ...]  # the compared ones, ascending in time; consecutive
    left_out: tuple[str, ...] = ()  # why which steps are not compared, one sentence each

    @property
    def step_count(self) -> int:
        return max(len(self.steps), 1)

    @property
    def duration(self) -> int:
        """The window's length, ns."""
        return self.window[1] - self.window[0]
