"""The lists of the fleet screen as lines of text, each with the rank and the step that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np
from rich.cells import cell_len

from torchprof_fleet.analysis.findings import find_median
from torchprof_fleet.analysis.report import FleetReport
from torchprof_fleet.analysis.waits import measure_waits_for
from torchprof_fleet.answers import list_hosts, list_ranks, list_steps, list_what_ifs
from torchprof_fleet.ui.row_text import (
    HOST_TITLES,
    NOTHING_FOUND,
    RANK_TITLES,
    STEP_TITLES,
    UNKNOWN,
    format_factor,
    format_host,
    format_rank,
    format_step,
)
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import DEFAULT_PALETTE, wrap_text

MAX_ROWS = 200  # rows of a list

MAX_REMOVED = 8
"""Ranks, and hosts, without which the job is replayed: the first ones account for nearly all of the time."""

SLOW, FACTOR_CELLS = 1.05, 20


class FleetList(Enum):
    """The lists; the value is the title of the tab."""

    FINDINGS = "findings"
    RANKS = "ranks"
    HOSTS = "hosts"
    STEPS = "steps"
    WAITS = "waits"
    WHAT_IF = "what if"
    SPEED = "speed"


@record
class ListRow:
    """A line. `ranks`: indexes, () for none; `step`: index, None for none; `is_first`: of its item."""

    text: str
    ranks: tuple[int, ...] = ()
    step: int | None = None
    is_first: bool = True


@record
class ListContent:
    """A header and rows."""

    header: str
    rows: tuple[ListRow, ...]


def _build_findings(report: FleetReport, width: int) -> ListContent:
    steps = {int(number): index for index, number in enumerate(report.fleet.steps.tolist())}
    rows: list[ListRow] = []
    for finding, share in zip(report.findings, report.savings, strict=True):
        saved = "" if share is None else f"; without it the job takes {share:.1%} less"
        step = None if finding.step is None else steps.get(finding.step)
        lines = [
            *_wrap(f"● {finding.text}{saved}", width - 2, "  "),
            *_wrap(f"  {finding.kind.action}", width - 2, "  "),
        ]
        rows += [ListRow(line, finding.ranks, step, not at) for at, line in enumerate(lines)]
    for each in report.lost:
        lines = _wrap(f"left out: {each.line}", width - 2, "  ")
        rows += [ListRow(line, (), None, not at) for at, line in enumerate(lines)]
    if not report.findings:
        rows = [ListRow(line) for line in _wrap(NOTHING_FOUND, width - 2, "")] + rows
    count = len(report.findings)
    return ListContent(f"{count} finding{'' if count == 1 else 's'}, late ranks and slow machines first", tuple(rows))


def _wrap(text: str, width: int, indent: str) -> list[str]:
    lines = wrap_text(clean(text), max(width, 10), DEFAULT_PALETTE.text, indent)
    return ["".join(part for part, _ in line) for line in lines]


def _build_ranks(report: FleetReport) -> ListContent:
    rows = list_ranks(report, MAX_ROWS)
    targets = [(_find_indexes(report, [row.rank]), None) for row in rows]
    return _make_table(RANK_TITLES, [format_rank(row) for row in rows], targets, 2)


def _build_hosts(report: FleetReport) -> ListContent:
    rows = list_hosts(report, MAX_ROWS)
    targets = [(_find_indexes(report, row.ranks), None) for row in rows]
    return _make_table(HOST_TITLES, [format_host(row) for row in rows], targets, 1)


def _build_steps(report: FleetReport) -> ListContent:
    rows = list_steps(report, MAX_ROWS)
    delays = [UNKNOWN if row.waited_for is None else format_duration(row.delay_us * 1000) for row in rows]
    cells = [(*format_step(row), delay) for row, delay in zip(rows, delays, strict=True)]
    steps = np.searchsorted(report.fleet.steps, [row.step for row in rows]).tolist()
    ranks = [_find_indexes(report, [] if row.waited_for is None else [row.waited_for]) for row in rows]
    return _make_table(STEP_TITLES, cells, list(zip(ranks, steps, strict=True)), 0)


def _build_waits(report: FleetReport) -> ListContent:
    """Build the list of ranks that came last to collectives, with the rank that waited longest for each."""
    fleet, rows = report.fleet, report.waits[:MAX_ROWS]
    cells = []
    for row in rows:
        waits = measure_waits_for(report.checker.matched, row.rank)
        longest = int(waits.argmax())
        counts = (str(fleet.ranks[row.rank]), str(row.collectives))
        times = (format_duration(row.delay), format_duration(row.waited), f"{np.count_nonzero(waits):,}")
        cells.append((*counts, *times, f"{fleet.label_rank(longest)}: {format_duration(waits[longest])}"))
    titles = ("rank", "last in", "median rank waited", "all waited", "waiting", "longest of all")
    return _make_table(titles, cells, [((row.rank,), None) for row in rows], 1)


def _build_what_if(report: FleetReport) -> ListContent:
    rows = sorted(list_what_ifs(report, MAX_REMOVED), key=lambda each: -each.saved_share)
    if not rows:
        return ListContent("no collectives are matched, so the step time without a rank is unknown", ())
    cells = [
        (format_duration(row.step_us * 1000), format_share(row.saved_share), f"without {row.without}") for row in rows
    ]
    targets = [(_find_indexes(report, row.ranks), None) for row in rows]
    return _make_table(("step then", "less", f"now {format_duration(report.fleet.step_time)}"), cells, targets, 1)


def _find_indexes(report: FleetReport, ranks: Sequence[int]) -> tuple[int, ...]:
    """Find the indexes in the fleet of ranks by their numbers."""
    return tuple(np.searchsorted(report.fleet.ranks, ranks).tolist())


def _build_speed(report: FleetReport, members: Sequence[int], width: int) -> ListContent:
    """Build the list of kernels and ops that are slower on these ranks than on the median rank."""
    fleet, checker = report.fleet, report.checker
    hosts = {fleet.hosts[index] for index in members}
    who = fleet.label_rank(members[0]) if len(members) == 1 else f"{len(members):,} ranks"
    who = f"host {hosts.pop()}" if len(members) > 1 and len(hosts) == 1 and "" not in hosts else who
    rows: list[ListRow] = []
    factors, slow = [], []
    for title, speed, is_slow in (("GPU", checker.gpu, checker.slow_gpus), ("CPU", checker.cpu, checker.slow_cpus)):
        factor = find_median(speed.factor[list(members)])
        if factor is not None:
            factors.append(f"its {title} takes {format_factor(factor)} the time of the median rank")
        if is_slow[list(members)].mean() > 0.5:
            slow.append(f"slow {title}")
        names = speed.rank_names(members)
        if not names:
            rows.append(ListRow(f"{title}: nothing that nearly all ranks ran often enough to compare"))
        for name, ratio in names:
            # half a bar is as fast as the median rank
            bar = "▬" * min(round(ratio * FACTOR_CELLS / 2), FACTOR_CELLS)
            end = "+" if ratio * FACTOR_CELLS / 2 > FACTOR_CELLS + 0.5 else " "
            mark = "▲" if ratio >= SLOW else " "
            line = f"{title} {ratio:6.2f} × {mark} {bar.ljust(FACTOR_CELLS)}{end} {clean(name)}"
            rows.append(ListRow(truncate(line, max(width - 2, 10))))
    verdict = f"{who}: unknown, too few of the same kernels and ops"
    if factors:
        verdict = f"{', '.join(factors)}: {' and '.join(slow) or 'as fast as the others vary'}"
    judged = [ListRow(line) for line in _wrap(verdict, width - 2, "")]
    header = truncate(f"{who}: time of the same work against the median rank", max(width - 2, 10))
    return ListContent(header, (*judged, *rows))


def _make_table(
    titles: Sequence[str],
    cells: Sequence[tuple[str, ...]],
    targets: Sequence[tuple[tuple[int, ...], int | None]],
    left: int,
) -> ListContent:
    """Make a table: columns to the right, the last `left` of them to the left."""
    safe = [tuple(map(clean, row)) for row in cells]
    widths = [max(map(cell_len, column)) for column in zip(titles, *safe, strict=True)]

    def join(row: Sequence[str]) -> str:
        parts = []
        for at, (cell, size) in enumerate(zip(row, widths, strict=True)):
            blank = " " * (size - cell_len(cell))
            parts.append(cell + blank if at >= len(widths) - left else blank + cell)
        return "  ".join(parts).rstrip()

    rows = [ListRow(join(row), ranks, step) for row, (ranks, step) in zip(safe, targets, strict=True)]
    return ListContent(join(titles), tuple(rows))


def build_list(report: FleetReport, which: FleetList, width: int, members: Sequence[int]) -> ListContent:
    """Build a list for a width; `members`: the ranks (indexes) under the cursor, for their speed."""
    if which is FleetList.FINDINGS:
        return _build_findings(report, width)
    if which is FleetList.SPEED:
        return _build_speed(report, members, width)
    builders = {
        FleetList.RANKS: _build_ranks,
        FleetList.HOSTS: _build_hosts,
        FleetList.STEPS: _build_steps,
        FleetList.WAITS: _build_waits,
        FleetList.WHAT_IF: _build_what_if,
    }
    return builders[which](report)
