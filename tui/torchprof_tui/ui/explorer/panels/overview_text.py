"""Format what the details panel says while no event is selected: top findings, steps, and the keys to press first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len

from torchprof_tui.analysis.repetition.step_list import REPETITION, are_repetitions
from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Step
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.keys import MAX_NUMBER_KEYS
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Lines, TextRun, wrap_text
from torchprof_tui.ui.explorer.panels.cheatsheet_text import ID_CELLS, choose_sign, format_stake, format_tree
from torchprof_tui.ui.lanes.step_labels import count_kinds, describe_serving

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.latest_only_checker import CheckResult
    from torchprof_tui.analysis.patterns.engine.pattern import Finding

STARTER_KEYS = (
    ("c", "problems in this trace, and how to fix them"),
    ("l", "the selected event's path: step, op, launch, kernel"),
    ("k", "resources of the selected kernel, and what limits it"),
    ("t", "the profiler's table: time by name"),
)
"""Keys to try first, and what they open."""

CPU_STARTER_KEYS = (
    ("c", "problems in this trace, and how to fix them"),
    ("l", "the selected event's path: step, op, calls"),
    ("t", "the profiler's table: time by name"),
    ("T", "the tree of calls: time by path"),
)
"""The same in a trace without GPU work."""

SHORT_KEYS = (("← → ↑ ↓", "events"), ("c", "all findings"), ("t", "table"), ("?", "keys"))
"""The same on one line, for panels of a few lines."""

TIME_MIN_LINES, MAX_TIME_LINES = 5, 8
"""Lines that must be left for the list of where the time went, and the most that it takes."""

KEY_LINES_MIN_HEIGHT = 8
"""Panel height from which each starter key has a line."""


def format_findings(
    checked: CheckResult | None, width: int, height: int, palette: Palette, has_gpu: bool = True
) -> Lines:
    """List the top findings, each with the key that goes there, what it costs and what was measured.

    Where lines are left, each is followed by what fixes it. Without a problem, list where the time went.
    """
    keys = _format_starter_keys(width, height, palette, has_gpu)
    if checked is None:
        return [[("looking for patterns …", palette.muted)], *keys]
    found = [finding for finding in checked.findings if finding.has_fired]
    if not found and checked.verdict.tree is None:
        return [[("No known pattern was found here.", palette.text)], *keys]
    problems = [finding for finding in found if finding.is_significant]
    room = max(height - len(keys), 1)
    if not problems and checked.verdict.tree is not None:
        return [*format_tree(checked.verdict.tree, max(room - 1, 2), width, palette)[:room], *keys]
    problems = problems or found
    shown = problems[: min(room, MAX_NUMBER_KEYS)]
    with_fix = min((room - len(shown)), len(shown))
    id_cells = min(max(len(finding.id) for finding in shown) + 2, ID_CELLS)
    stakes = [format_stake(finding, checked.base) for finding in shown]
    stake_cells = max(len(stake) for stake in stakes) + 2
    lines: Lines = []
    for index, finding in enumerate(shown):
        stake = f"{stakes[index]:<{stake_cells}}"
        lines.append(_format_finding(index + 1, finding, width, id_cells, stake, palette))
        if index < with_fix and finding.remedy.action:
            indent = 4
            text = truncate(clean(finding.remedy.action), width - indent - 5)
            lines.append([(" " * indent + "fix: ", palette.muted), (text, palette.text)])
    return [*lines, *_format_time(checked, room - len(lines), width, palette), *keys]


def _format_time(checked: CheckResult, room: int, width: int, palette: Palette) -> Lines:
    """List where the time went, where at least TIME_MIN_LINES lines are left."""
    tree = checked.verdict.tree
    if tree is None or room < TIME_MIN_LINES:
        return []
    heading: Lines = [[], [("where the time went", palette.heading)]]
    return [*heading, *format_tree(tree, min(room - len(heading), MAX_TIME_LINES), width, palette)]


def _format_finding(
    number: int, finding: Finding, width: int, id_cells: int, stake: str, palette: Palette
) -> list[TextRun]:
    sign, style = choose_sign(finding, palette)
    runs: list[TextRun] = [
        (f"{number} ", palette.key),
        (f"{sign} ", style),
        (f"{truncate(finding.id, id_cells - 1):<{id_cells}}", palette.strong),
        (stake, palette.text),
    ]
    room = width - 4 - id_cells - len(stake)
    return [*runs, (truncate(clean(finding.answer.seen), room), palette.text)] if room > 8 else runs


def _format_starter_keys(width: int, height: int, palette: Palette, has_gpu: bool) -> Lines:
    """List the keys to press first, for beginners who know no key yet."""
    if height < KEY_LINES_MIN_HEIGHT:
        runs: list[TextRun] = []
        used = 0
        for key, leads_to in SHORT_KEYS:
            cells = cell_len(f"{key} {leads_to}  ")
            if used + cells > width + 2:
                break
            runs += [(key, palette.key), (f" {leads_to}  ", palette.muted)]
            used += cells
        return [runs]
    lines: Lines = [
        [],
        *wrap_text("No event is selected. ← → ↑ ↓ or a click select one; ? lists all keys.", width, palette.muted),
    ]
    return lines + [
        [(key, palette.key), (truncate(f"  {leads_to}", width - 1), palette.muted)]
        for key, leads_to in (STARTER_KEYS if has_gpu else CPU_STARTER_KEYS)
    ]


def format_steps(
    steps: Sequence[Step],
    gpu_busy: Sequence[Intervals],
    width: int,
    height: int,
    palette: Palette,
    has_gpu: bool = True,
) -> Lines:
    """List the steps with their time and how busy the GPUs were; the slowest ones where not all have a line."""
    keys = _format_starter_keys(width, height, palette, has_gpu)
    if not steps:
        return keys[1:] if len(keys) > 1 else keys
    durations = np.array([step.duration for step in steps])
    median = int(np.median(durations))
    room = max(height - len(keys) - 1, 1)
    order = list(range(len(steps)))
    kinds = count_kinds(steps)
    counts = f" ({kinds})" if kinds else ""
    noun = REPETITION if are_repetitions(steps) else "step"
    title = f"{len(steps)} {noun}{'s' if len(steps) > 1 else ''}{counts}, median {format_duration(median)}"
    if noun == REPETITION:
        title += f", p95 {format_duration(int(np.quantile(durations, 0.95)))}"
    if len(steps) > room:
        order = np.argsort(-durations, kind="stable")[:room].tolist()
        title += "; the slowest:"
    lines: Lines = [[(title, palette.heading), ("   { } go through them", palette.muted)]]
    for index in order:
        step = steps[index]
        busy = ""
        if gpu_busy and step.duration > 0:
            time = sum(intervals.measure_between(step.start, step.start + step.duration) for intervals in gpu_busy)
            busy = f"   GPU busy {format_share(time / (len(gpu_busy) * step.duration))}"
        said = step.serving
        served = "" if said is None else f"   {describe_serving(said)}"
        text = f"#{step.number:<6} {format_duration(step.duration):>10}{served}{busy}"
        lines.append([(truncate(text, width), palette.text)])
    return lines + keys
