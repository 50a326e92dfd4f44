"""Label a step on the ruler: its number, what a step of a serving engine served, and its duration."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.serving_names import UNKNOWN, ServingStepName
from torchprof_tui.trace.model.steps import Step
from torchprof_tui.ui.common.name_display import truncate

_DURATION_CELLS = 14
"""Room for a duration, so that it stands on all steps of a view or on none."""


def describe_serving(said: ServingStepName) -> str:
    """Describe what a step served: "decode 32", "mixed 66, 2112 tokens"; the tokens where they are not the batch."""
    text = said.kind.value if said.batch == UNKNOWN else f"{said.kind.value} {said.batch}"
    if said.tokens in (UNKNOWN, said.batch):
        return text
    return f"{text}, {said.tokens} tokens"


def format_step_label(step: Step, width: int) -> str:
    """Format the fullest label that fits into some cells: "#3 decode 32 10.8 ms", "#3 D32", "D32"; else cut."""
    number, duration = f"#{step.number}", format_duration(step.duration)
    said = step.serving
    if said is None:
        return truncate(f"{number} {duration}" if cell_len(number) + _DURATION_CELLS <= width else number, width)
    short, phrase = abbreviate_serving(said), describe_serving(said)
    kind = phrase.partition(",")[0]
    labels = (f"{number} {phrase}  {duration}", f"{number} {kind}  {duration}", f"{number} {kind}", f"{number} {short}")
    return next((label for label in labels if cell_len(label) < width), truncate(short, width))


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
