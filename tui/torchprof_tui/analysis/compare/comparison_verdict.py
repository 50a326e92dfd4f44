"""Say in words what changed between two recordings: the regimes, the largest causes, the patterns of one side only.

A section is what the program marks with an annotation on its main thread, such as "forward" or "Optimizer.step": idle
time counts to all that are open there at that moment, whichever thread launches. So time that autograd's thread takes
belongs to "backward".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.compare.account import CPU, GPU_CLASS, IDLE, LABEL_OF_CPU, Account, PartChange
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.dispatch.line_model import ANNOTATION, SourceLine, build_annotation_line
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.host_code_time import find_main_thread
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.largest_gaps import find_gap_line
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_percent
from torchprof_tui.analysis.patterns.verdict.tree_model import COMPUTE, COPIES, EXPOSED, TimePart
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, union
from torchprof_tui.trace.core.arrays import I64, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

MIN_SHARE = 0.5
"""Share of the part's change that a section must have to be named: with less, the change is not of one place."""

NESTED_SHARE = 0.9
"""Share of the largest change that a section inside that one must have to be named in its place."""

MAX_NAMES = 500
"""Annotations of more names than these are not sections of a step but numbered items."""


def find_changed_section(a: SideAnalysis, b: SideAnalysis, cause: IdleCause) -> str | None:
    """Find the section with most of the change of a cause's idle time; None where no section has most of it.

    Sections inside each other have about the same change: of those with nearly the largest one the innermost is
    returned, which is that with the least idle time.
    """
    total_a, of_a = _measure_sections(a, cause)
    total_b, of_b = _measure_sections(b, cause)
    change = total_b - total_a
    if not change:
        return None
    shares = {name: (of_b.get(name, 0.0) - of_a.get(name, 0.0)) / change for name in (*of_a, *of_b)}
    largest = max(shares.values(), default=0.0)
    candidates = [name for name, share in shares.items() if share >= max(MIN_SHARE, NESTED_SHARE * largest)]
    return min(candidates, key=lambda name: (max(of_a.get(name, 0.0), of_b.get(name, 0.0)), name), default=None)


def measure_gaps_in_section(view: ScopeView, cause: IdleCause, section: str | None) -> I64:
    """Measure the idle time of a cause in each gap of a view, or only in sections of this name, ns: int64[gaps]."""
    gaps = view.gaps
    time: I64 = gaps.time[:, cause]
    if section is None:
        return time
    sections, time = _find_sections(view), np.zeros_like(time)
    for device in sorted_unique(gaps.device).tolist():
        inside = view.gap_finder.list_cause_intervals(gaps, cause, device) & sections.get(section, NO_INTERVALS)
        of_device = gaps.device == device
        time[of_device] = inside.measure_before(gaps.end[of_device]) - inside.measure_before(gaps.start[of_device])
    return time


def _measure_sections(side: SideAnalysis, cause: IdleCause) -> tuple[float, dict[str, float]]:
    """Measure the idle time of a cause a step and device, ns: in all, and by name of the section."""
    view, gaps = side.view, side.view.gaps
    devices = sorted_unique(gaps.device).tolist()
    unit = side.side.step_count * max(len(devices), 1)
    idle = [view.gap_finder.list_cause_intervals(gaps, cause, device) for device in devices]
    return sum(each.total for each in idle) / unit, {
        name: sum((each & intervals).total for each in idle) / unit for name, intervals in _find_sections(view).items()
    }


def _find_sections(view: ScopeView) -> dict[str, Intervals]:
    """Find when the main thread was in annotations: name -> intervals; none where there are too many names."""
    main = find_main_thread(view)
    if main is None:
        return {}
    ranges = view.select_in_scope(view.tables.annotations)
    ranges = ranges.select((ranges.row >= main.first) & (ranges.row < main.last))
    names = sorted_unique(ranges.name).tolist()
    if len(names) > MAX_NAMES:
        return {}
    sections = {}
    for name in names:
        of_name = ranges.select(ranges.name == name)
        sections[view.trace.names[name]] = union(of_name.start, of_name.end)
    return sections


_MAX_EVENTS = 24
"""Events of a part whose lines are looked up, the longest; each takes up to a quarter of a millisecond."""

_MAX_GAPS = 10
"""Gaps whose lines are looked up, the longest of those in question."""


