"""Find what is wrong with a fleet: slow GPUs and hosts, late ranks, one-off stalls, growing steps, unbalanced parts.

Each is a difference to the median rank that is both large and far outside what the other ranks vary by, so that a job
in which all ranks are equally slow has none of them. What one rank alone loses is for `check`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from functools import cached_property

import numpy as np

from torchprof_fleet.analysis.fleet import Fleet
from torchprof_fleet.analysis.rank_sketch import DurationQuantiles
from torchprof_fleet.analysis.waits import MatchedSketches, find_medians, measure_groups
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.trace.core.arrays import F64, I64, Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration

MIN_RUNS = 10  # runs of an op on a rank: fewer have no steady median
MIN_RANK_SHARE = 0.9  # share of the ranks that must run an op for a comparison of it
MIN_NAMES = 3  # ops or classes to compare: fewer do not describe a machine


@record(slots=False)
class Speed:
    """How slow each rank is, for n names. `factor` float64[r]: 1 for the median rank, 2 for half as fast; NaN: unknown.

    `ratio` float64[r, n]: of each name, over that of the median rank; NaN where a rank did not run it.
    """

    names: tuple[str, ...]
    factor: F64
    ratio: F64

    def rank_names(self, members: Sequence[int]) -> list[tuple[str, float]]:
        """Return all names with the median ratio of some ranks (indexes), the slowest first; without unknown ones."""
        chosen = np.asarray(list(members), np.int64)
        pairs = []
        for name, ratios in zip(self.names, self.ratio[chosen].T, strict=True):
            if (ratio := find_median(ratios)) is not None:
                pairs.append((name, ratio))
        return sorted(pairs, key=lambda pair: -pair[1])


def compare_gpus(fleet: Fleet) -> Speed:
    """Compare the time of kernels by class, by their mean duration; a class counts by its time on the median rank."""
    names, count, total, _ = _gather(fleet, [sketch.kernels for sketch in fleet.sketches])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(count > 0, total / count, np.nan)
    names, mean, total = _select(names, mean, count, total, 1)
    if not names:
        return Speed((), np.full(len(fleet), np.nan), np.zeros((len(fleet), 0)))
    ratio = mean / np.nanmedian(mean, axis=0)
    weight = np.where(np.isnan(ratio), 0.0, np.median(total, axis=0))
    factor = np.nansum(ratio * weight, axis=1) / np.maximum(weight.sum(axis=1), 1)
    return Speed(names, factor, ratio)


def compare_cpus(fleet: Fleet) -> Speed:
    """Compare the median time of each op without what it calls; a rank's factor is the median over the ops."""
    names, count, total, median = _gather(fleet, [sketch.ops for sketch in fleet.sketches])
    with np.errstate(invalid="ignore"):
        median = np.where(count >= MIN_RUNS, median, np.nan)
    names, median, _ = _select(names, median, count, total, MIN_RUNS)
    if len(names) < MIN_NAMES:
        return Speed((), np.full(len(fleet), np.nan), np.zeros((len(fleet), 0)))
    ratio = median / np.nanmedian(median, axis=0)
    return Speed(names, np.nanmedian(ratio, axis=1), ratio)


def _gather(fleet: Fleet, tables: Sequence[DurationQuantiles]) -> tuple[tuple[str, ...], F64, F64, F64]:
    """Gather runs, total ns and median ns (over the steps) of all names: float64[r, n] each, 0 or NaN without runs."""
    index_of: dict[str, int] = {}
    codes = [np.array([index_of.setdefault(name, len(index_of)) for name in each.names] or [0]) for each in tables]
    shape = (len(fleet), len(index_of))
    count, total, median = np.zeros(shape), np.zeros(shape), np.full(shape, np.nan)
    for index, (table, code) in enumerate(zip(tables, codes, strict=True)):
        name = code[table.name]
        count[index] = np.bincount(name, table.count, shape[1])
        total[index] = np.bincount(name, table.total, shape[1])
        used, medians = find_medians(name, table.median)
        median[index, used] = medians
    return tuple(index_of), count, total, median


