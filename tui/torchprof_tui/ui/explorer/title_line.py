"""The first lines: the trace's name, what it was recorded on, how busy the GPU was; and what the trace is bound by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.strip import Strip

from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.ranks import AlignmentMethod, Ranks
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.model.trace_metadata import read_device_names
from torchprof_tui.trace.query.folded_time import FoldedTime
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.labels import short_label
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip, wrap_text
from torchprof_tui.ui.lanes.step_labels import count_kinds

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.verdict.verdict import Verdict


MAX_DEVICES = 256
"""Maximum number of GPUs that are summed for each frame; no host has more. The line reports where a file has more."""


class TitleLine(PaintedWidget):
    """Show the title; call `show_viewport` when another part of the trace is on screen."""

    def __init__(self, trace: Trace, gpu_busy: list[Intervals], *, id: str | None = None) -> None:  # noqa: A002
        """Show the title. `gpu_busy`: the busy intervals of each GPU; empty without GPU work."""
        super().__init__(id=id)
        self._label = short_label(trace.label)
        self._part = trace.part
        self._stage = ""
        self._descriptions = describe_trace(trace)
        self._gpu_busy = gpu_busy[:MAX_DEVICES]
        self._device_limit_note = f" ({MAX_DEVICES} of {len(gpu_busy):,} GPUs)" if len(gpu_busy) > MAX_DEVICES else ""
        self._span = trace.span
        self._busy_of_steps = ""
        self._visible_span = trace.span
        self._fold: FoldedTime | None = None

    def show_viewport(self, viewport: Viewport) -> None:
        shown = (max(viewport.t0, self._span[0]), min(viewport.t1, self._span[1]))
        fold = viewport.fold
        if shown != self._visible_span or fold is not self._fold:
            self._visible_span, self._fold = shown, fold
            self.repaint()

    def show_verdict(self, verdict: Verdict | None) -> None:
        """Show how busy the GPU was in the steps, as the verdict and the findings do; not of several GPUs."""
        if self._part or verdict is None or verdict.busy is None or verdict.busy_base != "the steps":
            return
        if len(self._gpu_busy) != 1:
            return
        text = f"{format_share(verdict.busy)} of steps"
        if text != self._busy_of_steps:
            self._busy_of_steps = text
            self.repaint()

    def show_stage(self, stage: str) -> None:
        """Show how far the rest of the trace is loaded, where only its beginning is on screen."""
        if stage != self._stage:
            self._stage = stage
            self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        sign = f" · loading {self._stage}: {self._part} so far".replace(" :", ":") if self._part else ""
        busy = ""
        if self._gpu_busy:
            share = f"{format_share(self._gpu_busy_share(*self._span))}{'' if sign else ' of trace'}"
            noun = "GPUs" if len(self._gpu_busy) > 1 else "GPU"
            busy = f"{noun} busy{self._device_limit_note} {self._busy_of_steps or share}"
            if (self._visible_span != self._span or self._fold) and self._visible_span[0] < self._visible_span[1]:
                busy += f" · here {format_share(self._gpu_busy_share(*self._visible_span, self._fold))}"
        elif self._span[1] > self._span[0]:
            busy = "no GPU work so far" if sign else "no GPU work in this trace"
        name = f" {truncate(self._label, max(width - cell_len(busy) - cell_len(sign) - 4, 8))}"
        available = width - cell_len(name) - cell_len(busy) - cell_len(sign) - 3
        descriptions = ""
        for description in self._descriptions:  # most important first; one that does not fit is left out
            if cell_len(descriptions) + cell_len(description) + 3 > available:
                break
            descriptions += f" · {description}"
        gap = width - cell_len(name) - cell_len(sign) - cell_len(descriptions) - cell_len(busy) - 1
        runs: list[TextRun] = [
            (name, palette.strong),
            (sign, palette.strong),
            (descriptions, palette.text),
            (" " * gap, palette.text),
            (busy, palette.strong),
        ]
        return build_strip(runs, width, palette.text)

    def _gpu_busy_share(self, start: int, end: int, fold: FoldedTime | None = None) -> float:
        """Return the share of a range, without what is folded in it, that the GPUs were busy."""
        hidden = [] if fold is None else list(zip(fold.starts, fold.ends, strict=True))
        hidden = [(max(low, start), min(high, end)) for low, high in hidden if low < end and high > start]
        busy = sum(
            intervals.measure_between(start, end) - sum(intervals.measure_between(*part) for part in hidden)
            for intervals in self._gpu_busy
        )
        length = end - start - sum(high - low for low, high in hidden)
        return busy / (len(self._gpu_busy) * max(length, 1))


def describe_trace(trace: Trace) -> list[str]:
    """Describe the devices, ranks, steps, duration and size of a trace, most important first; cleaned."""
    names = read_device_names(trace.devices)
    used = sorted({(lane.rank, lane.device) for lane in trace.lanes if lane.device is not None})
    device_names = [names[device] for _, device in used if names.get(device)]
    descriptions = []
    if device_names:
        descriptions.append(clean(device_names[0]) + (f" × {len(used)}" if len(used) > 1 else ""))
    if trace.merged_ranks is not None:
        world = trace.world_size
        descriptions.append(
            f"{len(trace.merged_ranks)} ranks" + (f" of {world}" if world and world != len(trace.merged_ranks) else "")
        )
        descriptions.append(describe_clocks(trace.merged_ranks))
    elif trace.rank is not None:
        descriptions.append(f"rank {trace.rank}" + (f" of {trace.world_size}" if trace.world_size else ""))
    if trace.steps:
        kinds = count_kinds(trace.steps)
        count = f"{len(trace.steps)} step{'s' if len(trace.steps) > 1 else ''}"
        descriptions.append(f"{count} ({kinds})" if kinds else count)
    descriptions.append(format_duration(trace.span[1] - trace.span[0]))
    descriptions.append(f"{len(trace):,} events")
    return descriptions


def describe_clocks(ranks: Ranks) -> str:
    """Describe how the ranks' clocks were aligned (the weakest method of all), and the largest error that is left."""
    methods = {rank.clock.method for rank in ranks.all}
    worst = next(
        method
        for method in (AlignmentMethod.NONE, AlignmentMethod.WALL, AlignmentMethod.COLLECTIVES, AlignmentMethod.BASE)
        if method in methods
    )
    if worst is AlignmentMethod.NONE:
        count = sum(rank.clock.method is AlignmentMethod.NONE for rank in ranks.all)
        return f"clocks of {count} ranks not aligned"
    errors = [rank.clock.error for rank in ranks.all if rank.clock.error is not None]
    within = f" ±{format_duration(max(errors))}" if errors else ""
    numbers = [rank.number for rank in ranks.unmeasured_ranks]  # without a matched collective
    label = f"rank {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} ranks"
    return f"clocks by {worst.value}{within}{f' ({label}: not measured)' if numbers else ''}"