def find_part_line(a: SideAnalysis, b: SideAnalysis, part: PartChange) -> SourceLine | None:
    """Find the line that a change comes from, on the side that takes longer for the part; None if unknown.

    Of GPU work, the line with most of it. Of idle time, the section in which it changed; with recorded stacks, the line
    of most of it there.
    """
    side = b if part.delta > 0 else a
    if not part.id.startswith(IDLE):
        rows = _select_work(side, part.id)
        return side.checker.tables.line_finder.find_common_line(rows, _MAX_EVENTS) if len(rows) else None
    cause = next((cause for cause in IdleCause if cause.id == part.id.removeprefix(IDLE)), None)
    if cause is None:
        return None
    section = find_changed_section(a, b, cause)
    gap_line = _find_gap_line(side.view, cause, section)
    if gap_line is not None and gap_line.kind != ANNOTATION:
        return gap_line
    return None if section is None else build_annotation_line(section)


def _find_gap_line(view: ScopeView, cause: IdleCause, section: str | None) -> SourceLine | None:
    """Find the line with most of a cause's time among the longest gaps, in a section of the program if one is named."""
    time = measure_gaps_in_section(view, cause, section)
    longest = np.argsort(-time, kind="stable")[:_MAX_GAPS]
    time_by_line: dict[SourceLine | None, int] = defaultdict(int)
    for gap in longest[time[longest] > 0].tolist():
        time_by_line[find_gap_line(view, gap)] += int(time[gap])
    return max(time_by_line, key=lambda line: time_by_line[line], default=None)


def _select_work(side: SideAnalysis, part_id: str) -> I64:
    """Select the GPU work of a part: rows of the trace, int64[k]; none for parts of the CPU's time."""
    work = side.view.work
    is_of_part = np.zeros(len(work), dtype=np.bool_)
    if part_id == COPIES:
        is_of_part = work.kind == Kind.COPY
    elif part_id == EXPOSED:
        is_of_part = work.kind == Kind.COLLECTIVE
    elif part_id.startswith(GPU_CLASS):
        numbers = [int(number) for number in KernelClass if number.label == part_id.removeprefix(GPU_CLASS)]
        is_of_part = np.isin(work.kernel_class, numbers) & (work.kind != Kind.COPY)
    rows: I64 = work.events.row[is_of_part]
    return rows


MAX_CAUSES = 3
"""Causes that a verdict names; the account has all."""

_MIN_UNCERTAIN_SHARE = 0.05
"""Changes within the noise are named from a twentieth of a step on: they may be all that there is."""

_HALF_TOLERANCE = 0.05
"""Launches that go down by 45 to 55 % go down by half."""


@dataclass(frozen=True, slots=True)
class ChangeCause:
    """A part of the step that changed. `pattern`: the fired one that explains most of it, on `side` ("a" or "b").

    `line`: the code behind it, for a reader; `location`: its "file:lineno". As recorded: `clean` them.
    """

    part: PartChange
    pattern: Finding | None
    side: str
    line: str
    location: str | None


@dataclass(frozen=True, slots=True)
class ComparisonVerdict:
    """The answer that is read first. `headline`: how much longer or shorter a step is, and whether by chance.

    `causes`: the largest changes: at most MAX_CAUSES beyond noise, then larger ones within it.
    """

    headline: str
    regimes: str
    launches: str
    a: Verdict
    b: Verdict
    causes: tuple[ChangeCause, ...]
    patterns_a_only: tuple[Finding, ...]
    patterns_b_only: tuple[Finding, ...]


def decide_comparison(a: SideAnalysis, b: SideAnalysis, account: Account) -> ComparisonVerdict:
    """Decide what changed from A to B."""
    fired_a = {found.id: found for found in a.findings if found.is_significant}
    fired_b = {found.id: found for found in b.findings if found.is_significant}
    return ComparisonVerdict(
        describe_change(account),
        _describe_regimes(a.verdict, b.verdict, account),
        describe_launches(a.launches_per_step, b.launches_per_step),
        a.verdict,
        b.verdict,
        tuple(_explain_part(a, b, part) for part in _select_causes(account)),
        tuple(found for name, found in fired_a.items() if name not in fired_b),
        tuple(found for name, found in fired_b.items() if name not in fired_a),
    )


def _select_causes(account: Account) -> list[PartChange]:
    """Select the parts that changed most: those beyond noise, then larger ones within it, which may be chance."""
    step = max(account.a, account.b)
    smallest = thresholds.SIGNIFICANT_SHARE.value * step
    beyond = [part for part in account.parts if not part.is_within_noise and abs(part.delta) >= smallest][:MAX_CAUSES]
    largest = max((abs(part.delta) for part in beyond), default=0)
    uncertain = max(_MIN_UNCERTAIN_SHARE * step, largest)
    within = [part for part in account.parts if part.is_within_noise and abs(part.delta) >= uncertain]
    chosen = beyond + within[: max(MAX_CAUSES - len(beyond), 1)]
    return [part for part in chosen if part.delta]


