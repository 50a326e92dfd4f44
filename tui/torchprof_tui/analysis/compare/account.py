"""Divide the difference of two recordings' steps into parts that sum to it, to the nanosecond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from torchprof_tui.analysis.compare.side_analysis import SideAnalysis, are_same_steps
from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.verdict.cpu_only import build_cpu_time_tree
from torchprof_tui.analysis.patterns.verdict.time_tree import build_time_tree
from torchprof_tui.analysis.patterns.verdict.tree_model import COMPUTE, COPIES, EXPOSED, OUTSIDE
from torchprof_tui.analysis.time.chance import estimate_difference_noise, estimate_paired_noise
from torchprof_tui.trace.core.arrays import F64
from torchprof_tui.trace.core.records import record

GPU_CLASS, IDLE, CPU = "gpu:", "idle:", "cpu:"
"""Prefixes of the ids of parts: GPU time by class of kernel, GPU idle time by cause, the main thread's time."""

LABEL_OF_CPU = "CPU: "

_LABELS = {
    COPIES: "copies",
    EXPOSED: "exposed communication",
    OUTSIDE: "outside the program",
    f"{GPU_CLASS}memory": "GPU: memset",
    f"{CPU}input": f"{LABEL_OF_CPU}data loader",
    f"{CPU}host_code": f"{LABEL_OF_CPU}outside any op",
}

MAX_MEASURED_STEPS = 48
"""Steps whose parts are measured one by one for their spread, evenly chosen: enough for an estimate within 10 %."""


@record
class PartChange:
    """A part of the step on both sides: ns a step. `noise`: what the difference may be by chance, None if unknown.

    `by_step`: of two ranks of one run, the difference in each measured step: (number of the step, ns).
    """

    id: str
    label: str
    a: int
    b: int
    noise: float | None
    by_step: tuple[tuple[int, float], ...] = ()

    @property
    def delta(self) -> int:
        return self.b - self.a

    @property
    def is_within_noise(self) -> bool | None:
        """Whether the difference may be chance; None where it cannot be told."""
        return None if self.noise is None else abs(self.delta) <= self.noise


@record
class Account:
    """The difference of one step, B less A, ns. `parts` sum to `a`, `b` and `delta`; those beyond noise come first.

    `is_of_gpu`: whether the GPUs' time is divided (the mean of the devices), else the main thread's. `by_step`: of two
    ranks of one run, the difference of each step: (number of the step, ns).
    """

    a: int
    b: int
    noise: float | None
    parts: tuple[PartChange, ...]
    is_of_gpu: bool
    by_step: tuple[tuple[int, float], ...] = ()

    @property
    def delta(self) -> int:
        return self.b - self.a

    @property
    def ratio(self) -> float:
        """How much longer a step of B takes, as a share of a step of A: 0.05 is 5 % longer."""
        return self.delta / self.a if self.a else 0.0

    @property
    def is_within_noise(self) -> bool | None:
        return None if self.noise is None else abs(self.delta) <= self.noise

    @property
    def delta_beyond_noise(self) -> float | None:
        """The part of the difference that is no chance, with its sign; None where it cannot be told."""
        if self.noise is None:
            return None
        return float(np.sign(self.delta)) * max(abs(self.delta) - self.noise, 0.0)


def build_account(a: SideAnalysis, b: SideAnalysis) -> Account:
    """Build the account of B against A; the GPU's time is divided if both have GPU work, else the main thread's."""
    is_of_gpu = a.has_gpu_work and b.has_gpu_work
    step_a, step_b = divide_step(a, is_of_gpu), divide_step(b, is_of_gpu)
    spread_a, spread_b = _measure_parts_by_step(a, is_of_gpu), _measure_parts_by_step(b, is_of_gpu)
    missing_a, missing_b = np.zeros(len(_sample_steps(a))), np.zeros(len(_sample_steps(b)))
    is_paired = are_same_steps(a, b)
    parts = []
    for part_id in sorted({*step_a, *step_b}):
        of_a, of_b = spread_a.get(part_id, missing_a), spread_b.get(part_id, missing_b)
        times = step_a.get(part_id, 0), step_b.get(part_id, 0)
        if is_paired:
            noise = estimate_paired_noise(of_b - of_a, a.side.step_count)
        else:
            noise = estimate_difference_noise(of_a, of_b, a.side.step_count, b.side.step_count)
        by_step = _number_steps(a, of_b - of_a, _sample_steps(a)) if is_paired else ()
        parts.append(PartChange(part_id, label_part(part_id), *times, noise, by_step))
    parts.sort(key=lambda part: (part.is_within_noise is True, -abs(part.delta), part.id))
    totals = sum(step_a.values()), sum(step_b.values())
    if not is_paired:
        noise = estimate_difference_noise(a.step_durations, b.step_durations)
        return Account(*totals, noise, tuple(parts), is_of_gpu)
    differences = b.step_durations - a.step_durations
    by_step = _number_steps(a, differences, range(len(differences)))
    return Account(*totals, estimate_paired_noise(differences), tuple(parts), is_of_gpu, by_step)


