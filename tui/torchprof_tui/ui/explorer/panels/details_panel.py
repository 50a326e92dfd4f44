"""The panel that says everything about the selected event: what it is, when, where, among which others, its args."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.patterns.engine.lane_labels import describe_overhead
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.trace import Event, Trace
from torchprof_tui.ui.common.kind_descriptions import KIND_DESCRIPTIONS
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_ordinal, format_share, format_value
from torchprof_tui.ui.common.painted_widget import TextRun
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, join_columns, wrap_text

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.event_context import EventContext

TWO_COLUMNS_MIN_WIDTH = 110
"""From this width on the args stand beside the facts instead of below them."""

BYTE_SIZE_ARGS = frozenset({"bytes", "Bytes", "shared memory", "Total Allocated", "Total Reserved"})
STARTER_KEYS = (
    ("c", "what goes wrong in this trace, and what to do about it"),
    ("l", "how the selected event came about: step, op, launch, kernel"),
    ("k", "what the selected kernel asks of the GPU, and what limits it"),
    ("t", "the profiler's table: where the time goes, name by name"),
)
"""Keys, and where they lead, for who has pressed none yet."""

MAX_LIST_ITEMS = 6
"""Of a list of lists (the shapes of a fused optimizer's inputs) so many are written out, then counted."""


class DetailsPanel(TextPanel):
    """Set `show`, then `learn` what took a moment to find out."""

    def __init__(self, trace: Trace, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._trace = trace
        self._event = -1
        self._event_context: EventContext | None = None

    def show_event(self, event: int) -> None:
        """Another event, -1 for none. What is not in the columns follows with `learn`."""
        if event != self._event:
            self._event, self._event_context = event, None
            self.refresh_content()

    def set_event_context(self, event: int, context: EventContext) -> None:
        if event == self._event:
            self._event_context = context
            self.refresh_content(top=False)

    def content(self, width: int) -> Lines:
        palette = self.palette
        if self._event < 0:
            return self._format_starter_hint(width) if len(self._trace) else []
        event = self._trace.event(self._event)
        if width < TWO_COLUMNS_MIN_WIDTH:
            return self._format_head(event, width) + self._format_facts(event, width) + self._format_args(width)
        half = min(max(width * 11 // 20, 60), 100)
        beside = join_columns(self._format_facts(event, half - 3), self._format_args(width - half), half, palette.text)
        return self._format_head(event, width) + beside

    def _format_starter_hint(self, width: int) -> Lines:
        """What to press first: a beginner looks here, before knowing any key."""
        palette = self.palette
        lines = wrap_text(
            "No event is selected. ← → ↑ ↓ or a click select one; ? lists all keys.", width, palette.muted
        )
        return lines + [
            [(key, palette.key), (truncate(f"  {leads_to}", width - 1), palette.muted)]
            for key, leads_to in STARTER_KEYS
        ]

    def _format_head(self, event: Event, width: int) -> Lines:
        """The name in full, then what sort of thing it is, in words."""
        palette = self.palette
        word, sentence = KIND_DESCRIPTIONS[event.kind]
        name = wrap_text(clean(event.name) or "(no name)", width - 2, palette.strong)
        swatch: TextRun = ("▌ ", palette.ink(event.kind))
        lines: Lines = [[swatch, *runs] for runs in name]
        rest = truncate(f": {sentence}", width - 2 - len(word))
        lines.append([swatch, (word, palette.ink(event.kind)), (rest, palette.muted)])
        return lines

    def _format_facts(self, event: Event, width: int) -> Lines:
        pairs = [("time", self._describe_time(event)), ("lane", self._describe_lane(event))]
        facts = self._event_context
        if facts is not None:
            place, same = facts.position, facts.same_name
            parent = event.parent
            if parent is not None:
                share = f", {format_share(place.share)} of it" if place.share is not None else ""
                pairs.append(
                    ("within", f"{_shorten_name(parent.name)}: {format_duration(place.offset)} after its start{share}")
                )
                pairs.append(
                    (
                        "place",
                        f"{format_ordinal(place.nth)} of its {place.sibling_count:,} children"
                        if place.sibling_count > 1
                        else "its only child",
                    )
                )
            else:
                pairs.append(
                    (
                        "within",
                        f"nothing: {format_ordinal(place.nth)} of {place.sibling_count:,} outermost events of the lane",
                    )
                )
            if same.count > 1:
                spread = (
                    f"min {format_duration(same.shortest)} · median {format_duration(same.median)}"
                    f" · max {format_duration(same.longest)} · sum {format_duration(same.total)}"
                )
                pairs.append(("alike", f"{format_ordinal(same.nth)} of {same.count:,} of this name"))
                pairs.append(("", spread))
            else:
                pairs.append(("alike", "the only one of this name"))
        says = describe_overhead(event.name) or (
            decode_kernel_name(event.name).summary if event.kind in GPU_WORK else ""
        )
        if says:
            pairs.insert(0, ("is", says))
        link = self._describe_link(event)
        if link:
            pairs.append(("link", link))
        return self._format_pairs(pairs, width)

    def _describe_time(self, event: Event) -> str:
        own = event.self_duration
        share = f" ({format_share(own / event.duration)})" if event.duration else ""
        inner = f" · self {format_duration(own)}{share}" if own != event.duration else ""
        return f"{format_duration(event.duration)}{inner} · from {format_time(event.start)}"

    def _describe_lane(self, event: Event) -> str:
        lane = event.lane
        whose = "" if lane.rank is None else f"rank {lane.rank} · "
        return f"{whose}{lane.label} · row {event.row + 1} of {lane.rows}"

    def _describe_link(self, event: Event) -> str:
        """Who launched it, or what it launched: where `[` and `]` lead."""
        links = self._trace.links
        launch = int(links.launch_of[event.index])
        if launch >= 0:
            other = self._trace.event(launch)
            return f"launched by {_shorten_name(other.name)}, {format_duration(event.start - other.start)} before ([)"
        work = links.work_of(event.index)
        if len(work):
            first = self._trace.event(int(work[0]))
            more = f" and {len(work) - 1:,} more" if len(work) > 1 else ""
            return f"launched {_shorten_name(first.name)}{more}, {format_duration(first.start - event.start)} later (])"
        return ""

    def _format_args(self, width: int) -> Lines:
        facts = self._event_context
        if facts is None:
            return []
        if facts.args_error:
            return wrap_text(f"args: {clean(facts.args_error)}", width, self.palette.warning)
        category = self._trace.event(self._event).category
        pairs = [("category", category)] if category else []
        pairs += [(key, _format_arg(key, value)) for key, value in facts.args.items()]
        return self._format_pairs(pairs, width)

    def _format_pairs(self, pairs: list[tuple[str, str]], width: int) -> Lines:
        palette = self.palette
        longest = min(max((cell_len(clean(key)) for key, _ in pairs), default=0), max(width // 2, 8), 26)
        lines: Lines = []
        for key, value in pairs:
            label = clean(key)[:longest].ljust(longest)
            wrapped = wrap_text(clean(value), width - longest - 2, palette.text)
            lines.append([(f"{label}  ", palette.muted), *wrapped[0]])
            lines.extend([(" " * (longest + 2), palette.text), *runs] for runs in wrapped[1:])
        return lines


def _shorten_name(name: str) -> str:
    """A name inside a sentence."""
    text = clean(name)
    return text if len(text) <= 60 else text[:59] + "…"


def _format_arg(key: str, value: Any) -> str:
    """An arg as text. Stacks go one frame a line where they are wrapped; sizes get a unit beside the number."""
    if isinstance(value, str):
        return value.replace(";", " ; ") if key == "Call stack" else value
    if key in BYTE_SIZE_ARGS and isinstance(value, int) and value >= 1024:
        return f"{value} ({format_value(value, 'bytes')})"
    if isinstance(value, list) and len(value) > MAX_LIST_ITEMS and all(isinstance(each, list) for each in value):
        return f"{json.dumps(value[:MAX_LIST_ITEMS], ensure_ascii=False)[:-1]}, … {len(value)} in all]"
    return json.dumps(value, ensure_ascii=False)
