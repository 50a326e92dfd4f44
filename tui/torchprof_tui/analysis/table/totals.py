"""The totals of the sheets as numbers. The lines below a table are formatted from them, and `table --json` prints them.

All cover every row of the sheet, however many of them are shown.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallTotals:
    """Of the profiler's table: torch's self time totals, ns.

    `outside_ops`: of the `outside_window` ns (steps, or first to last op), in which the main thread ran no op; None
    where it is not measured.
    """

    self_cpu: int
    self_gpu: int
    outside_ops: int | None = None
    outside_window: int | None = None


@dataclass(frozen=True, slots=True)
class WorkTotals:
    """Of GPU work: events, the sum of their durations (ns), and bytes, None for kernels and where no size is known."""

    calls: int
    time: int
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryTotals:
    """Of memory: numbers, and bytes. `held`: of devices with recorded addresses, None without any.

    `unknown_devices`: those without. `freed_foreign`: of the whole trace, freed but allocated before the recording.
    """

    allocations: int
    allocated: int
    frees: int
    freed: int
    held: int | None
    freed_foreign: int
    unknown_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RankArrivals:
    """Of one rank: `collectives` that it took part in, those it was `last` at, and how long it `waited` (ns).

    `waited` is None for a rank that took part in none.
    """

    rank: int
    label: str
    collectives: int
    last: int
    waited: int | None


@dataclass(frozen=True, slots=True)
class ArrivalTotals:
    """Of collectives over several ranks: by rank, and the numbers of those that were not matched."""

    ranks: tuple[RankArrivals, ...]
    unmatched: int
    before_recording: int
    incomplete: int
    mismatched: int


@dataclass(frozen=True, slots=True)
class PatternTotals:
    """Of all repetitions of a pattern; times in ns.

    `parent`: label of the pattern around it, None for none. `is_unit`: gone through as if they were steps. `runs`: how
    often they follow each other directly. `events`: of one, the median. `slowest`: number of the longest.
    `interval`: median from start to start, None without two in a run. `coverage`: share of the time of all events of
    the sequence. `shown_start`: of the one that stands for all. `differing`: those with other events than that;
    `differences`: name, how many have more of it, how many fewer. `kinds`: how many of them steps of which kind of a
    serving engine launched. `differing_numbers`: the first of those that differ.
    """

    label: str
    level: int
    parent: str | None
    is_unit: bool
    repetitions: int
    runs: int
    events: int
    median: float
    p95: float
    shortest: int
    longest: int
    slowest: int
    interval: float | None
    coverage: float
    shown_start: int
    differing: int
    kinds: tuple[tuple[str, int], ...]
    differing_numbers: tuple[int, ...]
    differences: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class RepetitionTotals:
    """Of repetitions: the `lane` whose `events` (`unit`: kernels or ops) were searched, and its patterns."""

    unit: str
    lane: str
    events: int
    patterns: tuple[PatternTotals, ...]


SheetTotals = CallTotals | WorkTotals | MemoryTotals | ArrivalTotals | RepetitionTotals
