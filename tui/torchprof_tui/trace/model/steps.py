"""The steps of a trace: iterations that the program, or the serving engine that it ran, reported to the profiler."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, U8, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.serving_names import UNKNOWN, ServingStepName, parse_step_name


@dataclass(frozen=True, slots=True)
class Step:
    """One `ProfilerStep#N`, or one step of a serving engine, on a CPU thread.

    `number`: N; of a serving engine its own number where it writes one, else the index by start.
    """

    name: str
    number: int
    event: int
    start: int
    duration: int

    @property
    def serving(self) -> ServingStepName | None:
        """What the step served; None for a `ProfilerStep#N`."""
        return parse_step_name(self.name)


def find_profiler_steps(names: list[str], kind: U8, name: I32, start: I64, duration: I64) -> list[Step]:
    """Find the `ProfilerStep#N` by start; one that several threads recorded counts once, as its longest event."""
    steps: list[Step] = []
    last: dict[str, int] = {}
    events = np.flatnonzero(kind == Kind.STEP)
    for event in events[np.lexsort((-duration[events], start[events]))].tolist():
        title = names[name[event]]
        digits = re.search(r"#([0-9]{1,18})", title)
        step = Step(title, int(digits[1]) if digits else len(steps), event, int(start[event]), int(duration[event]))
        index = last.get(title)
        if index is not None and step.start < steps[index].start + steps[index].duration:
            if step.duration > steps[index].duration:
                steps[index] = step
            continue
        last[title] = len(steps)
        steps.append(step)
    return sorted(steps, key=lambda step: step.start)


def find_serving_steps(names: list[str], kind: U8, name: I32, lane: I32, start: I64, duration: I64) -> list[Step]:
    """Find the steps of a serving engine by start.

    Of annotations inside each other the outermost counts (a step of SGLang may have one of vLLM's form around it), and
    of equal ones at the same time on several threads the longest.
    """
    annotations = np.flatnonzero(kind == Kind.ANNOTATION)
    used = sorted_unique(name[annotations])
    is_step = np.array([parse_step_name(names[index]) is not None for index in used.tolist()], np.bool_)
    events = annotations[np.isin(name[annotations], used[is_step])]
    end_of_lane: dict[int, int] = {}
    end_of_title: dict[str, int] = {}
    found: list[Step] = []
    for event in events[np.lexsort((-duration[events], start[events]))].tolist():
        first, own_lane, title = int(start[event]), int(lane[event]), names[name[event]]
        last = first + max(int(duration[event]), 1)
        if first < end_of_lane.get(own_lane, first) or first < end_of_title.get(title, first):
            continue
        end_of_lane[own_lane] = end_of_title[title] = last
        found.append(Step(title, len(found), event, first, int(duration[event])))
    return _use_own_numbers(found)


def _use_own_numbers(steps: list[Step]) -> list[Step]:
    """Number the steps as the engine does, where it numbers each of them differently."""
    numbers = [UNKNOWN if step.serving is None else step.serving.number for step in steps]
    if UNKNOWN in numbers or len(set(numbers)) < len(numbers):
        return steps
    return [
        Step(step.name, number, step.event, step.start, step.duration)
        for step, number in zip(steps, numbers, strict=True)
    ]
