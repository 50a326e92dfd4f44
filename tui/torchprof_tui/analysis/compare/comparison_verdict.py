"""Say in words what changed between two recordings: the regimes, the largest causes, the patterns of one side only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchprof_tui.analysis.compare.account import CPU, GPU_CLASS, IDLE, LABEL_OF_CPU, Account, PartChange
from torchprof_tui.analysis.compare.changed_places import NamedChange, describe_line, describe_lines, find_places
from torchprof_tui.analysis.compare.execution import describe_set_up
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.engine.scope_view import format_percent
from torchprof_tui.analysis.patterns.rules.warmup import describe_launches, format_per_step
from torchprof_tui.analysis.patterns.verdict.tree_model import COMPUTE, EXPOSED, TimePart
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration

MAX_CAUSES = 3  # causes that a verdict names; the account has all

_MIN_UNCERTAIN_SHARE = 0.05
"""Changes within the noise are named from a twentieth of a step on: they may be all that there is."""

_WAITS = (EXPOSED, f"{IDLE}communication")
"""Parts in which a rank waits for others: they follow from what delays the others."""

ONE_STEP_SHARE = 2 / 3
"""Share of the differences of all steps that one must have to be named: twice as much as all others together."""

MAX_LISTED_STEPS = 4  # steps of two ranks whose differences are listed in the headline


@record
class ChangeCause:
    """A part of the step that changed. `pattern`: the fired one that explains most of it, on `side` ("a" or "b").

    `line`: the code behind it, for a reader; `location`: its "file:lineno". `ops`: those by which it changed, the
    largest change first. As recorded: `clean` them.
    """

    part: PartChange
    pattern: Finding | None
    side: str
    line: str
    location: str | None
    ops: tuple[NamedChange, ...] = ()


@record
class ComparisonVerdict:
    """The answer that is read first. `headline`: how much longer or shorter a step is, and whether by chance; or why
    the two cannot be compared. `why`: the part that changed most, `action`: what to do about it; "" for nothing.

    `causes`: the largest changes: at most MAX_CAUSES beyond noise, then larger ones within it.
    """

    headline: str
    is_comparable: bool
    why: str
    action: str
    regimes: str
    launches: str
    a: Verdict
    b: Verdict
    causes: tuple[ChangeCause, ...]
    patterns_a_only: tuple[Finding, ...]
    patterns_b_only: tuple[Finding, ...]

    @property
    def first(self) -> str:
        """The answer in one sentence: what changed, why, and what to do."""
        return "; ".join(filter(None, (self.headline, self.why, self.action)))


def decide_comparison(a: SideAnalysis, b: SideAnalysis, account: Account) -> ComparisonVerdict:
    """Decide what changed from A to B."""
    fired_a = {found.id: found for found in a.findings if found.is_significant}
    fired_b = {found.id: found for found in b.findings if found.is_significant}
    causes = tuple(_explain_part(a, b, part) for part in _select_causes(account))
    obstacle = _describe_obstacle(a, b)
    times_a = {part.label: part.a for part in account.parts}
    times_b = {part.label: part.b for part in account.parts}
    launches = describe_launches(a.launches_per_step, b.launches_per_step)
    if any(len(side.launches) > side.launches_per_step * side.side.step_count + 0.5 for side in (a, b)):  # of graphs
        launches += f"; kernels: {format_per_step(a.work_per_step)} → {format_per_step(b.work_per_step)}"
    return ComparisonVerdict(
        obstacle or describe_change(account),
        not obstacle,
        "" if obstacle else _describe_reason(account, causes),
        "" if obstacle else _choose_action(account, causes, b.verdict),
        f"A is {_describe_side(a, account, times_a)}; B is {_describe_side(b, account, times_b)}",
        launches,
        a.verdict,
        b.verdict,
        causes,
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


def _describe_obstacle(a: SideAnalysis, b: SideAnalysis) -> str:
    """Describe why the two cannot be compared, and what can be; "" if they can."""
    if set_up := describe_set_up(a, b):
        return set_up
    if bool(a.side.steps) == bool(b.side.steps):
        return ""
    words = [
        f"{name} is one {'step' if side.side.steps else 'piece without steps'}" for name, side in (("A", a), ("B", b))
    ]
    return f"not comparable: {' and '.join(words)}; give --steps, or a --range of one step"


def _describe_reason(account: Account, causes: Sequence[ChangeCause]) -> str:
    """Describe the largest part that changed as the step did; of two ranks, why one of them waits for the other."""
    if not account.delta and not account.by_step:
        return ""
    certain = [cause for cause in causes if not cause.part.is_within_noise]
    if waits := _find_wait(account, causes):
        wait, delay = waits
        early, late = ("B", "A") if wait.part.delta > 0 else ("A", "B")
        why = f"{delay.part.label} {format_duration(abs(delay.part.delta))} more{name_step(delay.part)}"
        return f"{early} waits {format_duration(abs(wait.part.delta))} more, as {late} comes later: {why}"
    if not account.by_step:  # a step of two ranks is as long on both: what one does longer, the other waits
        certain = [cause for cause in certain if (cause.part.delta > 0) is (account.delta > 0)]
    if not certain:
        return ""
    part = certain[0].part
    change = f"{'+' if part.delta > 0 else ''}{format_duration(part.delta)}"
    return f"the largest part is {part.label} ({change}{name_step(part)}){_format_place(certain[0])}"


def _find_wait(account: Account, causes: Sequence[ChangeCause]) -> tuple[ChangeCause, ChangeCause] | None:
    """Find a rank's wait for others among the causes, and what the other rank did longer meanwhile."""
    wait = next((cause for cause in causes if account.by_step and cause.part.id in _WAITS), None)
    if wait is None or wait.part.is_within_noise:
        return None
    others = (cause for cause in causes if cause.part.id not in _WAITS and not cause.part.is_within_noise)
    delay = next((cause for cause in others if (cause.part.delta > 0) is not (wait.part.delta > 0)), None)
    return None if delay is None else (wait, delay)


