"""Explain why a pattern is undecidable: what a trace or a scope lacks, or a file that lost entries.

An event that was found exists; one that was not found may have been lost. So a pattern that fires by events that exist
still fires. One that fires by their absence, e.g. by a GPU without work, is undecidable, and so is every absent
pattern. Measured idle time is kept where the lost entries are counted and few.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torchprof_tui.analysis.completeness.data_loss import DataLoss
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Finding, Pattern, State

NO_GPU = "no GPU activity was recorded"
NO_GPU_HERE = "no GPU work in this range"
NO_CPU = "no ops were recorded on the CPU"
NO_CALLS = "no runtime calls were recorded"
NO_STEPS = "no steps were recorded: call prof.step()"
SERVING_STEPS_ONLY = "the steps are those of a serving engine, which are not judged here"
NO_LOADER_WHILE_SERVING = (
    "no data loader was recorded; a serving engine waits for requests between its steps: see scheduler-bound"
)
NOTHING_HERE = "nothing was recorded in this range"
NO_LINKS = "no launch could be matched with its GPU work"
NO_MEMORY = "no memory was recorded: profile_memory=True"
NO_ADDRESSES = "the records of memory carry no addresses: torch 2 and later record them"


NEEDS_GPU = "needs GPU activity"

_COUNTED = {NEEDS_GPU: "GPU activity", NO_MEMORY: "the records of profile_memory=True"}
"""Reasons of many patterns, which are counted, and what each of them needs."""


def group_undecidable(findings: Iterable[Finding]) -> list[tuple[str, list[str]]]:
    """Group the undecidable findings: (reason, pattern ids) in order of the reason.

    Without GPU activity there are no runtime calls that launch it either: both reasons are one group.
    """
    undecidable = [finding for finding in findings if finding.state is State.CANNOT_TELL]
    is_cpu_only = any(finding.answer.reason == NO_GPU for finding in undecidable)
    groups: dict[str, list[str]] = {}
    for finding in undecidable:
        reason = finding.answer.reason
        if is_cpu_only and reason in (NO_GPU, NO_CALLS):
            reason = NEEDS_GPU
        groups.setdefault(reason, []).append(finding.id)
    return sorted(groups.items())


def describe_group(reason: str, ids: list[str]) -> str:
    """Describe one group: "reason: id, id"; those that many have by their number. As recorded: `clean` it."""
    if reason in _COUNTED:
        return f"{len(ids)} pattern{'s need' if len(ids) != 1 else ' needs'} {_COUNTED[reason]}"
    return f"{reason}: {', '.join(ids)}"


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
        return Answer.cannot_tell(format_missing_reason(answer.reason, data_loss))
    if answer.state is State.ABSENT or (pattern.fires_on_absence and is_loss_significant(data_loss)):
        return Answer.cannot_tell(data_loss.reason)
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
    readable = "" if missing in _MISSING_DATA_REASONS else f"; in the readable part: {missing}"
    return data_loss.reason + readable
