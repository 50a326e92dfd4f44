"""The explorer's commands in the command palette: one for each key, and those too rare for a key."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from torchprof_tui.ui.explorer.keys import KeyHelp, group_by_section

KEYLESS_COMMANDS = (
    KeyHelp("", "fold all lanes", "fold_all(True)"),
    KeyHelp("", "unfold all lanes", "fold_all(False)"),
)


class ExplorerCommands(Provider):
    """Provide a command for each active binding of the screen, so that none is missing."""

    async def discover(self) -> Hits:
        for text, keys, action in self._commands():
            yield DiscoveryHit(text, partial(self.screen.run_action, action), help=keys)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for text, keys, action in self._commands():
            score = matcher.match(text)
            if score > 0:
                yield Hit(score, matcher.highlight(text), partial(self.screen.run_action, action), help=keys)

    def _commands(self) -> Iterator[tuple[str, str, str]]:
        for title, keys in group_by_section(self.screen.active_bindings.values()).items():
            for key in keys:
                yield f"{title}: {key.description}", f"key: {key.keys}", key.action
        for key in KEYLESS_COMMANDS:
            yield f"Lanes: {key.description}", "no key", key.action