def _number_steps(side: SideAnalysis, differences: F64, indexes: Sequence[int]) -> tuple[tuple[int, float], ...]:
    """Return (number of the step, ns) of each difference."""
    return tuple((side.side.steps[index].number, float(ns)) for index, ns in zip(indexes, differences, strict=True))


def divide_step(side: SideAnalysis, is_of_gpu: bool) -> dict[str, int]:
    """Divide one step of a side into parts, part id -> ns; they sum to its mean duration, rounded once."""
    times, device_count = divide_scope(side.checker, side.scope, is_of_gpu)
    return divide_evenly(times, side.side.step_count * device_count)


def divide_scope(checker: Checker, scope: Scope, is_of_gpu: bool) -> tuple[dict[str, int], int]:
    """Divide a scope into parts: part id -> ns, summed over the devices, and the number of devices."""
    view = checker.view(scope)
    tree = build_time_tree(view) if is_of_gpu else build_cpu_time_tree(view)
    if tree is None:
        return {OUTSIDE: scope.length}, 1
    times: dict[str, int] = {}

    def add(part_id: str, time: int) -> None:
        if time:
            times[part_id] = times.get(part_id, 0) + time

    for part in tree.parts:
        if part.id in (OUTSIDE, COPIES, EXPOSED):
            add(part.id, part.time)
        elif part.id == COMPUTE:
            for kernel_class in part.parts:
                add(GPU_CLASS + kernel_class.id, kernel_class.time)
        else:
            add((IDLE if is_of_gpu else CPU) + part.id, part.time)
    return times, tree.device_count


def divide_evenly(times: Mapping[str, int], count: int) -> dict[str, int]:
    """Divide each time by `count` so that the results sum to the sum divided by `count`, rounded to the nearest.

    Largest remainder (Hamilton's method of apportionment): each is rounded down, and those that lost most get the rest.
    """
    quotients = {part: divmod(time, count) for part, time in times.items()}
    total = (2 * sum(times.values()) + count) // (2 * count)
    rest = total - sum(quotient for quotient, _ in quotients.values())
    by_remainder = sorted(quotients, key=lambda part: (-quotients[part][1], part))
    rounded_up = set(by_remainder[:rest])
    return {part: quotient + (part in rounded_up) for part, (quotient, _) in quotients.items()}


def label_part(part_id: str) -> str:
    """Label a part for a reader: "GPU: gemm", "GPU idle: dispatch"."""
    if part_id in _LABELS:
        return _LABELS[part_id]
    for prefix, words in ((GPU_CLASS, "GPU: "), (IDLE, "GPU idle: "), (CPU, LABEL_OF_CPU)):
        if part_id.startswith(prefix):
            return words + part_id.removeprefix(prefix).replace("_", " ").replace("cpu ", "CPU ")
    return part_id


def _sample_steps(side: SideAnalysis) -> Sequence[int]:
    """Choose the steps that are measured one by one: all, or MAX_MEASURED_STEPS of them in even distances."""
    count = side.side.step_count
    chosen: list[int] = np.linspace(0, count - 1, min(count, MAX_MEASURED_STEPS)).astype(np.int64).tolist()
    return chosen


def _measure_parts_by_step(side: SideAnalysis, is_of_gpu: bool) -> dict[str, F64]:
    """Measure the parts of single steps: part id -> float64[sampled steps], ns of one device. {} for a single step."""
    sample, bounds = _sample_steps(side), side.step_bounds
    if len(sample) < 2:
        return {}
    values: dict[str, F64] = {}
    for position, index in enumerate(sample):
        t0, t1 = int(bounds[index]), int(bounds[index + 1])
        if t1 <= t0:
            continue
        times, device_count = divide_scope(side.checker, Scope(t0, t1, "step"), is_of_gpu)
        for part_id, time in times.items():
            values.setdefault(part_id, np.zeros(len(sample)))[position] = time / device_count
    return values


CLASS, CAUSE = "class", "cause"  # values of `diff --by` whose rows are groups of the account


def group_account(account: Account, by: str) -> list[PartChange]:
    """Group the account: by class of GPU work (the rest is one row), or by cause (GPU work is one row)."""
    is_by_class = by == CLASS
    groups: dict[str, list[int]] = {}
    for part in account.parts:
        is_class = part.id.startswith(GPU_CLASS)
        label = part.label if is_class is is_by_class else "GPU computes" if is_class else "GPU does not compute"
        if not account.is_of_gpu:
            label = part.label
        sums = groups.setdefault(label, [0, 0])
        sums[0] += part.a
        sums[1] += part.b
    rows = [PartChange(label, label, a, b, None) for label, (a, b) in groups.items()]
    return sorted(rows, key=lambda row: (-abs(row.delta), row.label))
