"""A panel of styled lines that scrolls without scrollbars, so that new content needs no layout."""

from __future__ import annotations

from rich.cells import cell_len, get_character_cell_size
from rich.style import Style
from textual.geometry import Size
from textual.strip import Strip

from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip

Lines = list[list[TextRun]]


class TextPanel(PaintedWidget):
    """A panel of text. Subclasses implement `content` and call `refresh_content` when it has changed."""

    DEFAULT_CSS = "TextPanel { height: 1fr; }"
    WHEEL_LINES = 2

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._content: Lines = []
        self._top = 0
        self._lead = " "  # the first cell of each line

    def content(self, width: int) -> Lines:
        """Build all lines, none wider than `width` cells; called at most once per frame."""
        raise NotImplementedError

    def text(self) -> str:
        """Return the content as plain text, for copying: as on screen, at most `COPY_WIDTH` cells wide."""
        width = min(self.size.width - 2, COPY_WIDTH) if self.size.width > 2 else COPY_WIDTH
        return "\n".join("".join(text for text, _ in runs).rstrip() for runs in self.content(width))

    def refresh_content(self, top: bool = True) -> None:
        """Repaint after the content changed; `top`: scroll to its first line."""
        if top:
            self._top = 0
        self.repaint()

    def set_divided(self, divided: bool) -> None:
        """Draw a line on the left, which divides the panel from the one beside it."""
        lead = "│" if divided else " "
        if lead != self._lead:
            self._lead = lead
            self.repaint()

    def scroll_lines(self, count: int) -> bool:
        """Scroll down by `count` lines (up if negative), within the content. Returns whether it moved."""
        top = min(max(self._top + count, 0), max(0, len(self._content) - self.size.height))
        if top != self._top:
            self._top = top
            self.repaint()
            return True
        return False

    def scroll_to_top(self) -> bool:
        """Scroll to the first line. Returns whether it moved."""
        moved, self._top = self._top > 0, 0
        self.repaint()
        return moved

    @property
    def lines_below(self) -> int:
        """Number of lines below the last one on screen."""
        return max(0, len(self._content) - self._top - self.size.height)

    def prepare(self, size: Size) -> None:
        self._content = self.content(max(size.width - 2, 1))
        if len(self._content) > size.height:
            # `paint` writes the number of lines below into the last line: keep those cells free of text.
            self._content = self.content(max(size.width - 2 - (1 + len(str(len(self._content)))), 1))
        self._top = min(self._top, max(0, len(self._content) - size.height))

    def paint(self, y: int, width: int) -> Strip:
        index = self._top + y
        runs = self._content[index] if index < len(self._content) else []
        indicator = f" ▾{self.lines_below}" if y == self.size.height - 1 and self.lines_below else ""
        lead = (self._lead, self.palette.line)
        strip = build_strip([lead, *runs], width - len(indicator), self.palette.text)
        if not indicator:
            return strip
        return build_strip(
            [*((text, style or self.palette.text) for text, style, _ in strip), (indicator, self.palette.muted)],
            width,
            self.palette.text,
        )


COPY_WIDTH = 120
"""Cells; what is copied from a wider panel is laid out again for mails and tickets."""


MAX_WRAPPED_CHARACTERS = 20_000
"""Characters of a text that are laid out. A trace may contain names of several MB."""


def wrap_text(text: str, width: int, style: Style, indent: str = "") -> Lines:
    """Wrap cleaned text to lines of at most `width` cells, at a space if there is one in the last two thirds."""
    lines: Lines = []
    rest = (
        text if len(text) <= MAX_WRAPPED_CHARACTERS else f"{text[:MAX_WRAPPED_CHARACTERS]}… ({len(text):,} characters)"
    )
    width = max(width, 1)
    while rest:
        line_indent = indent if lines else ""
        available = max(width - cell_len(line_indent), 1)
        if cell_len(rest) <= available:
            lines.append([(line_indent + rest, style)])
            break
        used = count = 0
        for character in rest:
            used += get_character_cell_size(character)
            if used > available and count:
                break
            count += 1
        space = rest.rfind(" ", count // 3, count + 1)
        end = space if space > 0 else count
        lines.append([(line_indent + rest[:end], style)])
        rest = rest[end:].lstrip(" ") if space > 0 else rest[end:]
    return lines or [[("", style)]]


def join_columns(left: Lines, right: Lines, right_offset: int, blank: Style) -> Lines:
    """Place two blocks of lines side by side, the right one from cell `right_offset` on."""
    lines: Lines = []
    for index in range(max(len(left), len(right))):
        runs = list(left[index]) if index < len(left) else []
        right_runs = right[index] if index < len(right) else []
        if right_runs:
            used = sum(cell_len(text) for text, _ in runs)
            runs.append((" " * max(right_offset - used, 1), blank))
            runs.extend(right_runs)
        lines.append(runs)
    return lines
