"""The first line: which trace this is, on what it ran, and how busy the GPU was."""

from __future__ import annotations

from rich.cells import cell_len
from textual.strip import Strip

from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.ranks import Aligned, Ranks
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.name_display import clean, cut
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Painted, Run, line

_SUFFIXES = (".gz", ".xz", ".zst", ".json", ".trace", ".pt")


MOST_DEVICES = 256
"""No host has more GPUs: of a file that names more, the first ones are added up for each frame, and it is said."""


class Title(Painted):
    """Set `show` when another part of the trace is on screen."""

    def __init__(self, trace: Trace, worked: list[Intervals], *, id: str | None = None) -> None:  # noqa: A002
        """`worked`: when each GPU did; empty without a GPU."""
        super().__init__(id=id)
        self._label = short_label(trace.label)
        self._facts = facts_of(trace)
        self._worked = worked[:MOST_DEVICES]
        self._whose = f" ({MOST_DEVICES} of {len(worked):,} GPUs)" if len(worked) > MOST_DEVICES else ""
        self._span = trace.span
        self._shown = trace.span

    def show(self, viewport: Viewport) -> None:
        shown = (max(viewport.t0, self._span[0]), min(viewport.t1, self._span[1]))
        if shown != self._shown:
            self._shown = shown
            self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        busy = ""
        if self._worked:
            busy = f"GPU busy{self._whose} {format_share(self._busy(*self._span))}"
            if self._shown != self._span and self._shown[0] < self._shown[1]:
                busy += f" · here {format_share(self._busy(*self._shown))}"
        elif self._span[1] > self._span[0]:
            busy = "no GPU work in this trace"
        name = f" {cut(self._label, max(width - cell_len(busy) - 4, 8))}"
        room = width - cell_len(name) - cell_len(busy) - 3
        facts = ""
        for fact in self._facts:  # the first ones matter most; what does not fit is left out whole
            if cell_len(facts) + cell_len(fact) + 3 > room:
                break
            facts += f" · {fact}"
        gap = width - cell_len(name) - cell_len(facts) - cell_len(busy) - 1
        runs: list[Run] = [
            (name, palette.strong),
            (facts, palette.text),
            (" " * gap, palette.text),
            (busy, palette.accent),
        ]
        return line(runs, width, palette.text)

    def _busy(self, start: int, end: int) -> float:
        return sum(each.within(start, end) for each in self._worked) / (len(self._worked) * max(end - start, 1))


def short_label(label: str) -> str:
    """The file's name without its folder and endings, cleaned."""
    name = label.replace("\\", "/").rstrip("/").rpartition("/")[2] or label
    stem = name
    while stem.endswith(_SUFFIXES):
        stem = stem.rpartition(".")[0]
    return clean(stem or name)


def facts_of(trace: Trace) -> list[str]:
    """What the trace was recorded on and how much of it there is, most telling first; cleaned."""
    names = {device.get("id"): str(device.get("name") or "") for device in trace.devices}
    used = sorted({(lane.rank, lane.device) for lane in trace.lanes if lane.device is not None})
    named = [names[device] for _, device in used if names.get(device)]
    facts = []
    if named:
        facts.append(clean(named[0]) + (f" × {len(used)}" if len(used) > 1 else ""))
    if trace.ranks is not None:
        world = trace.world_size
        facts.append(f"{len(trace.ranks)} ranks" + (f" of {world}" if world and world != len(trace.ranks) else ""))
        facts.append(clocks_of(trace.ranks))
    elif trace.rank is not None:
        facts.append(f"rank {trace.rank}" + (f" of {trace.world_size}" if trace.world_size else ""))
    if trace.steps:
        facts.append(f"{len(trace.steps)} step{'s' if len(trace.steps) > 1 else ''}")
    facts.append(format_duration(trace.span[1] - trace.span[0]))
    facts.append(f"{len(trace):,} events")
    return facts


def clocks_of(ranks: Ranks) -> str:
    """How far times of different ranks can be compared: by what their clocks were set, and the largest error left."""
    hows = {rank.clock.how for rank in ranks.all}
    worst = next(how for how in (Aligned.NONE, Aligned.WALL, Aligned.COLLECTIVES, Aligned.BASE) if how in hows)
    if worst is Aligned.NONE:
        count = sum(rank.clock.how is Aligned.NONE for rank in ranks.all)
        return f"clocks of {count} ranks not aligned"
    errors = [rank.clock.error for rank in ranks.all if rank.clock.error is not None]
    within = f" ±{format_duration(max(errors))}" if errors else ""
    return f"clocks by {worst.value}{within}{_unmeasured(ranks)}"


def _unmeasured(ranks: Ranks) -> str:
    """That the error says nothing of some ranks: they have no collective that was joined."""
    numbers = [rank.number for rank in ranks.unmeasured]
    if not numbers:
        return ""
    which = f"rank {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} ranks"
    return f" ({which}: not measured)"