def cut_clauses(text: str, width: int) -> str:
    """Cut a sentence to `width` cells behind a clause, if one ends in the second half of them, else behind a word."""
    if cell_len(text) <= width:
        return text
    kept = truncate(text, width - 1)[:-1]
    end = max(kept.rfind(mark) for mark in (": ", "; ", ", ", " · ", " ("))
    return f"{kept[: end if end > len(kept) // 2 else max(kept.rfind(' '), 0)]} …"


class VerdictLine(PaintedWidget):
    """Show the verdict; empty until `set_verdict` is called."""

    verdict: Verdict | None = None
    _rank_prefix = ""

    def set_verdict(self, verdict: Verdict, rank_label: str = "") -> None:
        """Show a verdict. `rank_label`: its rank, where there are several, or the part of the trace that it is of."""
        self.verdict, self._rank_prefix = verdict, f"{rank_label}: " if rank_label else ""
        self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette, verdict = self.palette, self.verdict
        if verdict is None:
            return build_strip([], width, palette.text)
        lines = self._wrap_lines(width - 2)
        if y >= len(lines):
            return build_strip([], width, palette.text)
        text = lines[y]
        if y == self.size.height - 1 and len(lines) > self.size.height:
            text = cut_clauses(" ".join(lines[y:]), width - 2)
        regime = "" if verdict.busy is None or y else f"{self._rank_prefix}{verdict.headline}"
        rest_style = palette.muted if verdict.busy is None else palette.text
        style = palette.warning if verdict.is_problem else palette.strong  # red only where it is a problem
        runs: list[TextRun] = [(" ", palette.text), (regime, style), (text[len(regime) :], rest_style)]
        return build_strip(runs, width, palette.text)

    @property
    def shows_all(self) -> bool:
        """Whether the whole text is on screen."""
        return self.verdict is not None and len(self._wrap_lines(self.size.width - 2)) <= self.size.height

    def _wrap_lines(self, width: int) -> list[str]:
        assert self.verdict is not None
        regime = "" if self.verdict.busy is None else f"{self.verdict.headline} · "
        wrapped = wrap_text(clean(f"{self._rank_prefix}{regime}{self.verdict.first}"), width, self.palette.text)
        return ["".join(text for text, _ in runs) for runs in wrapped]