def _select(names: Sequence[str], values: F64, count: F64, total: F64, runs: int) -> tuple[tuple[str, ...], F64, F64]:
    """Select the names that nearly all ranks ran often enough, and that take any time."""
    common = (count >= runs).mean(axis=0) >= MIN_RANK_SHARE
    common &= (total > 0).mean(axis=0) >= MIN_RANK_SHARE
    with np.errstate(all="ignore"):
        common &= np.nanmedian(np.where(common, values, 0.0), axis=0) > 0
    kept = np.flatnonzero(common)
    return tuple(names[index] for index in kept.tolist()), values[:, kept], total[:, kept]


SLOW_GPU = 1.08  # factor from which a GPU is slow: GPUs of one kind differ by some 5 % with temperature and power
SLOW_CPU = 1.15  # factor from which a CPU is slow, as for the ranks of one trace (`host_speed`)
LATE_SHARE = 0.03  # share of a step by which a rank must be late in most steps
STALL_SHARE = 0.1  # share of a step by which a rank must be later than it usually is for a one-off stall

STALL_SHARE_OF_SLOW = 0.3  # the same for ranks that are slow or late anyway, whose lateness varies with the steps
HOST_SHARE = 0.75  # share of a host's ranks that must have a fault for it to be the host's

OUTLIER_DEVIATIONS = 6.0  # robust standard deviations from the median rank: among thousands of ranks chance gives less
FEW_RANKS = 16  # below this many, each rank is compared with the others alone

MIN_RANKS_FOR_SPEED = 4  # of two or three ranks with machines of unequal speed nobody can say which is the odd one
MIN_IDLE_SHARE = 0.02
"""Share of a step from which more idle time than the median rank's is named as the cause of a late rank."""

MAX_NAMED_STEPS = 6

MAX_EXPLAINED = 1.5
"""Lateness over what a slow CPU or GPU can account for, from which a rank is late for another reason as well."""

_OWN_CAUSES = (
    IdleCause.INPUT,
    IdleCause.SYNC,
    IdleCause.COLD_CALL,
    IdleCause.CPU_COMPUTE,
    IdleCause.DISPATCH,
    IdleCause.LAUNCH,
    IdleCause.HOST,
)
"""Causes on the rank itself: for a collective, and behind one, those wait that are not late."""

MIN_STEPS_FOR_STALL = 3
MIN_STEPS_FOR_GROWTH = 6
GROWTH = 1.1  # last steps over first ones from which the step time grows
MIN_ORDER = 0.9  # rank correlation of step time and step: 1 where each step is longer than the one before
UNBALANCED = 1.15  # compute time of the slowest stage, or of the most loaded experts, over the mean

GROUP_WORDS = {
    "DP": ("dp", "fsdp", "hsdp", "data", "replicate", "shard"),
    "TP": ("tp", "tensor"),
    "PP": ("pp", "pipe", "pipeline", "stage"),
    "EP": ("ep", "expert", "experts", "moe"),
    "CP": ("cp", "context", "sp", "sequence"),
}
"""Kinds of parallelism by the words in the names of their process groups."""

STAGE_WORDS, EXPERT_WORDS = GROUP_WORDS["PP"], GROUP_WORDS["EP"]


NETWORK_RATIO = 16.0
"""Bandwidth inside hosts over that between them from which the network is named: NVLink of an H100 (450 GB/s in one
direction) is 9 times a 400 Gbit/s adapter per GPU."""

MIN_NETWORK_SHARE = 0.05  # share of the steps that collectives between hosts must take

SLOW_LINK = 0.6
"""Bandwidth of a group between hosts, over that of the median such group, below which its links are slow."""


