"""A panel of styled lines that scrolls without scrollbars: showing another event costs no layout."""

from __future__ import annotations

from rich.cells import cell_len, get_character_cell_size
from rich.style import Style
from textual import events
from textual.geometry import Size
from textual.strip import Strip

from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip

Lines = list[list[TextRun]]
LINES_PER_WHEEL_STEP = 2


class TextPanel(PaintedWidget):
    """Subclasses implement `content`; they call `renew` when what it says has changed."""

    DEFAULT_CSS = "TextPanel { height: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._content: Lines = []
        self._top = 0

    def content(self, width: int) -> Lines:
        """All lines, none wider than `width` cells; called once per frame at most."""
        raise NotImplementedError

    def text(self) -> str:
        """The same as plain text, for copying."""
        return "\n".join("".join(piece for piece, _ in runs).rstrip() for runs in self.content(COPY_WIDTH))

    def refresh_content(self, top: bool = True) -> None:
        """There is something else to say; `top`: from its first line."""
        if top:
            self._top = 0
        self.repaint()

    def scroll_lines(self, count: int) -> None:
        """Down (up where negative), as far as there is something to see."""
        wanted = min(max(self._top + count, 0), max(0, len(self._content) - self.size.height))
        if wanted != self._top:
            self._top = wanted
            self.repaint()

    @property
    def lines_below(self) -> int:
        """How many lines lie below the last one on screen."""
        return max(0, len(self._content) - self._top - self.size.height)

    def prepare(self, size: Size) -> None:
        self._content = self.content(max(size.width - 2, 1))
        if len(self._content) > size.height:  # then `paint` says how much lies below, and no number may end under that
            self._content = self.content(max(size.width - 2 - (1 + len(str(len(self._content)))), 1))
        self._top = min(self._top, max(0, len(self._content) - size.height))

    def paint(self, y: int, width: int) -> Strip:
        place = self._top + y
        runs = self._content[place] if place < len(self._content) else []
        more = f" ▾{self.lines_below}" if y == self.size.height - 1 and self.lines_below else ""
        inner = build_strip([(" ", self.palette.text), *runs], width - len(more), self.palette.text)
        if not more:
            return inner
        return build_strip(
            [*((text, style or self.palette.text) for text, style, _ in inner), (more, self.palette.muted)],
            width,
            self.palette.text,
        )

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_lines(LINES_PER_WHEEL_STEP)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_lines(-LINES_PER_WHEEL_STEP)


COPY_WIDTH = 10_000
"""Wide enough that nothing is wrapped in what is copied."""


MAX_WRAPPED_CHARACTERS = 20_000
"""Characters of one text that are laid out: nobody scrolls further through a name, and a file may have one of MBs."""


def wrap_text(text: str, width: int, style: Style, indent: str = "") -> Lines:
    """Cleaned text in lines of at most `width` cells, broken at a space where there is one near."""
    out: Lines = []
    rest = (
        text if len(text) <= MAX_WRAPPED_CHARACTERS else f"{text[:MAX_WRAPPED_CHARACTERS]}… ({len(text):,} characters)"
    )
    width = max(width, 1)
    while rest:
        lead = indent if out else ""
        room = max(width - cell_len(lead), 1)
        if cell_len(rest) <= room:
            out.append([(lead + rest, style)])
            break
        used = taken = 0
        for character in rest:
            used += get_character_cell_size(character)
            if used > room and taken:
                break
            taken += 1
        space = rest.rfind(" ", taken // 3, taken + 1)
        end = space if space > 0 else taken
        out.append([(lead + rest[:end], style)])
        rest = rest[end:].lstrip(" ") if space > 0 else rest[end:]
    return out or [[("", style)]]


def join_columns(left: Lines, right: Lines, right_offset: int, blank: Style) -> Lines:
    """Two blocks side by side, the right one beginning at cell `at`."""
    out: Lines = []
    for place in range(max(len(left), len(right))):
        runs = list(left[place]) if place < len(left) else []
        beside = right[place] if place < len(right) else []
        if beside:
            used = sum(cell_len(text) for text, _ in runs)
            runs.append((" " * max(right_offset - used, 1), blank))
            runs.extend(beside)
        out.append(runs)
    return out
