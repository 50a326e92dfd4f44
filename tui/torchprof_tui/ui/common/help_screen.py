"""Help screen: all keys, listed from the bindings themselves, and how to read the lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen

from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.kind_descriptions import KIND_DESCRIPTIONS
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, join_columns, wrap_text
from torchprof_tui.ui.explorer.keys import KeyHelp

TWO_COLUMN_WIDTH = 110

LANE_SYMBOLS = (
    ("▏aten::mm", "a bar: one event; ▏ is where it begins"),
    ("█▉ ▍", "events too narrow for a name; the width of ▍ is their share of the cell"),
    ("░ ▒ ▓", "a cell that stands for many events, by how busy it is: under ⅓, under ⅔, more"),
    ("▶aten::mm ◆", "▶ the selected event; ◆ what belongs to its chain, or is evidence of a pattern"),
    ("╰┄┄▏", "the link from a launch to the GPU work that it started; ▶ ▼ at an edge: it goes on there"),
    ("‹launch-bound›", "why the GPU was idle: what the CPU did meanwhile"),
    ("● at a lane", "the evidence of the cheatsheet's entry lies on it; red: a problem of 0.5 % of the time or more"),
    ("[▂▃▁]", "on the overview: the part of the trace on screen"),
    ("▼", "on the ruler: where w and s zoom"),
    ("▾ ▸ ▴", "a lane or rank unfolded, folded; a lane pinned"),
)

KINDS_SHOWN = (
    Kind.STEP,
    Kind.ANNOTATION,
    Kind.PYTHON,
    Kind.OP,
    Kind.RUNTIME,
    Kind.KERNEL,
    Kind.COPY,
    Kind.MEMSET,
    Kind.COLLECTIVE,
    Kind.SYNC,
    Kind.GPU_ANNOTATION,
    Kind.OVERHEAD,
)


class HelpText(TextPanel):
    """The keys by section and the legend of the lanes, side by side if there is space."""

    def __init__(self, keys: Mapping[str, Sequence[KeyHelp]]) -> None:
        super().__init__()
        self._keys = keys

    def content(self, width: int) -> Lines:
        if width < TWO_COLUMN_WIDTH:
            return [*self._key_lines(width), [], *self._legend_lines(width)]
        half = width // 2
        return join_columns(self._key_lines(half - 3), self._legend_lines(width - half), half, self.palette.text)

    def _key_lines(self, width: int) -> Lines:
        palette = self.palette
        indent = max(cell_len(key.keys) for keys in self._keys.values() for key in keys) + 2
        lines: Lines = []
        for title, keys in self._keys.items():
            lines += [[]] if lines else []
            lines.append([(title, palette.heading)])
            for key in keys:
                wrapped = wrap_text(key.description, width - indent, palette.text)
                lines.append([(key.keys.ljust(indent), palette.key), *wrapped[0]])
                lines += [[(" " * indent, palette.text), *runs] for runs in wrapped[1:]]
        return lines

    def _legend_lines(self, width: int) -> Lines:
        palette = self.palette
        lines: Lines = [[("How to read the lanes", palette.heading)]]
        indent = 14
        for symbol, meaning in LANE_SYMBOLS:
            wrapped = wrap_text(meaning, width - indent, palette.text)
            lines.append([(symbol.ljust(indent), palette.strong), *wrapped[0]])
            lines += [[(" " * indent, palette.text), *runs] for runs in wrapped[1:]]
        lines += [[], [("Colours", palette.heading)]]
        indent = 18
        for kind in KINDS_SHOWN:
            name, description = KIND_DESCRIPTIONS[kind]
            wrapped = wrap_text(description, width - indent, palette.text)
            lines.append([(f" {name} ".ljust(indent - 2), palette.fill(kind)), ("  ", palette.text), *wrapped[0]])
            lines += [[(" " * indent, palette.text), *runs] for runs in wrapped[1:]]
        return lines


class HelpScreen(ModalScreen[None]):
    """Keys and legend over the current screen; several keys close it (escape, q, ?, enter)."""

    CSS_PATH = "help_screen.tcss"
    BINDINGS = [
        Binding("escape,q,question_mark,enter", "dismiss", "close"),
        Binding("down,j,J,space,pagedown", "scroll(1)", "down", show=False),
        Binding("up,k,K,pageup", "scroll(-1)", "up", show=False),
    ]
    AUTO_FOCUS = ""

    def __init__(self, keys: Mapping[str, Sequence[KeyHelp]], palette: Palette) -> None:
        super().__init__()
        self._text = HelpText(keys)
        self._text.palette = palette

    def compose(self) -> ComposeResult:
        with Vertical(id="help") as box:
            box.border_title = "torchprof-tui"
            box.border_subtitle = "↑ ↓ scroll · esc closes"
            yield self._text

    def action_scroll(self, direction: int) -> None:
        self._text.scroll_lines(direction * max(1, self._text.size.height // 2))
