"""The answer of `hang`: the rank that did not come, its line, and the states of the last collectives."""

from __future__ import annotations

import time
from typing import Annotated

from torchprof_hang.analysis.alignment import Group, align_groups
from torchprof_hang.analysis.diagnosis import Cause, diagnose
from torchprof_hang.analysis.evidence import Evidence
from torchprof_hang.analysis.records import State
from torchprof_tui.answers.record import Answer, Record, about, fill
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration

MAX_FRAMES = 30


class HangFrame(Record, frozen=True, kw_only=True):
    """A Python frame."""

    function: Annotated[str, about("its name")]
    file: Annotated[str, about("as recorded")]
    line: Annotated[int, about("in the file", "")]


class HangState(Record, frozen=True, kw_only=True):
    """The ranks that are in one state."""

    state: Annotated[
        str,
        about(
            "scheduled, started, completed, absent (not called), other op, other size, other dtype, no dump, or "
            "before the dump (the ring buffer no longer has it)"
        ),
    ]
    ranks: Annotated[list[int], about("their numbers")]


class HangCollective(Record, frozen=True, kw_only=True):
    """A collective of a group, on all its ranks."""

    number: Annotated[int, about("in its group, from 1 on", "")]
    operation: Annotated[str, about("with its sizes, as most ranks called it")]
    place: Annotated[str, about("file:line that called it; empty: not recorded")]
    agrees: Annotated[bool, about("whether all ranks have called it, and the same", "")]
    states: Annotated[list[HangState], about("of the ranks")]


class HangGroup(Record, frozen=True, kw_only=True):
    """A process group."""

    name: Annotated[str, about("as torch numbers it")]
    label: Annotated[str, about("what it is for")]
    ranks: Annotated[int, about("in the group, as far as they are known", "")]
    collectives: Annotated[list[HangCollective], about("the latest, as many as --top, oldest first")]


class HangFile(Record, frozen=True, kw_only=True):
    """A file that was not used."""

    source: Annotated[str, about("as named")]
    reason: Annotated[str, about("why, one line")]


class Hang(Answer, frozen=True, kw_only=True, tag="torchprof-tui/hang/1"):
    """Why a job hangs."""

    cause: Annotated[str, about(f"{', '.join(each.value for each in Cause)}")]
    sentence: Annotated[str, about("the cause in one line")]
    action: Annotated[str, about("what to do")]
    ranks: Annotated[list[int], about("at fault; [] for the network, or none")]
    waiting: Annotated[list[int], about("that wait for them, or disagree with them")]
    operation: Annotated[str, about("that was skipped, is wrong, or is waited for; empty: none")]
    group: Annotated[str, about("its process group")]
    number: Annotated[int | None, about("of the operation in its group; null: none", "")]
    place: Annotated[str, about("file:line of the fault; empty: not recorded")]
    since_ns: Annotated[int | None, about("when the first of the others called it, on the Unix clock; null: unknown")]
    waited_us: Annotated[float | None, about("from then to the last dump, or as the watchdog says; null: unknown")]
    before: Annotated[str, about("the rank before the hang, by the traces of --trace; empty: not asked")]
    stack: Annotated[list[HangFrame], about("of the rank at fault, innermost first; []: not recorded")]
    world_size: Annotated[int, about("ranks of the job, as far as they are known", "")]
    missing_ranks: Annotated[list[int], about("of which nothing was found")]
    files: Annotated[int, about("that were used", "")]
    groups: Annotated[list[HangGroup], about("the default group first")]
    failed: Annotated[list[HangFile], about("files that were not used; [] for none")]


ANSWERS = (Hang,)  # what `--json` prints


def build_hang(evidence: Evidence, limit: int, before: str = "") -> Hang:
    """Build the answer, with at most `limit` collectives of each group."""
    groups = align_groups(evidence)
    found = diagnose(evidence, groups)
    known = {rank for rank, each in evidence.records.items() if each.operations or each.threads or each.has_recorder}
    return fill(
        Hang,
        found,
        cause=found.cause.value,
        action=found.cause.action,
        ranks=list(found.ranks),
        waiting=list(found.waiting),
        number=found.number or None,
        since_ns=found.since or None,
        waited_us=found.waited / 1000 if found.waited else None,
        before=before,
        stack=[HangFrame(function=each.name, file=each.file, line=each.line) for each in found.frames[:MAX_FRAMES]],
        world_size=evidence.world_size,
        missing_ranks=[rank for rank in range(evidence.world_size) if rank not in known],
        files=evidence.used,
        groups=[
            HangGroup(
                name=group.name,
                label=group.label,
                ranks=len(group.members),
                collectives=[_build_collective(group, number, evidence) for number in sorted(group.rows)[-limit:]],
            )
            for group in groups.values()
        ],
        failed=[HangFile(source=source, reason=reason) for source, reason in evidence.lost],
    )


def _build_collective(group: Group, number: int, evidence: Evidence) -> HangCollective:
    states: dict[State, list[int]] = {}
    for rank, state in group.list_states(number, evidence.records).items():
        states.setdefault(state, []).append(rank)
    usual = group.find_usual(number)
    return HangCollective(
        number=number,
        operation="" if usual is None else usual.label,
        place="" if usual is None else usual.place,
        agrees=not set(states) & DISAGREEING,
        states=[HangState(state=state.value, ranks=ranks) for state, ranks in states.items()],
    )


DISAGREEING = {State.ABSENT, State.OTHER_OP, State.OTHER_SIZE, State.OTHER_DTYPE, State.NO_DUMP}
"""States that no rank is in where all have called the same."""


def list_facts(hang: Hang) -> list[str]:
    """List since when the others wait, what was before, and what to do: one line each, escaped."""
    facts = []
    if hang.since_ns is not None:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(hang.since_ns / 1e9))
        waited = "" if hang.waited_us is None else f", for {format_duration(hang.waited_us * 1000)} when it was dumped"
        facts.append(f"since {since} UTC{waited}")
    if hang.before:
        facts.append(clean(hang.before))
    return [*facts, hang.action]
