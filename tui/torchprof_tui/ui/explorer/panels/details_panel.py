"""The panel that says everything about the selected event: what it is, when, where, among which others, its args."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from torchprof_tui.analysis.kernel.names import decode
from torchprof_tui.analysis.patterns.engine.lane_labels import overhead_says
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.trace import Event, Trace
from torchprof_tui.ui.common.kind_descriptions import KIND_WORDS
from torchprof_tui.ui.common.name_display import clean, cut
from torchprof_tui.ui.common.number_format import format_share, format_value, ordinal
from torchprof_tui.ui.common.painted_widget import Run
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, columns, wrap

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.event_context import Facts

TWO_COLUMNS = 110
"""From this width on the args stand beside the facts instead of below them."""

BYTES_ARGS = frozenset({"bytes", "Bytes", "shared memory", "Total Allocated", "Total Reserved"})
FIRST = (
    ("c", "what goes wrong in this trace, and what to do about it"),
    ("l", "how the selected event came about: step, op, launch, kernel"),
    ("k", "what the selected kernel asks of the GPU, and what limits it"),
    ("t", "the profiler's table: where the time goes, name by name"),
)
"""Keys, and where they lead, for who has pressed none yet."""

LIST_SHOWN = 6
"""Of a list of lists (the shapes of a fused optimizer's inputs) so many are written out, then counted."""


class Details(TextPanel):
    """Set `show`, then `learn` what took a moment to find out."""

    def __init__(self, trace: Trace, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._trace = trace
        self._event = -1
        self._facts: Facts | None = None

    def show(self, event: int) -> None:
        """Another event, -1 for none. What is not in the columns follows with `learn`."""
        if event != self._event:
            self._event, self._facts = event, None
            self.renew()

    def learn(self, event: int, facts: Facts) -> None:
        if event == self._event:
            self._facts = facts
            self.renew(top=False)

    def content(self, width: int) -> Lines:
        palette = self.palette
        if self._event < 0:
            return self._nothing_selected(width) if len(self._trace) else []
        event = self._trace.event(self._event)
        if width < TWO_COLUMNS:
            return self._head(event, width) + self._about(event, width) + self._args(width)
        half = min(max(width * 11 // 20, 60), 100)
        beside = columns(self._about(event, half - 3), self._args(width - half), half, palette.text)
        return self._head(event, width) + beside

    def _nothing_selected(self, width: int) -> Lines:
        """What to press first: a beginner looks here, before knowing any key."""
        palette = self.palette
        lines = wrap("No event is selected. ← → ↑ ↓ or a click select one; ? lists all keys.", width, palette.muted)
        return lines + [
            [(key, palette.key), (cut(f"  {leads_to}", width - 1), palette.muted)] for key, leads_to in FIRST
        ]

    def _head(self, event: Event, width: int) -> Lines:
        """The name in full, then what sort of thing it is, in words."""
        palette = self.palette
        word, sentence = KIND_WORDS[event.kind]
        name = wrap(clean(event.name) or "(no name)", width - 2, palette.strong)
        swatch: Run = ("▌ ", palette.ink(event.kind))
        lines: Lines = [[swatch, *runs] for runs in name]
        rest = cut(f": {sentence}", width - 2 - len(word))
        lines.append([swatch, (word, palette.ink(event.kind)), (rest, palette.muted)])
        return lines

    def _about(self, event: Event, width: int) -> Lines:
        pairs = [("time", self._time(event)), ("lane", self._lane(event))]
        facts = self._facts
        if facts is not None:
            place, same = facts.place, facts.namesakes
            parent = event.parent
            if parent is not None:
                share = f", {format_share(place.share)} of it" if place.share is not None else ""
                pairs.append(
                    ("within", f"{_brief(parent.name)}: {format_duration(place.offset)} after its start{share}")
                )
                pairs.append(
                    (
                        "place",
                        f"{ordinal(place.nth)} of its {place.of:,} children" if place.of > 1 else "its only child",
                    )
                )
            else:
                pairs.append(("within", f"nothing: {ordinal(place.nth)} of {place.of:,} outermost events of the lane"))
            if same.of > 1:
                spread = (
                    f"min {format_duration(same.shortest)} · median {format_duration(same.median)}"
                    f" · max {format_duration(same.longest)} · sum {format_duration(same.total)}"
                )
                pairs.append(("alike", f"{ordinal(same.nth)} of {same.of:,} of this name"))
                pairs.append(("", spread))
            else:
                pairs.append(("alike", "the only one of this name"))
        says = overhead_says(event.name) or (decode(event.name).summary if event.kind in GPU_WORK else "")
        if says:
            pairs.insert(0, ("is", says))
        link = self._link(event)
        if link:
            pairs.append(("link", link))
        return self._table(pairs, width)

    def _time(self, event: Event) -> str:
        own = event.self_duration
        share = f" ({format_share(own / event.duration)})" if event.duration else ""
        inner = f" · self {format_duration(own)}{share}" if own != event.duration else ""
        return f"{format_duration(event.duration)}{inner} · from {format_time(event.start)}"

    def _lane(self, event: Event) -> str:
        lane = event.lane
        whose = "" if lane.rank is None else f"rank {lane.rank} · "
        return f"{whose}{lane.label} · row {event.row + 1} of {lane.rows}"

    def _link(self, event: Event) -> str:
        """Who launched it, or what it launched: where `[` and `]` lead."""
        links = self._trace.links
        launch = int(links.launch_of[event.index])
        if launch >= 0:
            other = self._trace.event(launch)
            return f"launched by {_brief(other.name)}, {format_duration(event.start - other.start)} before ([)"
        work = links.work_of(event.index)
        if len(work):
            first = self._trace.event(int(work[0]))
            more = f" and {len(work) - 1:,} more" if len(work) > 1 else ""
            return f"launched {_brief(first.name)}{more}, {format_duration(first.start - event.start)} later (])"
        return ""

    def _args(self, width: int) -> Lines:
        facts = self._facts
        if facts is None:
            return []
        if facts.missing:
            return wrap(f"args: {clean(facts.missing)}", width, self.palette.warning)
        category = self._trace.event(self._event).category
        pairs = [("category", category)] if category else []
        pairs += [(key, _value(key, value)) for key, value in facts.args.items()]
        return self._table(pairs, width)

    def _table(self, pairs: list[tuple[str, str]], width: int) -> Lines:
        palette = self.palette
        longest = min(max((cell_len(clean(key)) for key, _ in pairs), default=0), max(width // 2, 8), 26)
        lines: Lines = []
        for key, value in pairs:
            label = clean(key)[:longest].ljust(longest)
            wrapped = wrap(clean(value), width - longest - 2, palette.text)
            lines.append([(f"{label}  ", palette.muted), *wrapped[0]])
            lines.extend([(" " * (longest + 2), palette.text), *runs] for runs in wrapped[1:])
        return lines


def _brief(name: str) -> str:
    """A name inside a sentence."""
    text = clean(name)
    return text if len(text) <= 60 else text[:59] + "…"


def _value(key: str, value: Any) -> str:
    """An arg as text. Stacks go one frame a line where they are wrapped; sizes get a unit beside the number."""
    if isinstance(value, str):
        return value.replace(";", " ; ") if key == "Call stack" else value
    if key in BYTES_ARGS and isinstance(value, int) and value >= 1024:
        return f"{value} ({format_value(value, 'bytes')})"
    if isinstance(value, list) and len(value) > LIST_SHOWN and all(isinstance(each, list) for each in value):
        return f"{json.dumps(value[:LIST_SHOWN], ensure_ascii=False)[:-1]}, … {len(value)} in all]"
    return json.dumps(value, ensure_ascii=False)
