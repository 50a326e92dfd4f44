"""Qualify answers where the file is not the whole recording: a slice, or a file that lost entries.

An event that was found exists; one that was not found may have been lost. So a pattern that fires by events that exist
still fires. One that fires by their absence, e.g. by a GPU without work, is undecidable, and so is every absent
pattern. Measured idle time is kept where the lost entries are counted and few.
"""

from __future__ import annotations

from dataclasses import replace

from torchprof_tui.analysis.completeness.data_loss import DataLoss
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.missing_data import (
    NO_CALLS,
    NO_CPU,
    NO_GPU,
    NO_GPU_HERE,
    NO_LINKS,
    NO_MEMORY,
    NO_STEPS,
    NOTHING_HERE,
    SERVING_STEPS_ONLY,
)
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Pattern, State, cannot_tell_answer

PARTIAL_INPUT_NOTE = "from the readable part of the file"

_MISSING_DATA_REASONS = frozenset(
    [NO_CALLS, NO_CPU, NO_GPU, NO_GPU_HERE, NO_LINKS, NO_MEMORY, NO_STEPS, NOTHING_HERE, SERVING_STEPS_ONLY]
)
"""Reasons that would be wrong for a file that may have lost the missing data."""


def qualify_answer(pattern: Pattern, answer: Answer, data_loss: DataLoss) -> Answer:
    """Qualify an answer by the file's data loss; unchanged if nothing was lost."""
    if not data_loss:
        return answer
    if answer.state is State.CANNOT_TELL:
        return cannot_tell_answer(format_missing_reason(answer.reason, data_loss))
    if answer.state is State.ABSENT or (pattern.fires_on_absence and is_loss_significant(data_loss)):
        return cannot_tell_answer(data_loss.reason)
    return replace(answer, seen=f"{answer.seen} ({PARTIAL_INPUT_NOTE})")


def reword_for_slice(reason: str) -> str:
    """Reword a reason for a slice: what it lacks may have been recorded, so advice on how to record it is dropped."""
    if reason not in _MISSING_DATA_REASONS:
        return reason
    missing_data = reason.partition(":")[0]
    return missing_data.replace(" was recorded", " is in this slice").replace(" were recorded", " are in this slice")


def is_loss_significant(data_loss: DataLoss) -> bool:
    """Return whether so much may be missing that idle time proves nothing."""
    return data_loss.share > thresholds.LOST_ENTRIES_SHARE.value


def format_missing_reason(missing: str, data_loss: DataLoss) -> str:
    """Explain why a pattern is undecidable in a file that lost entries; `missing` is what the trace lacks."""
    return (
        data_loss.reason if missing in _MISSING_DATA_REASONS else f"{data_loss.reason}; in the readable part: {missing}"
    )
