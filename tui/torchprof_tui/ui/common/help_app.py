"""The app's part in help and commands: `?` on every screen, and a palette command for every key."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

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

    async def action_help(self) -> None:
        """Show the help of the current screen; on the help itself, close it."""
        # deferred: imported after the first frame
        from torchprof_tui.ui.common.help_screen import HelpScreen

        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss()
        else:
            self.push_screen(HelpScreen.for_screen(self.screen))
