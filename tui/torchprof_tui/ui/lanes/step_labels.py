"""Labels on the ruler: steps with what they served and their duration; seams of folded repeats, also on the lanes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from rich.cells import cell_len

from torchprof_tui.analysis.repetition.repeat_fold import Seam
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.steps import UNKNOWN, ServingStepName, Step
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.name_display import truncate

_DURATION_CELLS = 14  # room for a duration, so that it stands on all steps of a view or on none


def describe_serving(said: ServingStepName) -> str:
    """Describe what a step served: "decode 32", "mixed 66, 2112 tokens"; the tokens where they are not the batch."""
    text = said.kind.value if said.batch == UNKNOWN else f"{said.kind.value} {said.batch}"
    if said.tokens in (UNKNOWN, said.batch):
        return text
    return f"{text}, {said.tokens} tokens"


def format_step_label(step: Step, width: int, of: str = "") -> str:
    """Format the fullest label that fits into some cells: "#3 decode 32 10.8 ms", "#3 D32", "D32"; else cut.

    `of`: what the duration is of, " on CPU".
    """
    number, duration = f"#{step.number}", f"{format_duration(step.duration)}{of}"
    said = step.serving
    if said is None:
        return truncate(f"{number} {duration}" if cell_len(number + of) + _DURATION_CELLS <= width else number, width)
    short, phrase = abbreviate_serving(said), describe_serving(said)
    kind = phrase.partition(",")[0]
    labels = (f"{number} {phrase}  {duration}", f"{number} {kind}  {duration}", f"{number} {kind}", f"{number} {short}")
    return next((label for label in labels if cell_len(label) < width), truncate(short, width))


_PROFILER_STEP = "ProfilerStep#"


def is_numbered_by_profiler(steps: Sequence[Step]) -> bool:
    """Return whether the steps are calls of prof.step(), in order."""
    is_sorted = all(before.number < after.number for before, after in itertools.pairwise(steps))
    return bool(steps) and is_sorted and all(step.name.startswith(_PROFILER_STEP) for step in steps)


def describe_schedule(steps: Sequence[Step]) -> str:
    """Describe by their numbers which steps were recorded: "#0–#1 wait, warmup: not kept · #2–#4 active".

    "" for steps that torch.profiler did not number.
    """
    if not is_numbered_by_profiler(steps):
        return ""
    parts: list[str] = []
    for index, step in enumerate(steps):
        if not index or step.number > steps[index - 1].number + 1:
            parts += filter(None, [describe_skipped(steps, index)])
            parts.append(f"{_format_numbers(step.number, _find_last(steps, index))} active")
    return " · ".join(parts)


def describe_skipped(steps: Sequence[Step], index: int) -> str:
    """Describe the steps between a recorded step and the one before it: "#0–#1 wait, warmup: not kept"; "" for none."""
    first, last = steps[index - 1].number + 1 if index else 0, steps[index].number - 1
    if last < first:
        return ""
    numbers = _format_numbers(first, last)
    if index:
        return f"{numbers} not recorded"
    if first == last:
        return f"{numbers} wait or warmup: not kept"
    # A cycle of the schedule before the first recorded one has as many active steps, and a warm-up.
    earlier = " or earlier cycles" if last >= _find_last(steps, 0) - steps[0].number + 1 else ""
    return f"{numbers} wait, warmup{earlier}: not kept"


def _find_last(steps: Sequence[Step], index: int) -> int:
    """Return the number of the last of the consecutive steps from this one on."""
    number = steps[index].number
    for step in steps[index + 1 :]:
        if step.number != number + 1:
            break
        number = step.number
    return number


def _format_numbers(first: int, last: int) -> str:
    return f"#{first}" if first == last else f"#{first}–#{last}"


def abbreviate_serving(said: ServingStepName) -> str:
    """Abbreviate what a step served: the first letter of its kind and its batch, "D32"."""
    letter = said.kind.value[0].upper()
    return letter if said.batch == UNKNOWN else f"{letter}{said.batch}"


def count_kinds(steps: Sequence[Step]) -> str:
    """Count the steps by kind: "250 decode, 6 prefill", most first; "" without steps of a serving engine."""
    counts: dict[str, int] = {}
    for step in steps:
        said = step.serving
        if said is not None:
            counts[said.kind.value] = counts.get(said.kind.value, 0) + 1
    return ", ".join(f"{counts[kind]} {kind}" for kind in sorted(counts, key=lambda kind: -counts[kind]))


MIN_LABEL_CELLS = 5  # width from which the part of a band between seams has a label
SEAM = "╱"  # a cell of a seam on the lanes and on the ruler


def list_seam_columns(viewport: Viewport) -> list[int]:
    """List the columns that a seam fills."""
    if viewport.fold is None:
        return []
    return [x for part in viewport.list_sections() if part.seam >= 0 for x in range(part.first, part.end)]


def find_seam_time(viewport: Viewport, column: int) -> int:
    """Return the hidden time that has its place in a column of a seam; -1 beside the seams."""
    if viewport.fold is None:
        return -1
    for part in viewport.list_sections():
        if part.first <= column < part.end and part.seam >= 0:
            return min(max(viewport.middle(column), part.t0), part.t1 - 1)
    return -1


def format_seam(seam: Seam, width: int) -> str:
    """Format the fullest label that fits: "× 31 · p50 2.1 ms · p95 2.4 ms" to "×31"; or strokes."""
    count, p50, p95 = f"× {seam.count:,}", format_duration(round(seam.p50)), format_duration(round(seam.p95))
    same_unit = p50.partition(" ")[0] if p50.rpartition(" ")[2] == p95.rpartition(" ")[2] else p50
    labels = (
        f" {count} · p50 {p50} · p95 {p95} ",
        f" {count} p50 {same_unit} p95 {p95} ",
        f" {count} p50 {p50} ",
        f" {count} ",
        count.replace(" ", ""),
    )
    text = next((label for label in labels if cell_len(label) <= width), "")
    return text.center(width, SEAM) if text else SEAM * width


def place_seams(viewport: Viewport, seams: Sequence[Seam]) -> list[tuple[int, str]]:
    """Return (first column, text) of each seam on screen, left to right; seams that share a cell have one."""
    return [
        (part.first, format_seam(seams[part.seam], part.end - part.first))
        for part in viewport.list_sections()
        if part.seam >= 0
    ]


def move_label_beside(band: str, column: int, seams: Sequence[tuple[int, str]]) -> str:
    """Return a band from a column on with its label in the widest part that no seam covers; a character is a cell."""
    end = column + len(band)
    covering = [(first, first + len(text)) for first, text in seams if first < end and first + len(text) > column]
    if not covering:
        return band
    starts = [column, *(last for _, last in covering)]
    parts = zip(starts, [*(first for first, _ in covering), end], strict=True)
    first, last = max(parts, key=lambda part: part[1] - part[0])
    label = truncate(band.strip(), max(last - first - 1, 0)) if last - first > MIN_LABEL_CELLS else ""
    return (" " * (first - column) + label).ljust(len(band))
