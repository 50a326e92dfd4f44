"""The app's part in help and commands: `?` on every screen, and a palette command for every key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider

from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.bindings import KeyHelp, group_by_section
from torchprof_tui.ui.common.guarded_screen import GuardedCommandPalette, GuardingApp, repair_textual


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
        for title, listed in group_by_section(self.screen.active_bindings.values()).items():
            for key in listed:
                yield f"{title}: {key.description}", key
        for key in getattr(self.screen, "KEYLESS_COMMANDS", ()):
            yield key.description, key

    def _runner(self, key: KeyHelp) -> Callable[[], Awaitable[bool]]:
        """Return what runs the action: an app's key acts on the app, not on the screen."""
        return partial(self.app.run_action, key.action, self.screen if key.namespace is None else key.namespace)


def _describe_keys(key: KeyHelp) -> str:
    return f"key: {key.keys}" if key.keys else "no key"


repair_textual()


class HelpApp(GuardingApp):
    """An app whose screens all have the same help (`?`, F1) and a command palette with all their keys (ctrl+p).

    A screen may have an attribute `help_topic`, its guide or the name of it, `KEYLESS_COMMANDS` and `KEY_SECTIONS`.
    """

    COMMANDS = GuardingApp.COMMANDS | {ScreenCommands}
    BINDINGS = keys.EVERYWHERE

    def action_command_palette(self) -> None:
        """Show the command palette, unless it is open below the help."""
        if any(isinstance(screen, CommandPalette) for screen in self.screen_stack):
            self.notify("the command palette is open already: esc closes the help above it", timeout=3, markup=False)
        else:
            self.push_screen(GuardedCommandPalette())

    async def action_help(self) -> None:
        """Show the help of the current screen; on the help itself, close it."""
        # deferred: imported after the first frame
        from torchprof_tui.ui.common.help_screen import HelpScreen

        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss()
        else:
            described = [screen for screen in self.screen_stack if not isinstance(screen, CommandPalette)]
            self.push_screen(HelpScreen.for_screen(described[-1]))  # the palette has no keys of its own
