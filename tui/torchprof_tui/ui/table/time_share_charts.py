"""Draw shares of GPU time: bars by kernel class and by module, and a stacked bar for each step."""

from __future__ import annotations

from rich.cells import cell_len

from torchprof_tui.analysis.table.groups import GpuTimeShares, TimeShare
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Lines, TextPanel, TextRun, wrap_text

LABEL_CELLS, MODULE_CELLS = 20, 44
MODULES_SHOWN, CLASSES_SHOWN = 24, 8
"""Modules that are listed; classes that have a colour and a label of their own in a step's bar."""

NO_GPU_WORK = "no GPU work was recorded, so nothing is drawn. tab: the profiler table has CPU times."

_FILL_KINDS = (Kind.KERNEL, Kind.OP, Kind.ANNOTATION, Kind.COLLECTIVE, Kind.RUNTIME, Kind.COPY, Kind.ASYNC, Kind.MEMSET)


class TimeShareCharts(TextPanel):
    """The charts as a text panel; call `set_shares` with the data."""

    _shares: GpuTimeShares | None = None

    def set_shares(self, shares: GpuTimeShares) -> None:
        self._shares = shares
        self.refresh_content()

    def content(self, width: int) -> Lines:
        palette, shares = self.palette, self._shares
        if shares is None:
            return []
        if not shares.classes:
            return wrap_text(NO_GPU_WORK, width, palette.text)
        lines: Lines = [[("GPU time by kernel class", palette.strong)]]
        lines += self._format_bars(shares.classes, width, LABEL_CELLS, coloured=True)
        lines += [[], *self._format_steps(shares, width), [], [("GPU time by module", palette.strong)]]
        if shares.modules_missing_reason:
            lines += wrap_text(clean(shares.modules_missing_reason), width, palette.muted)
        lines += self._format_bars(shares.modules[:MODULES_SHOWN], width, MODULE_CELLS)
        if len(shares.modules) > MODULES_SHOWN:
            lines.append([(f"… and {len(shares.modules) - MODULES_SHOWN:,} more", palette.muted)])
        return lines

    def _format_steps(self, shares: GpuTimeShares, width: int) -> Lines:
        palette = self.palette
        lines: Lines = [
            [("Each step: the time of the GPU work that it launched, and its own duration", palette.strong)]
        ]
        if not shares.step_names:
            return [*lines, *wrap_text("no steps were recorded: call prof.step()", width, palette.muted)]
        longest = max(int(shares.step_time.max()), int(shares.time_by_step.sum(axis=1).max()), 1)
        lines += self._format_legend(shares, width)
        return lines + [self._format_step(shares, row, longest, width) for row in range(len(shares.step_names))]

    def _select_fill_kind(self, index: int) -> int:
        return int(_FILL_KINDS[index]) if index < CLASSES_SHOWN else int(Kind.OTHER)

    def _format_bars(self, shares: list[TimeShare], width: int, label_cells: int, coloured: bool = False) -> Lines:
        largest = max((share.share for share in shares), default=1.0) or 1.0
        bar_cells = max(width - label_cells - 22, 4)
        palette, lines = self.palette, []
        for index, share in enumerate(shares):
            label = clean(share.label)
            if cell_len(label) >= label_cells:
                # Paths of modules differ at their end, other labels at their beginning.
                is_path = "/" in label or "." in label
                label = "…" + label[-(label_cells - 2) :] if is_path else truncate(label, label_cells - 1)
            kind = self._select_fill_kind(index) if coloured else int(Kind.PYTHON)
            row: list[TextRun] = [
                (label + " " * (label_cells - cell_len(label)), palette.text),
                (f"{format_duration(share.time):>10} {format_share(share.share):>7}  ", palette.text),
                ("█" * max(round(share.share / largest * bar_cells), 1), palette.ink(kind)),
            ]
            lines.append(row)
        return lines

    def _format_legend(self, shares: GpuTimeShares, width: int) -> Lines:
        """Format the classes with their colour and their number, which stands in segments too narrow for the name."""
        palette = self.palette
        entries: list[TextRun] = [
            (f" {number} {label} ", palette.fill(self._select_fill_kind(number - 1)))
            for number, label in enumerate(_list_segment_labels(shares), start=1)
        ]
        lines: Lines = [[]]
        used = 0
        for text, style in [*entries, ("··· GPU idle", palette.muted)]:
            if used and used + cell_len(text) > width:
                lines.append([])
                used = 0
            lines[-1] += [(text, style), (" ", palette.text)]
            used += cell_len(text) + 1
        return lines

    def _format_step(self, shares: GpuTimeShares, row: int, longest: int, width: int) -> list[TextRun]:
        """Format one step: a segment for each class with its name, or else its number, then dots to the step's end."""
        palette = self.palette
        label = truncate(clean(shares.step_names[row]), LABEL_CELLS - 1)
        step_time = int(shares.step_time[row])
        bar_cells = max(width - LABEL_CELLS - 12, 4)
        runs: list[TextRun] = [
            (label + " " * (LABEL_CELLS - cell_len(label)), palette.text),
            (f"{format_duration(step_time):>10}  ", palette.text),
        ]
        times = shares.time_by_step[row].tolist()
        if len(times) > CLASSES_SHOWN:
            times = [*times[:CLASSES_SHOWN], sum(times[CLASSES_SHOWN:])]
        labels = _list_segment_labels(shares)
        used, total = 0, 0
        for index, time in enumerate(times):
            total += time
            end = min(round(total / longest * bar_cells), bar_cells)
            if end > used:
                texts = (f" {labels[index]} ", str(index + 1), "")
                text = next(text for text in texts if cell_len(text) <= end - used)
                runs.append((text.ljust(end - used), palette.fill(self._select_fill_kind(index))))
                used = end
        idle_cells = round(step_time / longest * bar_cells) - used
        if idle_cells > 0:
            runs.append(("·" * idle_cells, palette.muted))
        return runs


def _list_segment_labels(shares: GpuTimeShares) -> list[str]:
    """List the labels of a step's segments: the heaviest classes, then the others as one."""
    labels = shares.class_labels[:CLASSES_SHOWN]
    return [*labels, "others"] if len(shares.class_labels) > CLASSES_SHOWN else labels
