"""All ranks of a job, as their sketches: who they are, and their steps side by side.

Files that are damaged, or of another run, are named and left out of every figure. What the job is, most of its files
decide: its world size, the time of the recording, its steps, the collectives of each process group and the ops that
run. A file is of another run where it differs from most of the others in one of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np

from torchprof_fleet.analysis.rank_sketch import WHOLE_TRACE, RankSketch
from torchprof_tui.trace.core.arrays import F64, I64
from torchprof_tui.trace.core.problems import DAMAGED_TABLE, INCOMPLETE_STREAM_KINDS
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.communication_kernels import SYNCHRONIZING_OPERATIONS

MAX_REASONS = 3  # files that the line about a fleet without ranks names


class NoRanksError(ValueError):
    """No file is of a rank that can be compared. `str()` is one line for the user."""

    def __init__(self, left_out: Sequence[LeftOut]) -> None:
        shown = "; ".join(each.line for each in left_out[:MAX_REASONS]) or "no traces"
        more = f"; and {len(left_out) - MAX_REASONS:,} more" if len(left_out) > MAX_REASONS else ""
        self.left_out = tuple(left_out)
        super().__init__(f"no rank can be compared: {shown}{more}")


@record(slots=False)
class Fleet:
    """r ranks by number, and the s numbers of steps that any of them has. `hosts`: "" where unknown.

    `left_out`: the files that are not of it.
    """

    sketches: tuple[RankSketch, ...]
    left_out: tuple[LeftOut, ...] = ()

    def __len__(self) -> int:
        return len(self.sketches)

    @cached_property
    def ranks(self) -> I64:
        """int64[r]: numbers of the ranks."""
        return np.array([sketch.rank for sketch in self.sketches], np.int64)

    @cached_property
    def world_size(self) -> int:
        """The ranks of the job as recorded by most; 0 where none says it."""
        sizes = [sketch.world_size for sketch in self.sketches if sketch.world_size]
        return max(sizes, key=sizes.count, default=0)

    @cached_property
    def missing_ranks(self) -> tuple[int, ...]:
        """Numbers below the world size of which no trace is compared."""
        return tuple(sorted(set(range(self.world_size)) - set(self.ranks.tolist())))

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The host of each rank: as recorded, else the ranks that share its node by number, else ""."""
        if all(sketch.host for sketch in self.sketches):
            return tuple(sketch.host for sketch in self.sketches)
        counts = {sketch.device_count for sketch in self.sketches}
        per_host = counts.pop() if len(counts) == 1 else 0
        if not 1 < per_host < self.world_size:
            return tuple(sketch.host for sketch in self.sketches)
        first = self.ranks // per_host * per_host
        return tuple(f"ranks {number}-{number + per_host - 1}" for number in first.tolist())

    @cached_property
    def host_members(self) -> dict[str, I64]:
        """The indexes of the ranks of each known host, hosts by their first rank."""
        members: dict[str, list[int]] = {}
        for index, host in enumerate(self.hosts):
            if host:
                members.setdefault(host, []).append(index)
        return {host: np.array(indexes, np.int64) for host, indexes in members.items()}

    @cached_property
    def steps(self) -> I64:
        """int64[s]: numbers of the steps, ascending."""
        return np.unique(np.concatenate([sketch.steps.number for sketch in self.sketches]))

    def gather_steps(self, field: str) -> F64:
        """Gather a column of `SketchSteps` (or "duration"): float64[r, s] ns, NaN where a rank lacks the step."""
        table = np.full((len(self), len(self.steps)), np.nan)
        for index, sketch in enumerate(self.sketches):
            steps = sketch.steps
            values = steps.end - steps.start if field == "duration" else getattr(steps, field)
            table[index, np.searchsorted(self.steps, steps.number)] = values
        return table

    @cached_property
    def durations(self) -> F64:
        """float64[r, s]: ns of each rank's steps."""
        return self.gather_steps("duration")

    @cached_property
    def step_time(self) -> float:
        """ns: the median over the steps of the median over the ranks."""
        return float(np.nanmedian(np.nanmedian(self.durations, axis=0)))

    def label_rank(self, index: int) -> str:
        """Label a rank for a line of text: `rank 17 (node2)`."""
        host = self.sketches[index].host
        return f"rank {self.ranks[index]}" + (f" ({host})" if host else "")


