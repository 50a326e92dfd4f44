"""The app's part in help and commands: `?` on every screen, and a palette command for every key."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.command import CommandPalette

from torchprof_tui.ui.common.option_list_pages import ignore_pages_of_hidden_lists
from torchprof_tui.ui.common.screen_commands import ScreenCommands

ignore_pages_of_hidden_lists()


class HelpApp(App[None]):
    """An app whose screens all have the same help (`?`, F1) and a command palette with all their keys (ctrl+p).

    A screen may have an attribute `help_topic`, the name of its guide, and `KEYLESS_COMMANDS`.
    """

    COMMANDS = App.COMMANDS | {ScreenCommands}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "help", id="program.help", tooltip="help: keys, what is on screen, and words"),
        Binding("f1", "help", "help", id="program.help-f1", show=False, priority=True),
    ]

    def action_command_palette(self) -> None:
        """Show the command palette, unless it is open below the help: textual raises DuplicateIds then."""
        if any(isinstance(screen, CommandPalette) for screen in self.screen_stack):
            self.notify("the command palette is open already: esc closes the help above it", timeout=3, markup=False)
        else:
            super().action_command_palette()

    async def action_help(self) -> None:
        """Show the help of the current screen; on the help itself, close it."""
        # deferred: imported after the first frame
        from torchprof_tui.ui.common.help_screen import HelpScreen

        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss()
        else:
            described = [screen for screen in self.screen_stack if not isinstance(screen, CommandPalette)]
            self.push_screen(HelpScreen.for_screen(described[-1]))  # the palette has no keys of its own
