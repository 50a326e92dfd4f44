"""What an answer is worth where the file is not all that was recorded: a slice, or one that lost entries.

What was found is there; what was not found may be what is lost. So a pattern that fires by what is there still does.
One that fires by what is not there, a GPU without work say, cannot be told, and nothing can be told to be absent. Where
idle time was measured and the lost entries are counted and few, it stays what it is.
"""

from __future__ import annotations

from dataclasses import replace

from torchprof_tui.analysis.data_loss import Losses
from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Pattern, State, cannot_tell
from torchprof_tui.analysis.patterns.engine.scope_view import (
    NO_CALLS,
    NO_CPU,
    NO_GPU,
    NO_GPU_HERE,
    NO_LINKS,
    NO_STEPS,
    NOTHING_HERE,
)

OF_WHAT_WAS_READ = "of what could be read"

_NOTHING = frozenset([NO_CALLS, NO_CPU, NO_GPU, NO_GPU_HERE, NO_LINKS, NO_STEPS, NOTHING_HERE])
"""Reasons that are false of a file that lost just that."""


def weighed(pattern: Pattern, answer: Answer, lost: Losses) -> Answer:
    """The answer of a file that lost that; unchanged where it lost nothing."""
    if not lost:
        return answer
    if answer.state is State.CANNOT_TELL:
        return cannot_tell(why(answer.reason, lost))
    if answer.state is State.ABSENT or (pattern.by_absence and proves_little(lost)):
        return cannot_tell(lost.reason)
    return replace(answer, seen=f"{answer.seen} ({OF_WHAT_WAS_READ})")


def of_a_slice(reason: str) -> str:
    """What a slice lacks may have been recorded: nobody needs to be told how."""
    if reason not in _NOTHING:
        return reason
    what = reason.partition(":")[0]
    return what.replace(" was recorded", " lies in this slice").replace(" were recorded", " lie in this slice")


def proves_little(lost: Losses) -> bool:
    """Whether so much may be missing that idle time says nothing."""
    return lost.share > limits.LOST_SHARE.value


def why(missing: str, lost: Losses) -> str:
    """Why something cannot be told, where `missing` is what the trace lacks, and the file lost entries."""
    return lost.reason if missing in _NOTHING else f"{lost.reason}; in what could be read: {missing}"