def build_fleet(sketches: Sequence[RankSketch]) -> Fleet:
    """Build the fleet of the ranks of one job. Raises NoRanksError where no file is of it."""
    members, left_out = select_members(sketches)
    if not members:
        raise NoRanksError(tuple(left_out))
    return Fleet(tuple(members), tuple(left_out))


Value = TypeVar("Value", int, frozenset[int])

MIN_COMMON_STEPS = 0.5
"""Share of the steps of most ranks that a rank must have: a recording may begin or end a step earlier."""

MAX_HOURS_APART = 1.0
"""Hours from the median start of the recordings: ranks record the same steps, and clocks differ by less than that."""

MIN_STEPS_THAT_DIFFER = 2
"""Steps in which a rank must have other collectives: one alone may be cut at the edge of the recording."""

MIN_RANKS_FOR_OPS = 4
COMMON_OPS, MIN_COMMON_OPS = 0.9, 6
"""Share of the ranks that run an op that is common, and how many common ops there must be to compare programs."""

MIN_OWN_OPS = 0.5  # share of the common ops that a rank of the same program runs, whatever its stage
_KNOWN_EPOCH = 10**18  # ns of the epoch in 2001: a smaller time of a first event is no date


@record
class LeftOut:
    """A file, or a name that the user gave, that is not compared. `source`: as named; `reason`: why, one line."""

    source: str
    reason: str

    @property
    def line(self) -> str:
        return f"{self.source}: {self.reason}"

    @classmethod
    def from_line(cls, source: str, line: str) -> LeftOut:
        """Take the source off the begin of a line about it; a source may hold colons."""
        return cls(source, line.removeprefix(f"{source}: "))


def select_members(sketches: Sequence[RankSketch]) -> tuple[list[RankSketch], list[LeftOut]]:
    """Select the ranks of one job, each once, by rank; the others are left out with a reason."""
    left = sorted(sketches, key=lambda each: each.file)
    left_out: list[LeftOut] = []
    for find_reasons in _CHECKS:
        reasons = find_reasons(left)
        left_out += [LeftOut(each.file, reason) for each, reason in zip(left, reasons, strict=True) if reason]
        left = [each for each, reason in zip(left, reasons, strict=True) if not reason]
    return sorted(left, key=lambda each: each.rank), sorted(left_out, key=lambda each: each.source)


def _explain_unusable(sketch: RankSketch) -> str:
    lost = [kind for kind in sketch.problems if kind in INCOMPLETE_STREAM_KINDS or kind == DAMAGED_TABLE]
    if lost:
        return f"not all of it could be read ({', '.join(lost)}): copy or export it again"
    if not (sketch.steps.end > sketch.steps.start).any():
        return "it has no events"
    return "" if sketch.rank >= 0 else "no rank number, neither in distributedInfo nor in its name"


def _find_other_world_sizes(sketches: Sequence[RankSketch]) -> list[str]:
    usual = _find_most_common([each.world_size for each in sketches if each.world_size], 0)
    return [
        f"of another run: its job has {each.world_size:,} ranks, that of most files {usual:,}"
        if each.world_size and each.world_size != usual
        else f"of another run: it is rank {each.rank:,}, the job of most files has {usual:,} ranks"
        if usual and each.rank >= usual
        else ""
        for each in sketches
    ]


