"""Say in words what changed between two recordings: the regimes, the largest causes, the patterns of one side only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchprof_tui.analysis.compare.account import CPU, GPU_CLASS, IDLE, LABEL_OF_CPU, Account, PartChange
from torchprof_tui.analysis.compare.part_line import find_part_line
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.engine.scope_view import format_percent
from torchprof_tui.analysis.patterns.verdict.tree_model import COMPUTE, TimePart
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
from torchprof_tui.trace.core.time_format import format_duration

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
