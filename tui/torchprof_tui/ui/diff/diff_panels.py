"""The title, the verdict above the lanes, and the panels below them: the account, the matched rows, the remarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len
from rich.style import Style
from textual.geometry import Size
from textual.strip import Strip

from torchprof_tui.analysis.compare.account import Account
from torchprof_tui.analysis.compare.comparison import (
    ROW_MARKS,
    Comparison,
    RankChange,
    describe_cause,
    describe_ranks,
    describe_row,
    describe_steps,
    format_calls,
    format_change,
    list_largest_changes,
)
from torchprof_tui.analysis.compare.comparison_verdict import ChangeCause
from torchprof_tui.analysis.compare.matched_rows import By, ComparedRow, ComparedRows, RowStatus
from torchprof_tui.analysis.search.name_search import BadPattern, compile_matcher
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import (
    COPY_WIDTH,
    Lines,
    PaintedWidget,
    TextPanel,
    TextRun,
    build_strip,
    scroll_to_cursor,
    wrap_text,
)
from torchprof_tui.ui.common.text_charts import CHANGE_CELLS, LABEL_CELLS, TIME_CELLS, format_waterfall
from torchprof_tui.ui.diff.locked_view import VERDICT_LINES
from torchprof_tui.ui.diff.side_lanes import LEGEND, keep_end

GROUPINGS: tuple[By, ...] = ("op", "kernel", "module", "class")


class DifferenceList:
    """`rows`: those listed, the largest change first. `cursor`: an index, -1 before the first difference is shown.

    A difference is a change of time, or other names at the same place; `n` goes through them, or through what is found.
    """

    def __init__(self) -> None:
        self.by: By = "op"
        self.matched: ComparedRows | None = None
        self.filter = ""
        self.rows: list[ComparedRow] = []
        self.cursor = -1
        self._all: list[ComparedRow] = []
        self._difference_count = 0

    def set_rows(self, matched: ComparedRows) -> None:
        """Set the rows of a comparison; the filter stays."""
        self.by, self.matched, self.cursor = matched.by, matched, -1
        largest = list_largest_changes(matched)
        listed = set(map(id, largest))
        rest = [row for row in matched.rows if id(row) not in listed]
        renamed = [row for row in rest if row.status is not RowStatus.MATCHED]
        self._all = [*largest, *renamed, *(row for row in rest if row.status is RowStatus.MATCHED)]
        self._difference_count = len(largest) + len(renamed)
        self._apply_filter()

    @property
    def count(self) -> int:
        """Number of rows that `move` goes through: the differences, or the rows that the filter finds."""
        return len(self.rows) if self.filter else self._difference_count

    @property
    def on_gpu(self) -> bool:
        """Whether a side has GPU work; else rows are compared by CPU self time."""
        return self.matched is None or self.matched.total.on_gpu

    @property
    def current(self) -> ComparedRow | None:
        return self.rows[self.cursor] if 0 <= self.cursor < len(self.rows) else None

    def set_filter(self, text: str) -> str:
        """List only rows with this text. Returns what is wrong with it (all are listed then), else ""."""
        row = self.current
        self.filter = text
        problem = self._apply_filter()
        self.cursor = self.rows.index(row) if row in self.rows else min(self.cursor, 0)
        return problem

    def _apply_filter(self) -> str:
        self.rows = self._all
        if not self.filter:
            return ""
        matches = compile_matcher(self.filter)
        if isinstance(matches, BadPattern):
            return matches.message
        self.rows = [
            row for row in self._all if any(map(matches, (row.name_a, row.name_b, describe_row(row, self.by))))
        ]
        return ""

    def move(self, distance: int) -> bool:
        """Move the cursor, from the last difference to the first. Returns whether there is one."""
        if self.count:
            first = -1 if distance > 0 else 0
            self.cursor = (min(max(self.cursor, first), self.count) + distance) % self.count
        return bool(self.count)

    def move_within(self, distance: int) -> bool:
        """Move the cursor without going round. Returns whether it moved."""
        cursor = min(max(self.cursor + distance, 0), len(self.rows) - 1)
        is_moved = cursor != self.cursor and bool(self.rows)
        self.cursor = cursor if self.rows else -1
        return is_moved


MIN_BAR_CELLS, MAX_BAR_CELLS = 6, 60
MAX_WATERFALL_PARTS = 24

ACCOUNT, ROWS, REMARKS = "account", "rows", "remarks"


class ComparisonPanel(TextPanel):
    """A panel about a comparison, whose account is computed; None until it is."""

    _comparison: Comparison | None = None

    def show_comparison(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self.refresh_content()


class AccountPanel(ComparisonPanel):
    """Show how the parts of a step move its time from A's to B's; they sum to the difference exactly."""

    def content(self, width: int) -> Lines:
        palette, comparison = self.palette, self._comparison
        if comparison is None:
            return [[("dividing the steps of both …", palette.muted)]]
        lines: Lines = []
        if comparison.differences:
            first = comparison.differences[0]
            more = f" (+{len(comparison.differences) - 1} more: remarks)" if len(comparison.differences) > 1 else ""
            text = f"before comparing: {first.what}: A {first.a}, B {first.b}: {first.consequence}{more}"
            lines += wrap_text(clean(text), width, palette.strong, "  ")
        bar_cells = width - LABEL_CELLS - 2 * TIME_CELLS - CHANGE_CELLS - 6
        bar_cells = min(max(bar_cells, MIN_BAR_CELLS), MAX_BAR_CELLS)
        counts = (len(side.side.steps) for side in (comparison.a, comparison.b))
        end_a, end_b = (
            f"{each}, mean of {count}" if count > 1 else each for each, count in zip("AB", counts, strict=True)
        )
        chart = format_waterfall(comparison.account, bar_cells, MAX_WATERFALL_PARTS, (end_a, end_b))
        for index, text in enumerate(chart):
            lines.append([(text, palette.muted if not index or text.startswith("(") else palette.text)])
        if not comparison.is_same_recording:
            for text in (comparison.verdict.regimes, comparison.verdict.launches):
                lines += wrap_text(clean(text), width, palette.text, "  ") if text else []
        return lines


class RemarksPanel(ComparisonPanel):
    """Show the causes with their lines, what was recorded differently, and the patterns of one side only."""

    _ranks: Sequence[RankChange] = ()

    def show_ranks(self, ranks: Sequence[RankChange]) -> None:
        self._ranks = ranks
        self.refresh_content(top=False)

    def content(self, width: int) -> Lines:
        palette, comparison = self.palette, self._comparison
        if comparison is None:
            return [[("checking both for patterns …", palette.muted)]]
        lines: Lines = []
        for heading, texts in _list_remarks(comparison, self._ranks):
            lines.append([(heading, palette.strong)])
            for text in texts:
                lines += [
                    [("  ", palette.text), *runs] for runs in wrap_text(clean(text), width - 2, palette.text, "  ")
                ]
        return lines


def _list_remarks(comparison: Comparison, ranks: Sequence[RankChange]) -> Iterator[tuple[str, list[str]]]:
    """List (heading, texts) of what there is to say beside the account and the rows."""
    if comparison.is_same_recording:
        yield SAME_RECORDING, []
    else:
        verdict = comparison.verdict
        if verdict.causes:
            yield "largest causes", [describe_cause(cause) for cause in verdict.causes]
        if comparison.differences:
            yield (
                "to know before comparing",
                [f"{each.what}: A {each.a}, B {each.b}: {each.consequence}" for each in comparison.differences],
            )
        for letter, findings in (("A", verdict.patterns_a_only), ("B", verdict.patterns_b_only)):
            if findings:
                yield f"patterns of {letter} only", [f"{found.id}: {found.answer.seen}" for found in findings]
    for letter, side in (("A", comparison.a), ("B", comparison.b)):
        left_out = [f"left out: {reason}" for reason in side.side.left_out]
        yield f"{letter}: {side.side.label}", [describe_steps(side), *left_out]
    if ranks:
        yield "ranks", [describe_ranks(ranks)]


class RowsPanel(TextPanel):
    """Show the matched rows with a cursor; only those on screen are built."""

    def __init__(self, differences: DifferenceList) -> None:
        super().__init__(id="diff-rows")
        self._differences = differences
        self.empty_text = "matching the ops of both …"

    def show_rows(self) -> None:
        """Repaint after the rows or the cursor changed; the cursor is on screen."""
        cursor = max(self._differences.cursor, 0)
        self._top = scroll_to_cursor(self._top, cursor, self.page_size, self._count_lines())
        self.repaint()

    def scroll_lines(self, count: int) -> bool:
        is_moved = self._differences.move_within(count)
        self.show_rows()
        return is_moved

    def text(self) -> str:
        """Return all listed rows as plain text, for copying."""
        width = min(max(self.size.width - 2, 1), COPY_WIDTH)
        listed = [self._format_line(index, width)[0].rstrip() for index in range(self._count_lines())]
        return "\n".join([self._format_header(width).rstrip(), *listed])

    def _format_header(self, width: int) -> str:
        cells = [(column.title, column.cells) for column in choose_columns(width, self._differences.on_gpu)]
        return _join(f"per step, by {self._differences.by}", cells, width)

    @property
    def lines_below(self) -> int:
        return max(0, self._count_lines() - self._top - self.page_size)

    def prepare(self, size: Size) -> None:
        self._top = min(self._top, max(0, self._count_lines() - self.page_size))

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        lead, inner = (self._lead, palette.line), max(width - 2, 1)
        if self._differences.matched is None or not self._count_lines():
            lines = wrap_text(self.empty_text, inner, palette.muted)
            return build_strip([lead, *(lines[y] if y < len(lines) else [])], width, palette.text)
        if y == 0:
            return build_strip([lead, (self._format_header(inner), palette.muted)], width, palette.text)
        index = self._top + y - 1
        if index >= self._count_lines():
            return build_strip([lead], width, palette.text)
        text, style = self._format_line(index, inner)
        return build_strip([lead, (text, style)], width, palette.text)

    def _count_lines(self) -> int:
        """Number of rows, with that of unmatched GPU work and the total below them."""
        return len(self._differences.rows) + len(self._list_sums())

    def _list_sums(self) -> list[str]:
        matched = self._differences.matched
        if matched is None or self._differences.filter:
            return []
        has_unmatched = matched.not_matched.sums_a.calls or matched.not_matched.sums_b.calls
        return [*(["GPU work, no launch"] if has_unmatched else []), "total"]

    def _format_line(self, index: int, width: int) -> tuple[str, Style]:
        differences, palette = self._differences, self.palette
        assert differences.matched is not None
        if index < len(differences.rows):
            is_current = index == differences.cursor
            lead = "▶" if is_current else " "
            text = lead + format_row(differences.rows[index], differences.by, width - 1)
            return text, palette.active if is_current else palette.text
        label = self._list_sums()[index - len(differences.rows)]
        row = differences.matched.total if label == "total" else differences.matched.not_matched
        return " " + format_row(row, differences.by, width - 1, label), palette.muted


MIN_NAME_CELLS = 24


@record
class Column:
    """A column of numbers. `importance`: those of a low one are left out first."""

    title: str
    cells: int
    importance: int


COLUMNS = (
    Column("calls", 9, 2),
    Column("GPU: A", 9, 3),
    Column("B", 9, 3),
    Column("change", 10, 5),
    Column("CPU self", 10, 4),
    Column("of diff", 7, 1),
)

CPU_COLUMNS = tuple(
    replace(column, title=column.title.replace("GPU", "CPU")) for column in COLUMNS if column.title != "CPU self"
)
"""Columns where neither side has GPU work: CPU self times."""


def choose_columns(width: int, on_gpu: bool) -> list[Column]:
    """Choose the columns that leave at least MIN_NAME_CELLS for the name."""
    chosen = list(COLUMNS if on_gpu else CPU_COLUMNS)
    while chosen and width - sum(column.cells + 1 for column in chosen) < MIN_NAME_CELLS:
        least = min(column.importance for column in chosen)
        chosen = [column for column in chosen if column.importance > least]
    return chosen


def format_row(row: ComparedRow, by: By, width: int, label: str = "") -> str:
    """Format a row in exactly `width` cells; `label` in place of its name."""
    calls = format_calls(row.calls_a)
    if row.calls_a != row.calls_b:
        calls = f"{calls}→{format_calls(row.calls_b)}"
    times = (row.gpu_ns_a, row.gpu_ns_b) if row.on_gpu else (row.cpu_ns_a, row.cpu_ns_b)
    changes = (row.gpu_delta_ns, row.cpu_delta_ns) if row.on_gpu else (row.cpu_delta_ns,)
    values = (
        calls,
        *(format_duration(time) if time else "-" for time in times),
        *map(format_change, changes),
        format_share(row.share) if row.share else "-",
    )
    shown = dict(zip(COLUMNS if row.on_gpu else CPU_COLUMNS, values, strict=True))
    columns = choose_columns(width, row.on_gpu)
    text = clean(label or describe_row(row, by))
    room = width - sum(column.cells + 1 for column in columns) - 2
    if by == "module" and cell_len(text) > room:
        text = f"…{text[len(text) - room + 1 :]}"  # the end says which layer it is
    mark = ROW_MARKS.get(row.status, " ")
    return _join(f"{mark} {text}", [(shown[column], column.cells) for column in columns], width)


def _join(name: str, cells: Sequence[tuple[str, int]], width: int) -> str:
    numbers = "".join(f" {truncate(text, size):>{size}}" for text, size in cells)
    room = max(width - len(numbers), 0)
    name = truncate(name, room)
    return name + " " * (room - cell_len(name)) + numbers


SAME_RECORDING = "the same recording: nothing differs"
WAYS_TO_COMPARE = "D compares another trace, two steps (step 3/4) or two ranks (rank 0/3)"


class VerdictLines(ComparisonPanel):
    """Show `VERDICT_LINES` lines; the headline comes first and may take two."""

    DEFAULT_CSS = f"VerdictLines {{ height: {VERDICT_LINES}; width: 100%; }}"

    _progress = "finding the steady steps of both …"

    def show_progress(self, text: str) -> None:
        self._progress = text
        self.refresh_content()

    def content(self, width: int) -> Lines:
        if self._comparison is None:
            return [[(self._progress, self.palette.muted)]]
        comparison, palette = self._comparison, self.palette
        if comparison.is_same_recording:
            lines = [[(SAME_RECORDING, palette.strong)], *wrap_text(WAYS_TO_COMPARE, width, palette.text)]
            return lines[:VERDICT_LINES]
        verdict = comparison.verdict
        account = comparison.account  # the headline itself says where a change may be chance, or cannot be told
        is_measured = verdict.is_comparable and account.delta and not account.by_step
        is_certain = is_measured and account.is_within_noise is False
        headline = f"{'beyond the noise: ' if is_certain else ''}{verdict.headline}"
        lines = wrap_text(clean(headline), width, palette.strong)[: VERDICT_LINES - 1]
        rows = VERDICT_LINES - len(lines)
        cause = verdict.why if account.by_step and verdict.why else describe_main_cause(verdict.causes, account)
        texts = [cause, verdict.regimes] if rows > 1 else [cause]
        return [*lines, *([(truncate(clean(text), width), palette.text)] for text in texts)]

    def prepare(self, size: object) -> None:
        self._content = self.content(max(self.size.width - 2, 1))
        self._top = 0


def describe_main_cause(causes: Sequence[ChangeCause], account: Account) -> str:
    """Describe the largest cause that changed as the step did; without one, the largest that did the opposite."""
    if not causes:
        return "no part of the step changed noticeably"
    found = [each for each in causes if account.by_step or (each.part.delta > 0) is (account.delta > 0)]
    return f"largest cause: {describe_cause(found[0])}" if found else f"partly undone by: {describe_cause(causes[0])}"


class DiffTitle(PaintedWidget):
    """Show "A name → B name" on the left and the legend on the right, which is never cut."""

    DEFAULT_CSS = "DiffTitle { height: 1; width: 100%; }"

    def __init__(self, label_a: str, label_b: str) -> None:
        super().__init__(id="diff-title")
        self._labels = clean(label_a), clean(label_b)

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        room = width - cell_len(LEGEND) - 4
        names = room - cell_len("A  → B ")
        shorter = min(names // 2, min(map(cell_len, self._labels)))
        cells = [max(min(cell_len(label), names - shorter), shorter) for label in self._labels]
        runs: list[TextRun] = [(" ", palette.text)]
        for letter, label, size, arrow in zip("AB", self._labels, cells, (" → ", ""), strict=True):
            runs += [(f"{letter} ", palette.strong), (keep_end(label, size), palette.strong), (arrow, palette.muted)]
        used = sum(cell_len(text) for text, _ in runs)
        gap = " " * max(width - used - cell_len(LEGEND) - 1, 1)
        return build_strip([*runs, (gap, palette.text), (LEGEND, palette.muted)], width, palette.text)