class FindingKind(Enum):
    """What was found, and what to do about it; the value is its name in JSON."""

    action: str

    def __new__(cls, value: str, action: str) -> FindingKind:
        member = object.__new__(cls)
        member._value_, member.action = value, action
        return member

    SLOW_HOST = "slow_host", "run nvidia-smi -q -d PERFORMANCE and top there; take the host out of the job"
    SLOW_GPU = "slow_gpu", "run nvidia-smi -q -d PERFORMANCE,TEMPERATURE there; replace it if it stays slow"
    SLOW_CPU = "slow_cpu", "look at what else runs there, at CPU affinity and clocks"
    LATE = "late", "open its trace: check says what its GPU waits for"
    STALL = "stall", "open its trace at that step: garbage collection, a checkpoint, an input file, another process"
    GROWING_STEPS = (
        "growing_steps",
        "compare an early step with a late one: torchprof-tui diff; look for what accumulates",
    )
    UNBALANCED_STAGES = "unbalanced_stages", "move layers from the slowest stage to the others"
    UNBALANCED_EXPERTS = "unbalanced_experts", "look at the routing: a balancing loss, or a capacity per expert"
    SLOW_NETWORK = (
        "slow_network",
        "run nccl-tests between these hosts; NCCL_DEBUG=INFO names adapters and GPUDirect RDMA",
    )


@record
class Arrival:
    """How ranks come to the collectives: ns and share of a step later than the median rank (`late`, `late_share`), in
    the median step or in the one of a stall. To `last` of `collectives` one of them came last. `steps`: the numbers of
    those in which they are late.
    """

    late: float
    late_share: float
    last: int
    collectives: int
    steps: tuple[int, ...]

    @property
    def text(self) -> str:
        """The same for a line of text."""
        steps = ", ".join(map(str, self.steps[:MAX_NAMED_STEPS])) + (", …" if len(self.steps) > MAX_NAMED_STEPS else "")
        named = f" (steps {steps})" if len(self.steps) > 1 else ""
        return (
            f"arrives {format_duration(self.late)} ({self.late_share:.0%} of a step) after the median rank, "
            f"last in {self.last:,} of {self.collectives:,} collectives{named}"
        )


@record
class FleetFinding:
    """Something that is wrong. `ranks`: indexes, () for the whole job; `host`: "" for none; `step`: its number or None.

    `size`: how much slower or later than the median: a factor, or the share of a step; see `text`. `arrival`: of ranks
    that others wait for; `cause`: why they are late: `slow_cpu`, `slow_gpu` or the label of an idle cause, "" unknown.
    """

    kind: FindingKind
    ranks: tuple[int, ...]
    host: str
    step: int | None
    size: float
    text: str
    arrival: Arrival | None = None
    cause: str = ""


