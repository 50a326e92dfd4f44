"""Commands of the current screen in the command palette: one for each key, and those too rare for a key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider

from torchprof_tui.ui.common.help.key_listing import KeyHelp, group_by_section


class ScreenCommands(Provider):
    """Provide a command for each active binding of the screen, of its focused widget and of the app."""

    async def discover(self) -> Hits:
        for text, key in self._commands():
            yield DiscoveryHit(text, self._runner(key), help=_describe_keys(key))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for text, key in self._commands():
            score = matcher.match(text)
            if score > 0:
                yield Hit(score, matcher.highlight(text), self._runner(key), help=_describe_keys(key))

    def _commands(self) -> Iterator[tuple[str, KeyHelp]]:
        """Yield (text, key) of each command."""
        for title, keys in group_by_section(self.screen.active_bindings.values()).items():
            for key in keys:
                yield f"{title}: {key.description}", key
        for key in getattr(self.screen, "KEYLESS_COMMANDS", ()):
            yield key.description, key

    def _runner(self, key: KeyHelp) -> Callable[[], Awaitable[bool]]:
        """Return what runs the action: an app's key acts on the app, not on the screen."""
        return partial(self.app.run_action, key.action, self.screen if key.namespace is None else key.namespace)


def _describe_keys(key: KeyHelp) -> str:
    return f"key: {key.keys}" if key.keys else "no key"
