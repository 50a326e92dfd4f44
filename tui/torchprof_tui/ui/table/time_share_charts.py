"""Where GPU time goes, drawn: bars by kernel class and by module, and a stacked bar for each step."""

from __future__ import annotations

from rich.cells import cell_len

from torchprof_tui.analysis.table.gpu_time_shares import GpuTimeShares, TimeShare
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import TextRun
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, wrap_text

LABEL_CELLS, MODULE_CELLS = 20, 44
MODULES_SHOWN, CLASSES_SHOWN = 24, 8
"""So many modules are listed; so many classes have a colour and letters of their own in a step's bar."""

_FILL_KINDS = (
    Kind.KERNEL,
    Kind.OP,
    Kind.ANNOTATION,
    Kind.COLLECTIVE,
    Kind.RUNTIME,
    Kind.COPY,
    Kind.ASYNC,
    Kind.MEMSET,
)


class TimeShareCharts(TextPanel):
    """Set `learn`."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._shares: GpuTimeShares | None = None

    def set_shares(self, shares: GpuTimeShares) -> None:
        self._shares = shares
        self.refresh_content()

    def content(self, width: int) -> Lines:
        palette, shares = self.palette, self._shares
        if shares is None:
            return []
        if not shares.classes:
            return wrap_text("There is no GPU work in this trace to draw.", width, palette.muted)
        lines: Lines = [[("GPU time by kernel class", palette.heading)]]
        lines += self._format_bars(shares.classes, width, LABEL_CELLS, coloured=True)
        lines += [[], *self._format_steps(shares, width), [], [("GPU time by module", palette.heading)]]
        if shares.modules_missing_reason:
            lines += wrap_text(clean(shares.modules_missing_reason), width, palette.muted)
        lines += self._format_bars(shares.modules[:MODULES_SHOWN], width, MODULE_CELLS)
        if len(shares.modules) > MODULES_SHOWN:
            lines.append([(f"… and {len(shares.modules) - MODULES_SHOWN:,} more", palette.muted)])
        return lines

    def _format_steps(self, shares: GpuTimeShares, width: int) -> Lines:
        palette = self.palette
        lines: Lines = [[("Each step: the GPU work that it launched, beside its own length", palette.heading)]]
        if not shares.step_names:
            return [*lines, *wrap_text("no steps were recorded: call prof.step()", width, palette.muted)]
        longest = max(int(shares.step_time.max()), int(shares.time_by_step.sum(axis=1).max()), 1)
        lines.append(self._format_legend(shares))
        return lines + [self._format_step(shares, row, longest, width) for row in range(len(shares.step_names))]

    def _select_fill_kind(self, place: int) -> int:
        return int(_FILL_KINDS[place]) if place < CLASSES_SHOWN else int(Kind.OTHER)

    def _format_bars(self, slices: list[TimeShare], width: int, cells: int, coloured: bool = False) -> Lines:
        """Bars as long as their share of the heaviest."""
        most = max((each.share for each in slices), default=1.0) or 1.0
        room = max(width - cells - 22, 4)
        return [
            self._format_bar(
                each,
                cells,
                max(round(each.share / most * room), 1),
                self._select_fill_kind(place) if coloured else None,
            )
            for place, each in enumerate(slices)
        ]

    def _format_bar(self, share_slice: TimeShare, cells: int, full: int, kind: int | None) -> list[TextRun]:
        palette = self.palette
        label = clean(share_slice.label)
        if cell_len(label) >= cells:  # of a module's path the end tells it apart
            label = "…" + label[-(cells - 2) :] if "/" in label or "." in label else truncate(label, cells - 1)
        return [
            (label + " " * (cells - cell_len(label)), palette.text),
            (f"{format_duration(share_slice.time):>10} {format_share(share_slice.share):>7}  ", palette.text),
            ("█" * full, palette.ink(int(Kind.PYTHON) if kind is None else kind)),
        ]

    def _format_legend(self, shares: GpuTimeShares) -> list[TextRun]:
        palette = self.palette
        runs: list[TextRun] = []
        for place, label in enumerate(shares.class_labels[:CLASSES_SHOWN]):
            runs += [(f" {label} ", palette.fill(self._select_fill_kind(place))), (" ", palette.text)]
        if len(shares.class_labels) > CLASSES_SHOWN:
            runs.append((" others ", palette.fill(int(Kind.OTHER))))
        runs.append((" · the GPU had nothing of this step", palette.muted))
        return runs

    def _format_step(self, shares: GpuTimeShares, row: int, longest: int, width: int) -> list[TextRun]:
        """Segments as long as their time, with as much of their class's name as fits; then the rest of the step."""
        palette = self.palette
        label = truncate(clean(shares.step_names[row]), LABEL_CELLS - 1)
        time = int(shares.step_time[row])
        room = max(width - LABEL_CELLS - 12, 4)
        runs: list[TextRun] = [
            (label + " " * (LABEL_CELLS - cell_len(label)), palette.text),
            (f"{format_duration(time):>10}  ", palette.text),
        ]
        times = shares.time_by_step[row].tolist()
        if len(times) > CLASSES_SHOWN:
            times = [*times[:CLASSES_SHOWN], sum(times[CLASSES_SHOWN:])]
        used, reached = 0, 0
        for place, each in enumerate(times):
            reached += each
            end = min(round(reached / longest * room), room)
            if end > used:
                name = shares.class_labels[place] if place < CLASSES_SHOWN else "others"
                runs.append((name[: end - used].ljust(end - used), palette.fill(self._select_fill_kind(place))))
                used = end
        rest = round(time / longest * room) - used
        if rest > 0:
            runs.append(("·" * rest, palette.muted))
        return runs