class FleetChecker:
    """Finds what is wrong with a fleet. `gpu`, `cpu`: its speeds."""

    def __init__(self, matched: MatchedSketches) -> None:
        self.fleet: Fleet = matched.fleet
        self.matched = matched
        self.cpu = compare_cpus(self.fleet)
        # GPUs are compared with those of the same stage or experts: the others' kernels have other sizes
        speed = compare_gpus(self.fleet)
        factor = speed.factor.copy()
        for words in (STAGE_WORDS, EXPERT_WORDS):
            for peers in self.find_peers(words).values():
                if len(peers) > 2:
                    factor[peers] /= np.nanmedian(factor[peers])
        self.gpu = Speed(speed.names, factor, speed.ratio)
        self.late_share: F64 = matched.lateness / np.nanmedian(self.fleet.durations, axis=0)
        self.usual_late_share: F64 = _median_of_rows(self.late_share)

    @cached_property
    def slow_gpus(self) -> Bool:
        """bool[r]: whose kernels take far longer than those of the others."""
        return _find_outliers(self.gpu.factor, SLOW_GPU, MIN_RANKS_FOR_SPEED)

    @cached_property
    def slow_cpus(self) -> Bool:
        """bool[r]: whose ops take far longer than those of the others."""
        return _find_outliers(self.cpu.factor, SLOW_CPU, MIN_RANKS_FOR_SPEED)

    @cached_property
    def slow_excess(self) -> F64:
        """float64[r]: share of a step by which a slow CPU or GPU makes a rank late, if it has work all of the step."""
        factor = np.where(self.slow_gpus, self.gpu.factor, 1.0)
        factor = np.maximum(factor, np.where(self.slow_cpus, self.cpu.factor, 1.0))
        excess: F64 = factor - 1
        return excess

    def find_all(self) -> list[FleetFinding]:
        """Find everything: late ranks of which the machine is not the reason, slow machines, then the rest."""
        slow = self.slow_gpus | self.slow_cpus
        share = np.nan_to_num(self.usual_late_share)
        explained = slow & (share <= np.maximum(MAX_EXPLAINED * self.slow_excess, LATE_SHARE))
        late = (share >= LATE_SHARE) & ~explained
        late &= _find_outliers(np.where(explained, np.nan, self.usual_late_share), LATE_SHARE)
        slow_cpus, slow_gpus = self.slow_cpus & ~late, self.slow_gpus & ~late
        return [
            *self._name_machines(late, FindingKind.LATE),
            *self._name_machines(slow_cpus, FindingKind.SLOW_CPU),
            *self._name_machines(slow_gpus, FindingKind.SLOW_GPU),
            *self._find_stalls(slow | late),
            *self._find_growth(),
            *self._find_unbalanced(STAGE_WORDS, FindingKind.UNBALANCED_STAGES, "pipeline stage"),
            *self._find_unbalanced(EXPERT_WORDS, FindingKind.UNBALANCED_EXPERTS, "experts at position"),
            *self._find_slow_network(),
        ]

    def measure_arrival(self, members: I64, column: int | None = None) -> Arrival | None:
        """Measure how ranks (indexes) come to the collectives of all steps, or of one (index); None without any.

        The first collective of each group does not count: it also waits for the recordings to begin.
        """
        matched = self.matched
        counted = ~matched.is_first if column is None else ~matched.is_first & (matched.step == column)
        of_members = np.unique(matched.collective[np.isin(matched.rank, members)])
        used = of_members[counted[of_members]]
        if not len(used):
            return None
        late_share = np.nan_to_num(self.late_share[members])
        usual = np.median(np.nan_to_num(self.usual_late_share[members]))
        share = float(usual if column is None else late_share[:, column].max())
        times = np.nanmedian(self.fleet.durations, axis=0)
        late = share * float(np.median(times) if column is None else times[column])
        columns = np.flatnonzero((late_share >= LATE_SHARE).any(axis=0)) if column is None else np.array([column])
        last = int(np.isin(matched.last_rank[used], members).sum())
        return Arrival(late, share, last, len(used), tuple(self.fleet.steps[columns].tolist()))

    def find_peers(self, words: Collection[str]) -> dict[int, I64]:
        """Find the ranks (indexes) at each position of the process groups of these words, positions ascending."""
        peers: dict[int, list[int]] = {}
        wanted = frozenset(words)
        for index, sketch in enumerate(self.fleet.sketches):
            for name, position, size in sketch.groups:
                if size > 1 and not wanted.isdisjoint(re.split("[^a-z]+", name.lower())):
                    peers.setdefault(position, []).append(index)
                    break
        return {position: np.array(peers[position], np.int64) for position in sorted(peers) if position >= 0}

    def _name_machines(self, faulty: Bool, kind: FindingKind) -> Iterator[FleetFinding]:
        """Name whole hosts where nearly all of their ranks are faulty, then single ranks."""
        rest = faulty.copy()
        for host, members in self.fleet.host_members.items():
            hit = members[faulty[members]]
            if len(members) > 1 and len(hit) >= HOST_SHARE * len(members):
                rest[members] = False
                who = f"host {host} ({len(hit)} of its {len(members)} ranks)"
                host_kind = kind if kind is FindingKind.LATE else FindingKind.SLOW_HOST
                yield self._name_late(host_kind, hit, host, who, *self._describe_fault(kind, hit))
        for index in np.flatnonzero(rest).tolist():
            members = np.array([index])
            who = self.fleet.label_rank(index)
            yield self._name_late(kind, members, self.fleet.hosts[index], who, *self._describe_fault(kind, members))

    def _name_late(
        self, kind: FindingKind, members: I64, host: str, who: str, size: float, text: str, cause: str
    ) -> FleetFinding:
        arrival = self.measure_arrival(members)
        if arrival is not None and arrival.late_share < LATE_SHARE:
            arrival = None  # slow, and nobody waits
        told = f"{who}: {text}" if arrival is None else f"{who}: {arrival.text}; {text}"
        return FleetFinding(kind, tuple(members.tolist()), host, None, size, told, arrival, cause)

    def _describe_fault(self, kind: FindingKind, members: I64) -> tuple[float, str, str]:
        """Describe what is wrong with ranks: its size, a line of text, and the cause."""
        if kind is FindingKind.SLOW_CPU:
            factor = float(np.median(self.cpu.factor[members]))
            text = f"its CPU takes {factor:.2f} times as long for the same {len(self.cpu.names)} ops as the median rank"
            return factor, text, kind.value
        if kind is FindingKind.SLOW_GPU:
            factor = float(np.median(self.gpu.factor[members]))
            ratio = np.nan_to_num(self.gpu.ratio[members[0]])
            names = [(self.gpu.names[name], ratio[name]) for name in np.argsort(-ratio, kind="stable")[:3].tolist()]
            slowest = ", ".join(f"{name} {value:.2f}" for name, value in names)
            text = f"its GPU takes {factor:.2f} times as long for the same kernels as the median rank ({slowest})"
            return factor, text, kind.value
        share = float(np.median(self.usual_late_share[members]))
        slow = [name for name, found in (("CPU", self.slow_cpus), ("GPU", self.slow_gpus)) if found[members].any()]
        part = float(np.median(self.slow_excess[members]))
        machine = (
            f"its {' and '.join(slow)} explain{'' if len(slow) > 1 else 's'} {part:.0%} of a step"
            if slow
            else ("its CPU and GPU are as fast as the others'")
        )
        cause = self._find_idle_cause(members, None)
        return share, f"{machine}{self._format_cause(cause)}", cause.label if cause is not None else ""

    @staticmethod
    def _format_cause(cause: IdleCause | None) -> str:
        return "" if cause is None else f"; its GPU is idle longer than the others': {cause.label}"

    def _find_idle_cause(self, members: I64, step: int | None) -> IdleCause | None:
        """Find the cause of which the ranks' GPUs were idle most beyond the median rank; None for too little."""
        if step is None:
            idle = np.stack([sketch.steps.idle.sum(axis=0) for sketch in self.fleet.sketches])
        else:
            idle = np.zeros((len(self.fleet), len(IdleCause)), np.int64)
            for index, sketch in enumerate(self.fleet.sketches):
                rows = np.flatnonzero(sketch.steps.number == step)
                idle[index] = sketch.steps.idle[rows].sum(axis=0)
        excess = np.median(idle[members], axis=0) - np.median(idle, axis=0)
        cause = max(_OWN_CAUSES, key=lambda each: excess[each])
        least = MIN_IDLE_SHARE * self.fleet.step_time * (len(self.fleet.steps) if step is None else 1)
        return cause if excess[cause] > least else None

    def _find_stalls(self, is_slow: Bool) -> Iterator[FleetFinding]:
        """Find steps in which single ranks, or the ranks of one host, came far later than they usually do."""
        if np.isfinite(self.late_share).any(axis=0).sum() < MIN_STEPS_FOR_STALL:
            return
        matched = self.matched
        excess = np.nan_to_num(self.late_share - self.usual_late_share[:, None])
        limit = np.where(is_slow, STALL_SHARE_OF_SLOW, STALL_SHARE)[:, None]
        usual = np.nan_to_num(self.usual_late_share)[:, None]
        is_stall = (excess >= limit) & (excess > 2 * usual)
        for column in np.flatnonzero(is_stall.any(axis=0)).tolist():
            number = int(self.fleet.steps[column])
            rows = np.flatnonzero(is_stall[:, column])
            host = self._find_common_host(rows)
            for members in [rows] if host else rows[:, None]:
                last = (matched.step == column) & np.isin(matched.last_rank, members) & ~matched.is_first
                if matched.median_wait[last].sum() < STALL_SHARE / 2 * self.fleet.step_time:
                    continue  # others waited for another rank, which came later still
                size = float(excess[members, column].max())
                who = f"host {host}" if host else self.fleet.label_rank(int(members[0]))
                cause = self._find_idle_cause(members, number)
                arrival = self.measure_arrival(members, column)
                how = f", by {size:.0%} of a step" if arrival is None else f": it {arrival.text}"
                text = f"{who}: stalls once, in step {number}{how}{self._format_cause(cause)}"
                name = host or self.fleet.hosts[int(members[0])]
                label = cause.label if cause is not None else ""
                indexes = tuple(members.tolist())
                yield FleetFinding(FindingKind.STALL, indexes, name, number, size, text, arrival, label)

    def _find_common_host(self, rows: I64) -> str:
        """Return the host whose ranks these are, nearly all of them; "" for none."""
        hosts = {self.fleet.hosts[index] for index in rows.tolist()}
        if len(rows) < 2 or len(hosts) > 1:
            return ""
        host = hosts.pop()
        members = self.fleet.host_members.get(host, rows)
        return host if len(rows) >= HOST_SHARE * len(members) else ""

    def _find_growth(self) -> Iterator[FleetFinding]:
        times = np.nanmedian(self.fleet.durations, axis=0)
        if len(times) < MIN_STEPS_FOR_GROWTH:
            return
        third = len(times) // 3
        growth = float(np.median(times[-third:]) / max(np.median(times[:third]), 1))
        order = np.argsort(np.argsort(times, kind="stable"), kind="stable")
        correlation = float(np.corrcoef(order, np.arange(len(times)))[0, 1])
        if growth >= GROWTH and correlation >= MIN_ORDER:
            first, last = int(self.fleet.steps[0]), int(self.fleet.steps[-1])
            text = (
                f"step time grows on all ranks: its last steps take {growth:.2f} times its first ones ({first}-{last})"
            )
            yield FleetFinding(FindingKind.GROWING_STEPS, (), "", None, growth, text)

    def _find_unbalanced(self, words: Collection[str], kind: FindingKind, noun: str) -> Iterator[FleetFinding]:
        peers = self.find_peers(words)
        compute = _median_of_rows(self.fleet.gather_steps("compute"))
        if len(peers) < 2:
            return
        load = np.array([np.nanmedian(compute[members]) for members in peers.values()])
        if not load.mean() > 0:
            return
        ratio = load / load.mean()
        most = int(ratio.argmax())
        if ratio[most] >= UNBALANCED:
            number, members = list(peers.items())[most]
            shown = ", ".join(f"{value:.2f}" for value in ratio[:8].tolist()) + (", …" if len(ratio) > 8 else "")
            text = f"{noun} {number} computes {ratio[most]:.2f} times as long as the mean (all: {shown})"
            yield FleetFinding(kind, tuple(members.tolist()), "", None, float(ratio[most]), text)

    def _find_slow_network(self) -> Iterator[FleetFinding]:
        """Find groups between hosts that are slower than others, and a network far slower than the links in hosts."""
        groups = [] if self.fleet.missing_ranks else measure_groups(self.matched)  # else a group's hosts are unknown
        between = [group for group in groups if group.is_between_hosts]
        inside = [group for group in groups if not group.is_between_hosts]
        if not between:
            return
        usual = float(np.median([group.bandwidth for group in between]))
        for group in between if len(between) >= MIN_RANKS_FOR_SPEED else ():
            if group.bandwidth < SLOW_LINK * usual:
                text = (
                    f"hosts {', '.join(group.hosts[:4])}{', …' if len(group.hosts) > 4 else ''}: a group of "
                    f"{len(group.ranks)} ranks moves {group.bandwidth:.1f} GB/s, others between hosts {usual:.1f} GB/s"
                )
                size = usual / group.bandwidth
                yield FleetFinding(FindingKind.SLOW_NETWORK, group.ranks, "", None, size, text)
        total = float(np.nansum(np.nanmedian(self.fleet.durations, axis=0)))
        share = max(group.time for group in between) / max(total, 1)
        ratio = float(np.median([group.bandwidth for group in inside])) / usual if inside else 0.0
        if ratio >= NETWORK_RATIO and share >= MIN_NETWORK_SHARE:
            text = (
                f"collectives between hosts move {usual:.1f} GB/s, those inside hosts {ratio * usual:.0f} GB/s "
                f"({ratio:.0f} times); they transfer for {share:.0%} of the steps"
            )
            yield FleetFinding(FindingKind.SLOW_NETWORK, (), "", None, ratio, text)


