"""What an answer is worth where the file is not all that was recorded: a slice, or one that lost entries.

What was found is there; what was not found may be what is lost. So a pattern that fires by what is there still does.
One that fires by what is not there, a GPU without work say, cannot be told, and nothing can be told to be absent. Where
idle time was measured and the lost entries are counted and few, it stays what it is.
"""

from __future__ import annotations

from dataclasses import replace

from torchprof_tui.analysis.completeness.data_loss import DataLoss
from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Pattern, State, cannot_tell_answer
from torchprof_tui.analysis.patterns.engine.scope_view import (
    NO_CALLS,
    NO_CPU,
    NO_GPU,
    NO_GPU_HERE,
    NO_LINKS,
    NO_STEPS,
    NOTHING_HERE,
)

PARTIAL_INPUT_NOTE = "of what could be read"

_MISSING_DATA_REASONS = frozenset([NO_CALLS, NO_CPU, NO_GPU, NO_GPU_HERE, NO_LINKS, NO_STEPS, NOTHING_HERE])
"""Reasons that are false of a file that lost just that."""


def qualify_answer(pattern: Pattern, answer: Answer, data_loss: DataLoss) -> Answer:
    """The answer of a file that lost that; unchanged where it lost nothing."""
    if not data_loss:
        return answer
    if answer.state is State.CANNOT_TELL:
        return cannot_tell_answer(format_missing_reason(answer.reason, data_loss))
    if answer.state is State.ABSENT or (pattern.fires_on_absence and is_loss_significant(data_loss)):
        return cannot_tell_answer(data_loss.reason)
    return replace(answer, seen=f"{answer.seen} ({PARTIAL_INPUT_NOTE})")


def reword_for_slice(reason: str) -> str:
    """What a slice lacks may have been recorded: nobody needs to be told how."""
    if reason not in _MISSING_DATA_REASONS:
        return reason
    what = reason.partition(":")[0]
    return what.replace(" was recorded", " lies in this slice").replace(" were recorded", " lie in this slice")


def is_loss_significant(data_loss: DataLoss) -> bool:
    """Whether so much may be missing that idle time says nothing."""
    return data_loss.share > limits.LOST_ENTRIES_SHARE.value


def format_missing_reason(missing: str, data_loss: DataLoss) -> str:
    """Why something cannot be told, where `missing` is what the trace lacks, and the file lost entries."""
    return (
        data_loss.reason
        if missing in _MISSING_DATA_REASONS
        else f"{data_loss.reason}; in what could be read: {missing}"
    )
