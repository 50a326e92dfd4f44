"""What a user asks to compare the open trace with: another trace, another step, another rank."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from torchprof_tui.analysis.compare.step_selection import (
    AUTOMATIC,
    ComparisonError,
    Selections,
    StepSelection,
    parse_step_numbers,
    split_sides,
)
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.specs.address import SAMPLE_PREFIX

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace

COMPARE = "compare with"  # the label of the prompt

FORMS = "path, sample:, host:path · step 3/4 · rank 0/3"  # the accepted forms, for the hint of the empty prompt
SHORT_FORMS = "step 3/4 · rank 0/3"  # the hint beside a name that is being typed


def suggest_forms(text: str) -> str:
    """Return the hint of the prompt for what is typed: a long name leaves no room for all forms."""
    return SHORT_FORMS if text else FORMS


TAKES_FIRST = "enter: the first"
"""The hint where enter takes the first of the choices above the prompt, beside what else may be typed."""

_CHOICE = compile_later(
    r"(?:^|\s)(steps?|ranks?)\s+#?([\d.#/]+)(?:\s+against\s+(?:(?:steps?|ranks?)\s+)?(#?[\d.]+))?\s*$"
)


@record
class ComparisonRequest:
    """The other trace, "" for the open one; the steps and the ranks of A and of B.

    `is_other_first`: the other trace is A, as an earlier recording is. `captures`: of the graphs of the other trace.
    """

    other: str = ""
    steps: Selections = (AUTOMATIC, AUTOMATIC)
    ranks: tuple[int | None, int | None] = (None, None)
    is_other_first: bool = False
    captures: tuple[str, ...] = ()


def list_own_choices(trace: Trace, ranks: Sequence[int]) -> list[tuple[str, str]]:
    """Return (text, note) of comparisons of the open trace with itself: its slowest step, its ranks."""
    steps = [step for step in trace.steps if step.serving is None]
    choices = []
    if len(steps) > 1:
        duration = attrgetter("duration")
        fastest, slowest = min(steps, key=duration), max(steps, key=duration)
        if fastest.duration < slowest.duration:
            choices.append((_format_pair("step", fastest.number, slowest.number), "the fastest and the slowest step"))
        choices += [
            (_format_pair("step", a.number, b.number), "a step and the next one")
            for a, b in pairwise(steps[:MAX_OWN_CHOICES])
        ]
    if len(ranks) > 1:
        choices += [(_format_pair("rank", ranks[0], rank), "two ranks") for rank in ranks[1:MAX_OWN_CHOICES]]
    return list(dict(reversed(choices)).items())[::-1]


MAX_OWN_CHOICES = 5  # steps, and ranks, that are offered: others can be typed


def _format_pair(noun: str, a: int, b: int) -> str:
    return f"{noun} {a} against {noun} {b}"


def take_choice(typed: str, found: Sequence[str]) -> str:
    """Return the first of the choices found for a text that is no request by itself, else the text.

    A path that exists, a host's path and a URL are taken as typed, and so is a whole choice. Reads the disk.
    """
    if not found or typed in found:
        return typed
    try:
        other = parse_request(typed).other
    except ComparisonError:
        return found[0]
    is_elsewhere = ":" in other and not other.startswith(SAMPLE_PREFIX)
    return typed if not other or is_elsewhere or os.path.lexists(os.path.expanduser(other)) else found[0]


def parse_request(text: str) -> ComparisonRequest:
    """Parse "after.json", "step 3/4", "step 3 against step 4", "rank 0/3" or "run/ rank 0 step 3".

    Raises ComparisonError.
    """
    rest = text.strip()
    steps: Selections = (AUTOMATIC, AUTOMATIC)
    ranks: tuple[int | None, int | None] = (None, None)
    while match := _CHOICE.search(rest):
        rest = rest[: match.start()].strip()
        numbers = f"{match[2]}/{match[3]}" if match[3] else match[2]
        if match[1].startswith("step"):
            a, b = map(parse_step_numbers, split_sides(numbers))
            steps = StepSelection(numbers=a), StepSelection(numbers=b)
        else:
            try:
                rank_a, rank_b = (int(part) for part in split_sides(numbers))
            except ValueError:
                raise ComparisonError(f"not ranks: {numbers!r} (write rank 0/3)") from None
            ranks = rank_a, rank_b
    if not rest and steps[0] == steps[1] and ranks[0] == ranks[1]:  # the open trace with itself
        raise ComparisonError("the same on both sides: step 3/4" if text.strip() else f"name a trace: {FORMS}")
    return ComparisonRequest(rest, steps, ranks)