def _median_of_rows(table: F64) -> F64:
    """Compute the median of each row's known values: float64[r], NaN for a row without any."""
    known = np.isfinite(table)
    medians = np.full(len(table), np.nan)
    rows = known.any(axis=1)
    medians[rows] = np.nanmedian(np.where(known[rows], table[rows], np.nan), axis=1)
    return medians


def _find_outliers(values: F64, limit: float, min_count: int = 2) -> Bool:
    """Find values from `limit` on that are far above what the others vary by: bool[r]; none of fewer than `min_count`.

    Of a few ranks one value moves the deviation of all, so each is compared with the others alone.
    """
    known = values[np.isfinite(values)]
    if len(known) < min_count:
        return np.zeros(len(values), np.bool_)
    threshold = np.full(len(values), max(limit, _find_upper_limit(known)))
    if len(known) < FEW_RANKS:
        for index in np.flatnonzero(np.isfinite(values)).tolist():
            others = np.delete(values, index)
            threshold[index] = max(limit, _find_upper_limit(others[np.isfinite(others)]))
    found: Bool = np.nan_to_num(values, nan=-np.inf) >= threshold
    return found


def _find_upper_limit(values: F64) -> float:
    median = np.median(values)
    return float(median + OUTLIER_DEVIATIONS * 1.4826 * np.median(np.abs(values - median)))


