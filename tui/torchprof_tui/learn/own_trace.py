"""The findings of any trace as questions: made of what `check` found in it, from the fields of each finding."""

from __future__ import annotations

import zlib

from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.verdict.verdict import Regime
from torchprof_tui.answers.check import Check, Finding
from torchprof_tui.api.trace import Trace
from torchprof_tui.learn.case_file import Case, Question, Target
from torchprof_tui.learn.evidence import CaseError

MAX_QUESTIONS = 8
SHARES = (0.01, 0.05, 0.2)
SHARE_CHOICES = ("less than 1 %", "1 to 5 %", "5 to 20 %", "more than 20 %")
ABSENT_CHOICES = 2

REGIMES = {
    Regime.OVERHEAD: "the CPU: the GPU waits for it to dispatch and launch",
    Regime.COMPUTE: "the GPU: it works nearly all of the time",
    Regime.MIXED: "neither alone: the GPU works and waits by turns",
    Regime.INPUT: "the data loader",
    Regime.COMMUNICATION: "the communication with other GPUs",
    Regime.CPU_ONLY: "the CPU: there is no GPU work",
}
"""Regimes that can be asked for. The first three are offered as choices beside the trace's own."""


def build_own_case(trace: Trace) -> Case:
    """Make a case of an open trace: what limits it, then each problem and what else was found, worst first.

    Raises CaseError where nothing can be asked, TraceError.
    """
    check = trace.check()
    fired = [found for found in (*check.patterns, *check.notes) if found.has_fired and found.evidence]
    fired.sort(key=lambda found: (not found.significant, -found.share))
    questions = [*_ask_regime(check), *(_ask_finding(check, found) for found in fired[: MAX_QUESTIONS - 1])]
    if not questions:
        raise CaseError(f"{trace.label}: nothing was found in it that could be asked: {check.verdict.first}")
    return Case(
        title="What does this trace show?",
        sample=trace.label,
        own="torchprof-tui check prints all of these; c shows them on the screen, for what is on it",
        minutes=max(1, len(questions)),
        order=0,
        questions=tuple(questions),
    )


def _ask_regime(check: Check) -> list[Question]:
    """Ask what limits the program; nothing where the trace cannot tell."""
    verdict = check.verdict
    if verdict.regime not in REGIMES:
        return []
    offered = [regime for place, regime in enumerate(REGIMES) if place < 3 or regime is verdict.regime]
    busy = "" if verdict.gpu_busy is None else f"GPU busy {verdict.gpu_busy * 100:.0f} %. "
    why = f" ({verdict.why})" if verdict.why else ""
    return [
        Question(
            ask="What limits this program?",
            choices=tuple(f"{regime.value}: {REGIMES[regime]}" for regime in offered),
            answer=offered.index(verdict.regime) + 1,
            look="the line at the top, and c: the cheatsheet",
            at=Target(panel="cheatsheet"),
            tell=f"{busy}{verdict.first}{why}",
        )
    ]


def _ask_finding(check: Check, found: Finding) -> Question:
    do = f" Do: {found.action}." if found.action else ""
    tell = f"{found.seen}. Why: {found.meaning}.{do}"
    look = "select one of the events that show it: c, then ↑ ↓ to the finding, n to its events"
    shown = Target(finding=found.id)
    if found.significant:
        right = sum(found.share >= limit for limit in SHARES)
        ask = f"{found.title}: how much of {check.base.label} does it cost here?"
        return Question(ask=ask, choices=SHARE_CHOICES, answer=right + 1, look=look, at=shown, tell=tell)
    absent = [each for each in (*check.patterns, *check.notes) if each.state is State.ABSENT]
    # Others that are not there, always the same ones for a finding; the right one is not always the first.
    absent.sort(key=lambda each: zlib.crc32(f"{found.id} {each.id}".encode()))
    titles = [each.title for each in absent[:ABSENT_CHOICES]]
    place = zlib.crc32(found.id.encode()) % (len(titles) + 1)
    titles.insert(place, found.title)
    return Question(
        ask="Which of these does this trace show?",
        choices=tuple(title[:200] for title in titles),
        answer=place + 1,
        look=look,
        at=shown,
        tell=tell,
    )