def describe_change(account: Account) -> str:
    """Describe how much longer or shorter a step of B takes, and whether that may be chance."""
    delta = account.delta
    if not delta:
        return f"a step takes the same time in both: {format_duration(account.a)}"
    words = "longer" if delta > 0 else "shorter"
    share = f" ({format_percent(abs(account.ratio))})" if account.a else ""
    change = f"a step of B is {format_duration(abs(delta))}{share} {words} than one of A"
    if account.noise is None:
        return f"{change}; one step: cannot tell whether by chance"
    noise = f"±{format_duration(account.noise)}"
    if account.is_within_noise:
        return f"{change}, which is within the noise of {noise}"
    times = account.a / account.b if delta < 0 and account.b else 0.0
    factor = f", {times:.3g} times as fast" if times >= 1.5 else ""
    return f"{change}{factor} (noise {noise})"


def describe_launches(a: float, b: float) -> str:
    """Describe how many calls of a step launch GPU work, and whether they go down by half; "" without any."""
    if not a and not b:
        return ""
    counts = f"launches a step: {_format_count(a)} → {_format_count(b)}"
    if a == b or not a:
        return counts
    change = b / a - 1
    if change >= 0:
        return f"{counts} (+{format_percent(change)})"
    if abs(change + 0.5) <= _HALF_TOLERANCE:
        by_half = "down by half"
    else:
        by_half = f"down by {'more' if change < -0.5 else 'less'} than half"
    return f"{counts} (-{format_percent(-change)}, {by_half})"


def _format_count(count: float) -> str:
    return f"{count:,.0f}" if count == int(count) or count >= 100 else f"{count:.1f}"


def _describe_regimes(a: Verdict, b: Verdict, account: Account) -> str:
    """Describe what limits each side, how busy the GPU is on it, or without a GPU what takes most of the CPU's time."""
    times_a = {part.label: part.a for part in account.parts}
    times_b = {part.label: part.b for part in account.parts}
    return f"A is {_describe_side(a, account, times_a)}; B is {_describe_side(b, account, times_b)}"


def _describe_side(verdict: Verdict, account: Account, times: Mapping[str, int]) -> str:
    if verdict.busy is not None:
        return f"{verdict.regime.value}, GPU busy {format_percent(verdict.busy)}"
    if account.is_of_gpu or not any(times.values()):
        return verdict.regime.value
    label = max(times, key=lambda each: times[each])
    share = format_percent(times[label] / sum(times.values()))
    return f"{verdict.regime.value}, {label.removeprefix(LABEL_OF_CPU)} {share}"


def _explain_part(a: SideAnalysis, b: SideAnalysis, part: PartChange) -> ChangeCause:
    """Find the pattern and the line behind a part, on the side that takes longer for it."""
    side, side_name, other = (b, "b", a) if part.delta > 0 else (a, "a", b)
    times, other_times = _list_patterns(side, part.id), _list_patterns(other, part.id)
    grown = {name: time - other_times.get(name, 0.0) for name, time in times.items()}
    name = max(grown, key=lambda candidate: grown[candidate], default="")
    found = next((found for found in side.findings if found.id == name), None)
    if found is None or grown[name] * 2 < abs(part.delta):  # it must explain most of the change
        found = None
    line = (found.line if found is not None else None) or find_part_line(a, b, part)
    if line is None and side.verdict.cause == _strip_prefix(part.id):
        line = side.verdict.line
    text = "" if line is None else f"the backward of {line.text}" if line.from_forward else line.text
    return ChangeCause(part, found, side_name, text, line.location if line else None)


def _list_patterns(side: SideAnalysis, part_id: str) -> Mapping[str, float]:
    """List the time that fired patterns explain inside a part: pattern id -> ns of one step."""
    tree = side.verdict.tree
    if tree is None:
        return {}
    parts: tuple[TimePart, ...] = tree.parts
    if part_id.startswith(GPU_CLASS):
        compute = tree.find(COMPUTE)
        parts = compute.parts if compute is not None else ()
    part = next((part for part in parts if part.id == _strip_prefix(part_id)), None)
    unit = tree.device_count * side.side.step_count
    return {} if part is None else {inner.id: inner.time / unit for inner in part.parts}


def _strip_prefix(part_id: str) -> str:
    for prefix in (GPU_CLASS, IDLE, CPU):
        part_id = part_id.removeprefix(prefix)
    return part_id