def find_median(values: F64) -> float | None:
    """Find the median of the known values; None without any."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def find_slowest_stage(checker: FleetChecker) -> tuple[str, tuple[int, ...], float] | None:
    """Find the stage that computes longest: its label, its ranks (indexes), and the share of the job's time that it
    costs at least. None without stages, or where it computes no longer than the next.

    In a pipeline of m micro-batches over p stages a step takes (m + p - 1) times the longest stage's micro-batch
    (Narayanan et al., 2021, "Efficient Large-Scale Language Model Training on GPU Clusters"), of which that stage
    computes m. So as fast as the next stage, it shortens the step by at least the difference of their compute times.
    """
    fleet = checker.fleet
    peers = checker.find_peers(STAGE_WORDS)
    if len(peers) < 2:
        return None
    compute = fleet.gather_steps("compute")
    with np.errstate(all="ignore"):
        load = np.array([np.nanmedian(compute[members], axis=0) for members in peers.values()])
    known = np.isfinite(load).all(axis=0)
    times = np.nanmedian(fleet.durations, axis=0)[known]
    if not times.sum() > 0:
        return None
    load = load[:, known]
    slowest = int(load.sum(axis=1).argmax())
    next_load = np.delete(load, slowest, axis=0).max(axis=0)
    saved = float(np.maximum(load[slowest] - next_load, 0).sum() / times.sum())
    if not 0 < saved < 1:
        return None
    number, ranks = list(peers.items())[slowest]
    return f"the excess of pipeline stage {number}", tuple(ranks.tolist()), saved