def _format_place(cause: ChangeCause) -> str:
    return f", at {cause.line}" if cause.line else f", in {cause.ops[0].text}" if cause.ops else ""


def _choose_action(account: Account, causes: Sequence[ChangeCause], verdict_b: Verdict) -> str:
    """Choose what to do: to record more steps, or the remedy of what takes longer; "" where B is faster."""
    if account.noise is None:
        return "record several steps of both to tell" if account.delta else ""
    if waits := _find_wait(account, causes):
        wait, delay = waits
        late = "A" if wait.part.delta > 0 else "B"
        return f"look at {late}{name_step(delay.part).replace(' mostly', '')}{_format_place(delay)}"
    if account.is_within_noise:
        return "record more steps to tell" if account.delta else ""
    slower = next((each for each in causes if each.part.delta > 0), None)
    if account.delta < 0 or slower is None:
        return ""
    if slower.pattern is not None:
        return slower.pattern.remedy.action
    if verdict_b.remedy and verdict_b.cause == _strip_prefix(slower.part.id):
        return verdict_b.remedy
    return "look there first" if _format_place(slower) else ""


def name_step(part: PartChange) -> str:
    """Name the step of two ranks in which most of a change happened; "" where it is of several."""
    total = sum(abs(time) for _, time in part.by_step)
    number, time = max(part.by_step, key=lambda step: abs(step[1]), default=(0, 0.0))
    return f", mostly in step #{number}" if len(part.by_step) > 1 and abs(time) >= ONE_STEP_SHARE * total else ""


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
    if account.by_step:
        ways = ", but not in each step" if account.is_within_noise else ""
        listed: Sequence[tuple[int, float]] = account.by_step
        if len(listed) > MAX_LISTED_STEPS:
            listed = [min(listed, key=lambda step: step[1]), max(listed, key=lambda step: step[1])]
        steps = [f"#{number} {'+' if time > 0 else ''}{format_duration(time)}" for number, time in listed]
        separator = ", " if len(listed) == len(account.by_step) else " to "
        return f"{change}{ways} (step by step: {separator.join(steps)})"
    if account.is_within_noise:
        return f"{change}, which is within the noise of {noise}"
    times = account.a / account.b if delta < 0 and account.b else 0.0
    factor = f", {times:{',.0f' if times >= 1000 else '.3g'}} times as fast" if times >= 1.5 else ""
    return f"{change}{factor} (noise {noise})"


def _describe_side(side: SideAnalysis, account: Account, times: Mapping[str, int]) -> str:
    """Describe what limits a side, how busy the GPU is, or without a GPU what takes most of the CPU's time."""
    verdict = side.verdict
    if verdict.busy is not None:
        base = "its steps" if side.side.steps else verdict.busy_base
        return f"{verdict.headline}, GPU busy {format_percent(verdict.busy)} of {base}"
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
    places = find_places(a, b, part)
    lines = places.lines
    line = found.line if found is not None else None
    if found is not None and found.pattern.is_fault and line is not None and line.file is None and lines:
        line = None  # an event stands for the line of all evidence; those that changed say more
    if line is None and not lines and side.verdict.cause == _strip_prefix(part.id):
        line = side.verdict.line
    if line is not None:
        lines = (NamedChange(describe_line(line), float(part.delta), line),)
    location = next((each.line.location for each in lines if each.line is not None), None)
    return ChangeCause(part, found, side_name, describe_lines(lines), location, places.ops)


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
