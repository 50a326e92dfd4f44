"""The last line: what just happened on the left, the keys that matter now on the right."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.strip import Strip

from torchprof_tui.ui.common.name_display import clean, cut
from torchprof_tui.ui.common.painted_widget import Painted, Run, line


class Status(Painted):
    """Set `say` and `keys`."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._message = ""
        self._alarm = False
        self._keys: tuple[tuple[str, str], ...] = ()

    def say(self, message: str, alarm: bool = False) -> None:
        """One line, escaped here; stays until something else is said."""
        if (message, alarm) != (self._message, self._alarm):
            self._message, self._alarm = message, alarm
            self.repaint()

    @property
    def message(self) -> str:
        return self._message

    def keys(self, keys: Sequence[tuple[str, str]]) -> None:
        """(key, what it does), the most useful first: as many as fit are shown."""
        if tuple(keys) != self._keys:
            self._keys = tuple(keys)
            self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        message = cut(clean(self._message), width - 2)
        room = width - cell_len(message) - 4
        runs: list[Run] = [(" ", palette.text), (message, palette.warning if self._alarm else palette.text)]
        hints: list[Run] = []
        used = 0
        for key, what in self._keys:
            needed = cell_len(key) + cell_len(what) + (3 if hints else 1)
            if used + needed > room:
                break
            if hints:
                hints.append(("  ", palette.text))
            hints += [(key, palette.key), (f" {what}", palette.muted)]
            used += needed
        return line([*runs, (" " * (width - used - cell_len(message) - 2), palette.text), *hints], width, palette.text)
