"""The cheatsheet panel: the verdict on the current scope, where its time went, and the patterns that fire in it.

The entry under the cursor is explained in full, and its evidence is highlighted on the lanes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.style import Style

from torchprof_tui.analysis.patterns.engine.pattern import (
    EvidencePlaces,
    Finding,
    Severity,
    State,
    describe_code_line,
    find_code_location,
)
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_GPU, describe_group, group_undecidable
from torchprof_tui.analysis.patterns.verdict.tree_model import COMPUTE, COPIES, EXPOSED, select_tree_lines
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.labels import describe_saving
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Lines, TextRun, hang_text, wrap_text
from torchprof_tui.ui.explorer.panels.panel import Panel, SourceTarget, check_line
from torchprof_tui.ui.explorer.scope_checks import ScopeChecks

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.verdict.costs import CostBase
    from torchprof_tui.analysis.patterns.verdict.latest_check import CheckResult
    from torchprof_tui.analysis.patterns.verdict.rank_checks import LateRank
    from torchprof_tui.analysis.patterns.verdict.tree_model import TimeTree
    from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
    from torchprof_tui.ui.explorer.background_queries import (
        LateRankChecked,
        ScopeChecked,
        TraceChecked,
        VerdictDecided,
    )


PROBLEM_SIGN, NOTE_SIGN, ARTEFACT_SIGN = "●", "○", "·"
IN_EVENT = "in"  # stands for the key where the code behind a finding is known only by an event around it

ID_CELLS, STAKE_CELLS, ROW_LABEL_CELLS = 26, 16, 9
MIN_TEXT_CELLS = 20  # minimum width of the text after an entry's id and cost; in less it is left out

TREE_MIN_HEIGHT, TREE_HEIGHT_PER_LINE, TREE_MAX_LINES = 12, 3, 8
"""The tree has lines from 12 lines of the panel on, another one per 3 more, when the entries matter more."""

WHY_MIN_HEIGHT = 12  # panel height from which the numbers behind the verdict are shown

WRAP_MIN_HEIGHT = 24  # panel height from which what was measured of other findings takes two lines where it needs them
_SHARE_CELLS, _TIME_CELLS, _BAR_CELLS = 6, 9, 20


def format_counts(checked: CheckResult, width: int) -> str:
    """Format how many patterns are problems, fired otherwise, not present, undetermined: as many as fit."""
    states = [finding.state for finding in checked.findings]
    without_gpu = sum(finding.answer.reason == NO_GPU for finding in checked.findings)
    problems = sum(finding.is_significant for finding in checked.findings)
    notes = states.count(State.FIRED) - problems
    parts = [
        f"{problems} problem{'s' if problems != 1 else ''} · {notes} note{'s' if notes != 1 else ''}",
        f"{states.count(State.ABSENT)} not present",
        f"{states.count(State.CANNOT_TELL) - without_gpu} undetermined",
        *([f"{without_gpu} need a GPU"] if without_gpu else []),
    ]
    while cell_len(" · ".join(parts)) > width and len(parts) > 1:
        parts.pop()
    return " · ".join(parts)


def format_verdict(
    verdict: Verdict,
    width: int,
    height: int,
    palette: Palette,
    with_text: bool = True,
    first: Finding | None = None,
    steps: int = 0,
) -> Lines:
    """Format the verdict, with its numbers and the time tree as far as `height`, the panel's lines, leaves room.

    `with_text`: with its sentence, which stands above the lanes too. `first`: the first finding below.
    """
    lines = wrap_text(clean(verdict.text), width, palette.strong) if with_text else []
    if height >= WHY_MIN_HEIGHT and (first is None or verdict.why != first.answer.seen):
        line = describe_code_line(verdict)
        if first is not None and line == describe_code_line(first):
            line = ""  # the finding says where
        where = f"largest {'at' if find_code_location(verdict) else 'in'} {line}" if line else ""
        detail = " · ".join(filter(None, (verdict.why, where)))
        lines += wrap_text(clean(detail), width, palette.muted, "  ") if detail else []
    if verdict.tree is not None and height >= TREE_MIN_HEIGHT:
        line_count = 4 + (height - TREE_MIN_HEIGHT) // TREE_HEIGHT_PER_LINE
        lines += format_tree(verdict.tree, min(line_count, TREE_MAX_LINES), width, palette, steps)
    return lines


def format_tree(tree: TimeTree, max_lines: int, width: int, palette: Palette, steps: int = 0) -> Lines:
    """Format the largest parts of the time of so many steps, each with a bar of its share."""
    length = format_duration(tree.measured // max(tree.device_count, 1)) + (f" of {steps:,} steps" if steps > 1 else "")
    lines: Lines = [[(truncate(f"where the {length} went{tree.mean_note}{tree.outside_note}", width), palette.strong)]]
    for line in select_tree_lines(tree, max(max_lines - 1, 2))[: max_lines - 1]:
        numbers = f"  {format_share(line.share):>{_SHARE_CELLS}} {format_duration(line.time):>{_TIME_CELLS}} "
        bar = "█" * round(line.share * _BAR_CELLS)
        label = "  " * line.depth + clean(line.label)
        label_width = width - len(numbers) - _BAR_CELLS - 1
        runs: list[TextRun] = [(numbers, palette.text)]
        kind = _BAR_KINDS.get(line.id)
        style = palette.muted if line.depth else palette.bar if kind is None else palette.ink(kind)
        if label_width >= MIN_TEXT_CELLS:
            runs.append((f"{bar:<{_BAR_CELLS}} ", style))
        else:
            label_width = width - len(numbers)
        lines.append([*runs, (truncate(label, label_width), palette.text)])
    return lines


_BAR_KINDS = {COMPUTE: Kind.KERNEL, COPIES: Kind.COPY, EXPOSED: Kind.COLLECTIVE}
"""What the GPU does has the colour that it has on the lanes; what it waits for has that of all amounts."""


def format_entry(
    finding: Finding,
    width: int,
    current: bool,
    palette: Palette,
    base: CostBase,
    shows_rule: bool = False,
    late_rank: str = "",
    can_try: bool = False,
    wraps: bool = False,
) -> Lines:
    """Format a fired pattern: on one line; the current entry with what was measured, why, what to do, where to go.

    `base`: what costs are shares of. `shows_rule`: also how the current entry was found. `late_rank`: where ] leads.
    `can_try`: what its remedies save can be measured. `wraps`: another line holds the rest of what was measured.
    """
    pattern, answer = finding.pattern, finding.answer
    seen = clean(answer.seen)
    sign, style = choose_sign(finding, palette)
    head: list[TextRun] = [
        ("▶ " if current else f"{sign} ", style),
        (f"{truncate(finding.id, ID_CELLS - 1):<{ID_CELLS}}", palette.active if current else palette.strong),
    ]
    text_width = width - 2 - ID_CELLS
    if finding.cost:
        head.append((f"{format_stake(finding, base):>{STAKE_CELLS}}  ", palette.text))
        text_width -= STAKE_CELLS + 2
    if not current:
        if text_width < MIN_TEXT_CELLS:
            return [head]
        return _format_note(head, seen, text_width, width, wraps, palette)
    title = truncate(clean(pattern.title), text_width)
    lines: Lines = [head if text_width < MIN_TEXT_CELLS else [*head, (title, palette.text)]]
    action, saving = finding.remedy.action, describe_saving(finding)
    todo = f"{action}; {saving}" if saving else action
    rows = [("measured", seen), ("why", pattern.meaning), ("do", todo), ("", finding.remedy.code)]
    room = max(width - ROW_LABEL_CELLS - 2, 10)
    ways = list_ways(finding, shows_rule, late_rank, can_try)
    lines += _format_rows(rows, room, palette) + _format_way(ways, room, palette)
    if shows_rule:
        limits = [("limit" if not k else "", threshold.text) for k, threshold in enumerate(pattern.thresholds)]
        lines += _format_rows([("rule", pattern.decided), *limits], room, palette)
    return lines


def _format_note(head: list[TextRun], seen: str, room: int, width: int, wraps: bool, palette: Palette) -> Lines:
    first, *rest = wrap_text(seen, room, palette.text) if wraps else [[(truncate(seen, room), palette.text)]]
    text = truncate(" ".join(text for line in rest for text, _ in line), room)
    return [[*head, *first], *([[(" " * (width - room), palette.text), (text, palette.text)]] if rest else [])]


def _format_rows(rows: list[tuple[str, str]], room: int, palette: Palette) -> Lines:
    """Format labels, each with its text wrapped to `room` cells beside it; rows without a text are left out."""
    return [
        line
        for label, text in rows
        if text
        for line in hang_text(f"  {label}", ROW_LABEL_CELLS + 2, clean(text), room, palette)
    ]


def _format_way(ways: list[tuple[str, str]], room: int, palette: Palette) -> Lines:
    """Format where the keys lead from an entry, each key with its text on one line."""
    lines: Lines = []
    used = room + 1
    for key, text in ways:
        text = truncate(clean(text), max(room - len(key) - 1, 1))
        cells = cell_len(key) + 1 + cell_len(text)
        if used + 3 + cells > room:
            label = "" if lines else "  go to"
            lines.append([(f"{label:<{ROW_LABEL_CELLS + 2}}", palette.muted)])
            used = 0
        else:
            lines[-1].append(("   ", palette.text))
            used += 3
        lines[-1] += [(key, palette.key if key != IN_EVENT else palette.muted), (f" {text}", palette.text)]
        used += cells
    return lines


def list_ways(
    finding: Finding, shows_rule: bool = False, late_rank: str = "", can_try: bool = False
) -> list[tuple[str, str]]:
    """List where keys lead from an entry: late rank, evidence, line of code, trials, how it was found."""
    places = finding.answer.places
    if places is not None and places.are_gaps:
        count, noun, first = len(places), "gap", "the longest"
    else:
        count, noun = len(finding.answer.events), "event"
        first = "the costliest" if finding.is_problem else "the first"
    ways = [("]", f"opens {late_rank}")] if late_rank else []
    ways += [("enter", f"{first} of {count:,} {noun}s" if count > 1 else f"the {noun}")] if count else []
    if count > 1:
        ways.append(("n N", "the others"))
    if line := describe_code_line(finding):
        ways.append(("L" if find_code_location(finding) else IN_EVENT, line))
    ways += [(":try", "measures what its remedies save")] if can_try else []
    return [*ways, ("E", "hide the rule" if shows_rule else "its rule")]


def choose_sign(finding: Finding, palette: Palette) -> tuple[str, Style]:
    """Return the sign of a fired pattern and its style: red only for a problem that costs enough time."""
    if finding.is_significant:
        return PROBLEM_SIGN, palette.warning
    if finding.pattern.severity is Severity.ARTEFACT:
        return ARTEFACT_SIGN, palette.muted
    return NOTE_SIGN, palette.text


def format_stake(finding: Finding, base: CostBase) -> str:
    """Format what a finding costs and its share; "" where it costs no time."""
    return f"{format_duration(base.price(finding))}, {format_share(finding.share)}" if finding.cost else ""


GAP_MARGIN = 0.15
"""Margin on both sides of a gap that is shown, as a share of its length: the events around it are on screen."""


@record
class EvidencePlace:
    """One place: `start` to `end` (ns), `event` to select there (-1 for none), the `number` from 1 of `count`."""

    finding_id: str
    start: int
    end: int
    event: int
    number: int
    count: int
    is_gap: bool

    def describe(self, trace: Trace) -> str:
        """Describe the place in a line; the name of its event as recorded: `clean` it."""
        nth = f"{self.number:,} of {self.count:,}"
        if not self.is_gap:
            return f"{self.finding_id}: {nth}"
        text = f"{self.finding_id}: gap {nth}, {format_duration(self.end - self.start)}"
        if self.event < 0:
            return text
        start = int(trace.start[self.event])
        side = "before" if start >= self.end else "after" if start < self.start else "in"
        return f"{text} {side} {trace.names[trace.name[self.event]]}"


class EvidenceCursor:
    """Walk through the places of one finding after the other; `move` starts anew where the finding is another."""

    def __init__(self) -> None:
        self._finding: Finding | None = None
        self._places: EvidencePlaces | None = None
        self._index = -1

    def reset(self) -> None:
        """Start anew with the next move."""
        self._index = -1

    def move(self, finding: Finding, trace: Trace, distance: int) -> EvidencePlace | None:
        """Move to the next place (the previous one where `distance` is negative); None without evidence."""
        if self._finding is not finding or self._places is None:
            self._finding, self._places = finding, finding.find_places(trace)
        places, count = self._places, len(self._places)
        if not count:
            return None
        first = 0 if distance > 0 else count - 1
        self._index = index = (self._index + distance) % count if self._index >= 0 else first
        start, end, event = int(places.start[index]), int(places.end[index]), int(places.event[index])
        return EvidencePlace(finding.id, start, end, event, index + 1, count, places.are_gaps)


VERDICT_MIN_HEIGHT = 8  # panel height from which the lines above the first entry are shown together with it


class CheatsheetPanel(Panel):
    """List the findings of `scopes`. `finding`: the one under the cursor. `tryable`: those with remedies to try."""

    NAME = "cheatsheet"

    def __init__(self, scopes: ScopeChecks) -> None:
        super().__init__()
        self._scopes = scopes
        self.tryable: frozenset[str] = frozenset()
        self.checked: CheckResult | None = None
        """The findings shown, None until they are known."""
        self._scope_label = ""
        self._cursor_id = ""  # the id of an entry, so that it stays when the order changes
        self._is_cursor_moved = False  # by the user; else it is on the first entry
        self._evidence = EvidenceCursor()
        self._reveals_cursor = True  # in the next frame
        self._is_verdict_above = False
        self._shows_rule = False
        self._lines_by_id: dict[str, tuple[int, int]] = {}

    def on_verdict_decided(self, message: VerdictDecided) -> None:
        self._scopes.show_verdict(message.verdict, message.rank_index)

    def on_trace_checked(self, message: TraceChecked) -> None:
        if self._scopes.take_trace(message.checked, message.rank_index):
            self._show_checked()

    def on_scope_checked(self, message: ScopeChecked) -> None:
        if self._scopes.take_scope(message.checked, message.rank_index):
            self._show_checked()

    def on_late_rank_checked(self, message: LateRankChecked) -> None:
        self._scopes.take_late_rank()
        self._show_checked()

    def set_tryable(self, findings: frozenset[str]) -> None:
        """Set the findings whose remedies can be tried."""
        if findings != self.tryable:
            self.tryable = findings
            self.refresh_content(top=False)

    def _show_checked(self) -> None:
        """Show the last result and the label of its scope; a cursor that was moved stays while its pattern fires."""
        self.checked, self._scope_label = self._scopes.checked, self._scopes.label
        fired = [finding.id for finding in self._fired_findings()]
        if self._cursor_id not in fired or not self._is_cursor_moved:
            before = self._cursor_id
            self._cursor_id = fired[0] if fired else ""
            if self._cursor_id != before:
                self._evidence.reset()
                self._reveals_cursor = True
        self.refresh_content(top=False)

    @property
    def finding(self) -> Finding | None:
        """The fired pattern under the cursor, None for none."""
        return next((finding for finding in self._fired_findings() if finding.id == self._cursor_id), None)

    def _fired_findings(self) -> list[Finding]:
        return [] if self.checked is None else [finding for finding in self.checked.findings if finding.has_fired]

    @property
    def has_keys(self) -> bool:
        return self.finding is not None

    def list_next_keys(self) -> list[tuple[str, str]]:
        if self.checked is None:
            return []
        if self.finding is None:
            return [("v", "other scope"), ("t", "table"), ("C", "critical path")]
        return [("enter", "show it"), ("v", "other scope")]

    def move(self, distance: int) -> str:
        self.context.view_state.search.is_last_question = False
        ids = [finding.id for finding in self._fired_findings()]
        index = ids.index(self._cursor_id) + distance if self._cursor_id in ids else -1
        if 0 <= index < len(ids):
            self._move_to(ids[index])
        elif distance > 0 or not self.scroll_to_top():
            return f"the {'last' if distance > 0 else 'first'} finding; tab leaves the cheatsheet"
        return ""

    def enter(self) -> str | None:
        """Show the next evidence; fit its event, if there is one."""
        if self.finding is None:
            return None
        message, place = self._go_to_evidence(1)
        if self.context.view_state.selected < 0 or (place is not None and place.is_gap):
            return message
        return self.context.view_state.fit_selection() or message

    @property
    def _late_rank(self) -> LateRank | None:
        """The rank that the finding under the cursor waits for, where it is another one; else None."""
        late = None if self.checked is None else self.checked.late_rank
        is_about_it = late is not None and self._cursor_id == late.FINDING and self._scopes.rank.label != late.label
        return late if is_about_it else None

    def follow(self) -> str | None:
        """Go to the rank that is late, to the event before which it loses most, and to what costs most there."""
        if (late := self._late_rank) is None:
            return None
        state = self.context.view_state
        state.open_rank(state.trace.all_ranks[late.index])
        state.show_in_step(late.event)
        self._is_cursor_moved = False
        return f"{late.label}: where it is late the longest; backspace goes back"

    def next_evidence(self, distance: int) -> str | None:
        if self.finding is None or self.context.view_state.search.is_last_question:
            return None
        return self._go_to_evidence(distance)[0]

    def _go_to_evidence(self, distance: int) -> tuple[str, EvidencePlace | None]:
        """Select the next place of the evidence, the previous one for a negative distance. Returns a message too."""
        state = self.context.view_state
        place = self._next_place(distance)
        if place is None:
            return "this finding has no single event to show", None
        self._is_cursor_moved = True
        if self._scopes.hold():
            self._show_checked()
        state.select(place.event)
        if place.is_gap:  # select() may have panned to the event beside it
            margin = round((place.end - place.start) * GAP_MARGIN)
            state.show_range(place.start - margin, place.end + margin)
        return clean(place.describe(state.trace)), place

    def _next_place(self, distance: int) -> EvidencePlace | None:
        finding = self.finding
        return None if finding is None else self._evidence.move(finding, self.context.view_state.trace, distance)

    def select_first_evidence(self) -> None:
        """Select the next event of the evidence, so that its chain or kernel can be shown."""
        place = self._next_place(1)
        if place is not None and place.event >= 0:
            self.context.view_state.select(place.event)

    def go_to_finding(self, number: int) -> str:
        """Handle 1 to 9: move to this finding, counted from 1, and fit its first evidence."""
        if self.checked is None:
            return "still looking for patterns"
        fired = self._fired_findings()
        if not 1 <= number <= len(fired):
            return f"there is no finding {number}" if self.finding is not None else "no pattern was found here"
        self._move_to(fired[number - 1].id)
        self.context.show_panel(self.NAME)
        self.context.view_state.selected = -1
        self.context.view_state.search.is_last_question = False
        return self.enter() or ""

    def cycle_scope(self, direction: int) -> str:
        """Handle v and V: show the cheatsheet of the next part of the trace (1), or of the previous one (-1)."""
        self.context.view_state.search.is_last_question = False
        self.context.show_panel(self.NAME)
        return self._scopes.cycle_mode(direction)

    def toggle_rule(self) -> str:
        """Handle E: show or hide how the finding under the cursor was found."""
        self._shows_rule = not self._shows_rule
        self.context.show_panel(self.NAME)
        self._reveals_cursor = True
        self.refresh_content(top=False)
        if self.finding is None:
            return "no pattern was found here"
        return "how it was found; E hides it" if self._shows_rule else "the rule is hidden; E shows it"

    def find_source_line(self) -> SourceTarget:
        rank, finding = self._scopes.rank, self.finding
        if finding is None or not finding.is_problem:
            return None, rank, "only problems have a source line"
        return check_line(finding.line, rank, finding.id)

    def _move_to(self, finding_id: str) -> None:
        self._cursor_id, self._is_cursor_moved = finding_id, True
        self._evidence.reset()
        self._reveals_cursor = True
        self.refresh_content(top=False)

    def set_verdict_above(self, is_above: bool) -> None:
        """Set whether the verdict on the whole trace is on screen above the lanes, and need not be repeated here."""
        if is_above != self._is_verdict_above:
            self._is_verdict_above = is_above
            self.refresh_content(top=False)

    def prepare(self, size: object) -> None:
        super().prepare(self.size)
        if not self._reveals_cursor or not self._lines_by_id:
            return
        self._reveals_cursor = False
        first, last = self._lines_by_id.get(self._cursor_id, (0, 0))
        height = self.size.height
        if first == min(start for start, _ in self._lines_by_id.values()) and height >= VERDICT_MIN_HEIGHT:
            self._top = 0  # the verdict stands above the first entry
            return
        if last >= self._top + height:
            self._top = last - height + 1
        if first < self._top:
            self._top = first if first > 2 else 0

    def content(self, width: int) -> Lines:
        palette = self.palette
        self._lines_by_id = {}
        checked = self.checked
        if checked is None:
            return [[("looking for patterns …", palette.muted)]]
        counts = format_counts(checked, width - cell_len(self._scope_label) - 3)
        lines: Lines = [[(self._scope_label, palette.strong), (f" · {counts}", palette.text)]]
        with_text = not (self._is_verdict_above and checked.scope.is_whole_trace)
        fired = self._fired_findings()
        first_finding = fired[0] if fired else None
        lines += format_verdict(
            checked.verdict, width, self.size.height, palette, with_text, first_finding, checked.base.steps
        )
        if any(finding.cost for finding in fired):
            lines += wrap_text(f"costs at most, as shares of {checked.base.describe()}", width, palette.muted, "  ")
        for finding in fired:
            first = len(lines)
            is_current = finding.id == self._cursor_id
            late = self._late_rank.label if is_current and self._late_rank is not None else ""
            can_try = finding.id in self.tryable
            wraps = self.size.height >= WRAP_MIN_HEIGHT
            options = (self._shows_rule, late, can_try, wraps)
            lines += format_entry(finding, width, is_current, palette, checked.base, *options)
            self._lines_by_id[finding.id] = (first, len(lines) - 1)
        for reason, ids in group_undecidable(checked.findings):
            lines += wrap_text(f"? {clean(describe_group(reason, ids))}", width, palette.muted, "  ")
        absent = ", ".join(finding.id for finding in checked.findings if finding.state is State.ABSENT)
        if absent:
            lines += wrap_text(f"not present: {absent}", width, palette.muted, "  ")
        return lines
