"""The details panel: kind, time, lane, parent, events of the same name, link and args of the selected event."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.cells import cell_len

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.repetition.step_list import REPETITION, are_repetitions
from torchprof_tui.analysis.words.dictionary import Word, find_event_word, to_phrase
from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Event, Step, Trace
from torchprof_tui.trace.query.navigation import GraphNeighbours, find_graph_neighbours
from torchprof_tui.ui.common.event_styles import KIND_NAMES, Palette
from torchprof_tui.ui.common.keys import MAX_NUMBER_KEYS
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_ordinal, format_share, format_value
from torchprof_tui.ui.common.painted_widget import Lines, TextRun, hang_text, join_columns, wrap_text
from torchprof_tui.ui.explorer.panels.cheatsheet_panel import ID_CELLS, choose_sign, format_stake, format_tree
from torchprof_tui.ui.explorer.panels.panel import Panel, describe_captured, describe_share, shorten_event_name
from torchprof_tui.ui.lanes.step_labels import count_kinds, describe_schedule, describe_serving

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchprof_tui.analysis.dispatch.event_context import EventContext, SameNameStatistics, SiblingPosition
    from torchprof_tui.analysis.graphs.captured_ops import CapturedChain
    from torchprof_tui.analysis.patterns.engine.largest_gaps import LargestGap
    from torchprof_tui.analysis.patterns.engine.pattern import Finding
    from torchprof_tui.analysis.patterns.verdict.latest_check import CheckResult
    from torchprof_tui.analysis.time.intervals import Intervals
    from torchprof_tui.ui.explorer.background_queries import TraceChecked
    from torchprof_tui.ui.explorer.event_reading import ChainRead


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
"""Lines that must be left for the list of where the time went, or of gaps, and the most that it takes."""

NAME_CELLS = 60  # of a name inside a sentence
DO_CELLS = 7  # of the label in front of what to do
KEY_LINES_MIN_HEIGHT = 8  # panel height from which each starter key has a line


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
        return [*format_tree(checked.verdict.tree, max(room - 1, 3), width, palette, checked.base.steps)[:room], *keys]
    shown = (problems or found)[: min(room, MAX_NUMBER_KEYS)]
    stakes = [format_stake(finding, checked.base) for finding in shown]
    if first := next(filter(None, stakes), ""):  # it names what all shares are of
        stakes[stakes.index(first)] += f" of {checked.base.label}"
    lines = _format_problems(shown, stakes, width, room, palette)
    left, tree = room - len(lines), checked.verdict.tree
    if tree is not None and left >= TIME_MIN_LINES:
        lines += [[], *format_tree(tree, min(left - 1, MAX_TIME_LINES + 1), width, palette, checked.base.steps)]
    return [*lines, *keys]


def _format_problems(shown: Sequence[Finding], stakes: Sequence[str], width: int, room: int, palette: Palette) -> Lines:
    """Format findings with what they cost; what to do goes before the rest of a long sentence."""
    id_cells = min(max(len(finding.id) for finding in shown) + 2, ID_CELLS)
    stake_cells = max(map(len, stakes)) + 2
    heads = [
        _format_finding(number, finding, width, id_cells, f"{stake:<{stake_cells}}", palette)
        for number, (finding, stake) in enumerate(zip(shown, stakes, strict=True), 1)
    ]
    actions: list[Lines] = []
    spare = room - len(shown)
    for finding in shown:
        actions.append(_format_action(finding, width, spare, palette))
        spare -= len(actions[-1])
    lines: Lines = []
    for head, action in zip(heads, actions, strict=True):
        whole = min(len(head) - 1, spare)
        spare -= whole
        lines += [*head[:whole], _cut_line(head[whole:], width), *action]
    return lines


def _format_action(finding: Finding, width: int, room: int, palette: Palette) -> Lines:
    """Format what to do, wrapped to `room` lines at most; [] where there is no room or nothing to do."""
    if room < 1 or not finding.remedy.action:
        return []
    lines = hang_text("    do ", DO_CELLS, clean(finding.remedy.action), width - DO_CELLS, palette)
    whole = min(len(lines), room) - 1
    return [*lines[:whole], _cut_line(lines[whole:], width)]


def _cut_line(lines: Lines, width: int) -> list[TextRun]:
    """Cut text that was wrapped to its first line, which says with "…" that it goes on."""
    first = lines[0]
    if len(lines) == 1:
        return first
    used = sum(cell_len(text) for text, _ in first[:-1])
    text, style = first[-1]
    rest = " ".join(run[-1][0] for run in lines[1:])
    return [*first[:-1], (truncate(f"{text} {rest}", max(width - used, 1)), style)]


def _format_finding(number: int, finding: Finding, width: int, id_cells: int, stake: str, palette: Palette) -> Lines:
    sign, style = choose_sign(finding, palette)
    runs: list[TextRun] = [
        (f"{number} ", palette.key),
        (f"{sign} ", style),
        (f"{truncate(finding.id, id_cells - 1):<{id_cells}}", palette.strong),
        (stake, palette.text),
    ]
    indent = 4 + id_cells + len(stake)
    if width - indent <= 8:
        return [runs]
    first, *others = wrap_text(clean(finding.answer.seen), width - indent, palette.text)
    return [[*runs, *first], *([(" " * indent, palette.text), *other] for other in others)]


def _format_starter_keys(
    width: int, height: int, palette: Palette, has_gpu: bool, has_cheatsheet: bool = False
) -> Lines:
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
        for key, leads_to in (STARTER_KEYS if has_gpu else CPU_STARTER_KEYS)[has_cheatsheet:]
    ]


def format_steps(
    steps: Sequence[Step],
    gpu_busy: Sequence[Intervals],
    width: int,
    height: int,
    palette: Palette,
    has_gpu: bool = True,
    gaps: Sequence[LargestGap] = (),
) -> Lines:
    """List the steps with their time and how busy the GPUs were, the slowest ones where not all have a line; gaps."""
    keys = _format_starter_keys(width, height, palette, has_gpu, has_cheatsheet=True)
    if not steps:
        return [*_format_gaps(gaps, height - len(keys), width, palette), *keys]
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
    lines: Lines = [[(title, palette.strong), ("   { } go through them", palette.muted)]]
    schedule = "" if noun == REPETITION else describe_schedule(steps)
    if " · " in schedule and len(order) + 1 < room:  # else all steps were recorded
        lines.append([(truncate(schedule, width), palette.muted)])
    for index in order:
        step = steps[index]
        busy = ""
        if gpu_busy and step.duration > 0:
            time = sum(intervals.measure_between(step.start, step.start + step.duration) for intervals in gpu_busy)
            busy = f"   GPU busy {format_share(time / (len(gpu_busy) * step.duration))} of it"
        said = step.serving
        served = "" if said is None else f"   {describe_serving(said)}"
        text = f"#{step.number:<6} {format_duration(step.duration):>10}{served}{busy}"
        lines.append([(truncate(text, width), palette.text)])
    return [*lines, *_format_gaps(gaps, height - len(keys) - len(lines), width, palette), *keys]


def _format_gaps(gaps: Sequence[LargestGap], room: int, width: int, palette: Palette) -> Lines:
    """List the longest gaps of the GPUs, [] where `room` has no lines for two: when, how long, why, between what."""
    if not gaps or room < TIME_MIN_LINES:
        return []
    lines: Lines = [[], [("largest gaps of the GPU", palette.strong)]]
    for gap in gaps[: min(room - len(lines), MAX_TIME_LINES)]:
        start = format_time(gap.start, 10 ** max(len(str(gap.duration)) - 3, 0))
        text = f"at {start} · {gap.label}" + (f" · {gap.place}" if gap.place else "")
        entry = hang_text(f"{format_duration(gap.duration):>8} ", 9, clean(text), width - 9, palette)
        if len(lines) + len(entry) > room:
            break
        lines += entry
    return lines


MAX_LISTED = 3  # kernels of either side whose names are listed; the others are counted


TWO_COLUMNS_MIN_WIDTH = 110  # width from which the args are shown beside the other details instead of below them
BYTE_SIZE_ARGS = frozenset({"bytes", "Bytes", "shared memory", "Total Allocated", "Total Reserved"})
MAX_ARG_CHARACTERS = 20_000
"""Most characters of an arg that are cleaned and wrapped: of a text of 10 MB that takes seconds."""

MAX_LIST_ITEMS = 6  # maximum number of inner lists that are written out (the shapes of a fused optimizer's inputs)


class DetailsPanel(Panel):
    """Show the selected event; without one the findings, or the steps."""

    NAME = "details"

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace
        self._has_gpu = trace.links.gpu_events > 0
        self._event = -1
        self._event_context: EventContext | None = None
        self._captured: CapturedChain | str | None = None
        self._checked: CheckResult | None = None
        self._shows_findings = True
        self._gaps: Sequence[LargestGap] = ()
        self._steps: tuple[Sequence[Step], Sequence[Intervals]] = trace.steps, ()

    def show_findings(self, checked: CheckResult | None, shown: bool) -> None:
        """Set the findings, and whether they are listed here while no event is selected; else the steps are."""
        if checked is not self._checked or shown != self._shows_findings:
            self._checked, self._shows_findings = checked, shown
            self._refresh_overview()

    def set_steps(self, steps: Sequence[Step], gpu_busy: Sequence[Intervals] | None = None) -> None:
        """Set the steps of the current rank, and the busy intervals of its GPUs ((): not shown; None: as before)."""
        self._steps = steps, self._steps[1] if gpu_busy is None else gpu_busy
        self._refresh_overview()

    def _refresh_overview(self) -> None:
        if self._event < 0:
            self.refresh_content(top=False)

    def update(self) -> None:
        """Show the selected event; what is not in the trace's columns is requested."""
        event = self.context.view_state.selected
        if event != self._event:
            self._event, self._event_context, self._captured = event, None, None
            self.refresh_content()
            if event >= 0:
                work = partial(self.context.queries.compute_event_context, event)
                self.context.worker.answer("context", work, partial(self._show_context, event))

    def list_next_keys(self) -> list[tuple[str, str]]:
        if self._event < 0:  # the starter keys are listed in the panel
            return []
        event = self._trace.event(self._event)
        rest = [("l", "chain"), ("f", "fit"), ("t", "its row")]
        has_link = bool(self._describe_link(event))
        if event.kind in GPU_WORK:
            return [("k", "kernel"), *([("[", "launch")] if has_link else []), *rest]
        return [("]", "GPU work") if has_link else ("↓", "child"), *rest]

    def _show_context(self, event: int, read: tuple[EventContext, CapturedChain | str | None]) -> None:
        if event == self._event:
            self._event_context, captured = read
            self._captured = captured if self._captured is None else self._captured
            self.refresh_content(top=False)

    def on_chain_read(self, message: ChainRead) -> None:
        """Take the captured op of a kernel, which its context lacks where the captures were not open yet."""
        if message.chain.event == self._event and Kind(int(self._trace.kind[self._event])) in GPU_WORK:
            self._captured = message.captured
            self.refresh_content(top=False)

    def on_trace_checked(self, message: TraceChecked) -> None:
        self._gaps = message.gaps
        self.set_steps(self.context.view_state.current_steps())

    def content(self, width: int) -> Lines:
        palette, height = self.palette, self.size.height
        if not len(self._trace):
            return []
        if self._event < 0 and self._shows_findings:
            return format_findings(self._checked, width, height, palette, self._has_gpu)
        if self._event < 0:  # the findings stand beside this panel, or are not to be shown
            gaps = self._gaps if self._checked else ()
            return format_steps(*self._steps, width, height, palette, self._has_gpu, gaps)
        event = self._trace.event(self._event)
        word = find_event_word(event.kind, event.name)
        head, says_what = self._format_head(event, word, width)
        if width < TWO_COLUMNS_MIN_WIDTH:
            return [head, *self._format_facts(event, word, says_what, width), *self._format_args(width)]
        left = min(max(width * 11 // 20, 60), 100)
        facts = self._format_facts(event, word, says_what, left - 3)
        return [head, *join_columns(facts, self._format_args(width - left), left, palette.text)]

    def _format_head(self, event: Event, word: Word, width: int) -> tuple[list[TextRun], bool]:
        """Format the name as on the lanes, the kind of the event and, where it fits, what it is; return whether so."""
        palette = self.palette
        kind = KIND_NAMES[event.kind]
        name = truncate(shorten_event_name(event) or "(no name)", width - 4 - len(kind))
        rest = f": {to_phrase(word.sentence)}"
        fits = cell_len(name) + len(kind) + 4 + len(rest) <= width
        runs = [
            ("▌ ", palette.ink(event.kind)),
            (name, palette.strong),
            (f"  {kind}", palette.ink(event.kind)),
            (rest if fits else "", palette.muted),
        ]
        return runs, fits

    def _format_facts(self, event: Event, word: Word, says_what: bool, width: int) -> Lines:
        """Format time and share, cause, next keys (in a panel of few lines), word, place, and the full name last.

        `says_what`: whether the line above says what the event is.
        """
        pairs = [("time", self._describe_time(event))]
        link = self._describe_link(event)
        if link:
            pairs.append(("cause" if event.kind in GPU_WORK else "launches", link))
        edges = describe_graph_edges(self._trace, find_graph_neighbours(self._trace, event.index))
        if edges:
            pairs.append(("graph", edges))
        if self._captured is not None:
            captured = self._captured
            pairs.append(("captured", captured if isinstance(captured, str) else describe_captured(captured)))
        position = [] if self._event_context is None else _describe_position(event, self._event_context.position)
        first = 0 if link else 1
        pairs += position[:first]
        if self.size.height < KEY_LINES_MIN_HEIGHT:
            pairs.append(("keys", " · ".join(" ".join(hint) for hint in self.list_next_keys())))
        keys_index = len(pairs)
        steps = self._steps[0]
        schedule = "" if event.kind is not Kind.STEP or are_repetitions(steps) else describe_schedule(steps)
        if schedule:
            pairs.append(("schedule", schedule))
        rank = "" if event.lane.rank is None else f"rank {event.lane.rank} · "
        lane = f"{rank}{event.lane.label} · row {event.row + 1} of {event.lane.rows}"
        pairs += [*position[first:], ("lane", lane)]
        if self._event_context is not None:
            pairs += _describe_same_name(self._event_context.same_name)
        pairs[keys_index:keys_index] = _explain(event, word, says_what)
        if shorten_event_name(event) != clean(event.name):
            pairs.append(("name", event.name))
        return self._format_pairs(pairs, width)

    def _describe_time(self, event: Event) -> str:
        self_time = event.self_duration
        share = f" ({format_share(self_time / event.duration)})" if event.duration else ""
        self_part = f" · self {format_duration(self_time)}{share}" if self_time != event.duration else ""
        share_part = f" · {describe_share(self._trace, event)}" if event.duration else ""
        return f"{format_duration(event.duration)}{share_part}{self_part} · from {format_time(event.start)}"

    def _describe_link(self, event: Event) -> str:
        """Describe the launch of the event or the work that it launched, which `[` and `]` select."""
        links = self._trace.links
        launch = int(links.launch_of[event.index])
        if launch >= 0:
            call = self._trace.event(launch)
            parent = "" if call.parent is None else f", in {truncate(clean(call.parent.name), NAME_CELLS)}"
            delay = format_duration(event.start - call.start)
            return f"launched by {truncate(clean(call.name), NAME_CELLS)} {delay} before{parent} ([)"
        work = links.work_of(event.index)
        if len(work):
            first = self._trace.event(int(work[0]))
            more = f" and {len(work) - 1:,} more" if len(work) > 1 else ""
            later = format_duration(first.start - event.start)
            return f"{truncate(clean(first.name), NAME_CELLS)}{more}, {later} later (])"
        return ""

    def _format_args(self, width: int) -> Lines:
        context = self._event_context
        if context is None:
            return []
        if context.args_error:
            return wrap_text(f"args: {clean(context.args_error)}", width, self.palette.warning)
        category = self._trace.event(self._event).category
        pairs = [("category", category)] if category else []
        pairs += [(key, _format_arg(key, value)) for key, value in context.args.items()]
        return self._format_pairs(pairs, width)

    def _format_pairs(self, pairs: list[tuple[str, str]], width: int) -> Lines:
        palette = self.palette
        longest = min(max((cell_len(clean(key)) for key, _ in pairs), default=0), max(width // 2, 8), 26)
        lines: Lines = []
        for key, value in pairs:
            label = f"{clean(key)[:longest].ljust(longest)}  "
            lines += hang_text(label, longest + 2, clean(value), width - longest - 2, palette)
        return lines


def _explain(event: Event, word: Word, says_what: bool) -> list[tuple[str, str]]:
    """List what the event is (of a kernel: what its name says), why it is there, and what it usually costs."""
    meaning = decode_kernel_name(event.name).summary if event.kind in GPU_WORK else ""
    if not meaning and not says_what:
        meaning = to_phrase(word.sentence)
    return [("is", meaning)] * bool(meaning) + [("why", to_phrase(word.why)), ("costs", to_phrase(word.costs))]


def _describe_position(event: Event, position: SiblingPosition) -> list[tuple[str, str]]:
    parent = event.parent
    nth = format_ordinal(position.nth)
    if parent is None:
        return [("place", f"{nth} of {position.sibling_count:,} outermost events of the lane")]
    share = f", {format_share(position.share)} of it" if position.share is not None else ""
    within = f"{truncate(clean(parent.name), NAME_CELLS)}: {format_duration(position.offset)} after its start{share}"
    order = f"{nth} of its {position.sibling_count:,} children" if position.sibling_count > 1 else "its only child"
    return [("within", within), ("place", order)]


def _describe_same_name(same_name: SameNameStatistics) -> list[tuple[str, str]]:
    if same_name.count <= 1:
        return [("same name", "the only one of this name")]
    durations = (
        f"min {format_duration(same_name.shortest)} · median {format_duration(same_name.median)}"
        f" · max {format_duration(same_name.longest)} · sum {format_duration(same_name.total)}"
    )
    return [("same name", f"occurrence {same_name.nth:,} of {same_name.count:,}"), ("", durations)]


def _format_arg(key: str, value: Any) -> str:
    """Format an arg as text. Call stacks get spaces to wrap at; byte sizes also get a unit."""
    if isinstance(value, str):
        text = value if len(value) <= MAX_ARG_CHARACTERS else value[:MAX_ARG_CHARACTERS] + f"… ({len(value):,} in all)"
        return text.replace(";", " ; ") if key == "Call stack" else text
    if key in BYTE_SIZE_ARGS and isinstance(value, int) and value >= 1024:
        return f"{value} ({format_value(value, 'bytes')})"
    if isinstance(value, list) and len(value) > MAX_LIST_ITEMS and all(isinstance(item, list) for item in value):
        return f"{json.dumps(value[:MAX_LIST_ITEMS], ensure_ascii=False)[:-1]}, … {len(value)} in all]"
    return json.dumps(value, ensure_ascii=False)


def describe_graph_edges(trace: Trace, neighbours: GraphNeighbours) -> str:
    """Describe the recorded edges, "" for none."""
    parts = []
    if len(neighbours.waits_for):
        parts.append(f"waits for {_list_names(trace, neighbours.waits_for)}")
    if len(neighbours.waited_for_by):
        verb = "waits" if len(neighbours.waited_for_by) == 1 else "wait"
        parts.append(f"{_list_names(trace, neighbours.waited_for_by)} {verb} for it")
    return " · ".join(parts)


def _list_names(trace: Trace, events: I32) -> str:
    names = [shorten_event_name(trace.event(event)) for event in events[:MAX_LISTED].tolist()]
    more = f" and {len(events) - MAX_LISTED} more" if len(events) > MAX_LISTED else ""
    return ", ".join(names) + more