def _find_other_times(sketches: Sequence[RankSketch]) -> list[str]:
    known = [each.time_zero for each in sketches if each.time_zero >= _KNOWN_EPOCH]
    if len(known) < 2:
        return [""] * len(sketches)
    usual = sorted(known)[(len(known) - 1) // 2]
    hours = [(each.time_zero - usual) / 3.6e12 if each.time_zero >= _KNOWN_EPOCH else 0.0 for each in sketches]
    return [
        f"of another run: recorded {abs(value):,.1f} h {'after' if value > 0 else 'before'} most files"
        if abs(value) > MAX_HOURS_APART
        else ""
        for value in hours
    ]


def _find_other_steps(sketches: Sequence[RankSketch]) -> list[str]:
    numbers = [frozenset(each.steps.number.tolist()) for each in sketches]
    usual = _find_most_common(numbers, frozenset())
    return [
        ""
        if len(own & usual) >= MIN_COMMON_STEPS * len(usual)
        else f"of another run: its steps are {_describe_steps(own)}, those of most files {_describe_steps(usual)}"
        for own in numbers
    ]


def _describe_steps(numbers: frozenset[int]) -> str:
    first, last = min(numbers, default=WHOLE_TRACE), max(numbers, default=WHOLE_TRACE)
    return "none" if last == WHOLE_TRACE else f"{first} to {last}"


def _find_other_collectives(sketches: Sequence[RankSketch]) -> list[str]:
    """Compare the number of collectives by step and process group: all members of a group run the same ones."""
    counts = [_count_collectives(each) for each in sketches]
    cells = sorted({cell for each in counts for cell in each})
    usual = {}
    for cell in cells:
        present = [each[cell] for each in counts if cell in each]
        if len(present) > 2:
            usual[cell] = _find_most_common(present, 0)
    reasons = []
    for own in counts:
        compared = {cell for cell in own if cell in usual}
        steps = {step for step, _ in compared}
        equal = {step for step, group in compared if own[step, group] == usual[step, group]}
        differing = sorted(compared)[:1] if len(steps) >= MIN_STEPS_THAT_DIFFER and not equal else []
        reasons.append(
            f"of another run: {own[differing[0]]:,} collectives in step {differing[0][0]}, most files "
            f"{usual[differing[0]]:,}"
            if differing
            else ""
        )
    return reasons


def _count_collectives(sketch: RankSketch) -> Counter[tuple[int, str]]:
    """Count the synchronizing collectives by number of the step and process group, of a trace with steps."""
    found = sketch.collectives
    plain = [text.lower().replace("_", "") for text in found.texts]
    synchronizing = np.array([any(word in text for word in SYNCHRONIZING_OPERATIONS) for text in plain] or [False])
    counts: Counter[tuple[int, str]] = Counter()
    rows = zip(found.step.tolist(), found.group.tolist(), found.operation.tolist(), strict=True)
    numbers = sketch.steps.number.tolist()
    for step, group, operation in rows:
        if synchronizing[operation] and numbers[step] != WHOLE_TRACE:
            counts[numbers[step], found.texts[group]] += 1
    return counts


def _find_other_ops(sketches: Sequence[RankSketch]) -> list[str]:
    names = [frozenset(each.ops.names) for each in sketches]
    with_ops = [own for own in names if own]
    if len(with_ops) < MIN_RANKS_FOR_OPS:
        return [""] * len(sketches)
    counts = Counter(name for own in with_ops for name in own)
    common = {name for name, count in counts.items() if count >= min(COMMON_OPS * len(with_ops), len(with_ops) - 1)}
    if len(common) < MIN_COMMON_OPS:
        return [""] * len(sketches)
    return [
        f"of another run: it runs {len(own & common)} of the {len(common)} ops that most files have"
        if own and len(own & common) < MIN_OWN_OPS * len(common)
        else ""
        for own in names
    ]


def _find_duplicates(sketches: Sequence[RankSketch]) -> list[str]:
    first: dict[int, str] = {}
    return [
        "" if first.setdefault(each.rank, each.file) == each.file else f"of rank {each.rank}, as {first[each.rank]} is"
        for each in sketches
    ]


def _find_most_common(values: Sequence[Value], default: Value) -> Value:
    """Find the most common value, of several the first."""
    return Counter(values).most_common(1)[0][0] if values else default


_CHECKS: tuple[Callable[[Sequence[RankSketch]], list[str]], ...] = (
    lambda sketches: [_explain_unusable(sketch) for sketch in sketches],
    _find_other_world_sizes,
    _find_other_times,
    _find_other_steps,
    _find_other_collectives,
    _find_other_ops,
    _find_duplicates,
)
