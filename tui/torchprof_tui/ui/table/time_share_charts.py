"""Where GPU time goes, drawn: bars by kernel class and by module, and a stacked bar for each step."""

from __future__ import annotations

from rich.cells import cell_len

from torchprof_tui.analysis.table.gpu_time_shares import Shares, Slice
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.ui.common.name_display import clean, cut
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Run
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, wrap

LABEL_CELLS, MODULE_CELLS = 20, 44
MODULES_SHOWN, CLASSES_APART = 24, 8
"""So many modules are listed; so many classes have a colour and letters of their own in a step's bar."""

_FILLS = (
    Kind.KERNEL,
    Kind.OP,
    Kind.ANNOTATION,
    Kind.COLLECTIVE,
    Kind.RUNTIME,
    Kind.COPY,
    Kind.ASYNC,
    Kind.MEMSET,
)


class Pictures(TextPanel):
    """Set `learn`."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._shares: Shares | None = None

    def learn(self, shares: Shares) -> None:
        self._shares = shares
        self.renew()

    def content(self, width: int) -> Lines:
        palette, shares = self.palette, self._shares
        if shares is None:
            return []
        if not shares.classes:
            return wrap("There is no GPU work in this trace to draw.", width, palette.muted)
        lines: Lines = [[("GPU time by kernel class", palette.heading)]]
        lines += self._bars(shares.classes, width, LABEL_CELLS, coloured=True)
        lines += [[], *self._steps(shares, width), [], [("GPU time by module", palette.heading)]]
        if shares.modules_missing:
            lines += wrap(clean(shares.modules_missing), width, palette.muted)
        lines += self._bars(shares.modules[:MODULES_SHOWN], width, MODULE_CELLS)
        if len(shares.modules) > MODULES_SHOWN:
            lines.append([(f"… and {len(shares.modules) - MODULES_SHOWN:,} more", palette.muted)])
        return lines

    def _steps(self, shares: Shares, width: int) -> Lines:
        palette = self.palette
        lines: Lines = [[("Each step: the GPU work that it launched, beside its own length", palette.heading)]]
        if not shares.steps:
            return [*lines, *wrap("no steps were recorded: call prof.step()", width, palette.muted)]
        longest = max(int(shares.step_time.max()), int(shares.of_step.sum(axis=1).max()), 1)
        lines.append(self._legend(shares))
        return lines + [self._step(shares, row, longest, width) for row in range(len(shares.steps))]

    def _hue(self, place: int) -> int:
        return int(_FILLS[place]) if place < CLASSES_APART else int(Kind.OTHER)

    def _bars(self, slices: list[Slice], width: int, cells: int, coloured: bool = False) -> Lines:
        """Bars as long as their share of the heaviest."""
        most = max((each.share for each in slices), default=1.0) or 1.0
        room = max(width - cells - 22, 4)
        return [
            self._bar(each, cells, max(round(each.share / most * room), 1), self._hue(place) if coloured else None)
            for place, each in enumerate(slices)
        ]

    def _bar(self, each: Slice, cells: int, full: int, kind: int | None) -> list[Run]:
        palette = self.palette
        label = clean(each.label)
        if cell_len(label) >= cells:  # of a module's path the end tells it apart
            label = "…" + label[-(cells - 2) :] if "/" in label or "." in label else cut(label, cells - 1)
        return [
            (label + " " * (cells - cell_len(label)), palette.text),
            (f"{format_duration(each.time):>10} {format_share(each.share):>7}  ", palette.text),
            ("█" * full, palette.ink(int(Kind.PYTHON) if kind is None else kind)),
        ]

    def _legend(self, shares: Shares) -> list[Run]:
        palette = self.palette
        runs: list[Run] = []
        for place, label in enumerate(shares.columns[:CLASSES_APART]):
            runs += [(f" {label} ", palette.fill(self._hue(place))), (" ", palette.text)]
        if len(shares.columns) > CLASSES_APART:
            runs.append((" others ", palette.fill(int(Kind.OTHER))))
        runs.append((" · the GPU had nothing of this step", palette.muted))
        return runs

    def _step(self, shares: Shares, row: int, longest: int, width: int) -> list[Run]:
        """Segments as long as their time, with as much of their class's name as fits; then the rest of the step."""
        palette = self.palette
        label = cut(clean(shares.steps[row]), LABEL_CELLS - 1)
        time = int(shares.step_time[row])
        room = max(width - LABEL_CELLS - 12, 4)
        runs: list[Run] = [
            (label + " " * (LABEL_CELLS - cell_len(label)), palette.text),
            (f"{format_duration(time):>10}  ", palette.text),
        ]
        times = shares.of_step[row].tolist()
        if len(times) > CLASSES_APART:
            times = [*times[:CLASSES_APART], sum(times[CLASSES_APART:])]
        used, reached = 0, 0
        for place, each in enumerate(times):
            reached += each
            end = min(round(reached / longest * room), room)
            if end > used:
                name = shares.columns[place] if place < CLASSES_APART else "others"
                runs.append((name[: end - used].ljust(end - used), palette.fill(self._hue(place))))
                used = end
        rest = round(time / longest * room) - used
        if rest > 0:
            runs.append(("·" * rest, palette.muted))
        return runs
