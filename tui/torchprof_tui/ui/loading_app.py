"""The app's part in loading: show the beginning of a large trace, then the whole trace in its place."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

from textual.app import App

from torchprof_tui.program.phase_log import note_phase
from torchprof_tui.ui.later_screens import create_start_screen, import_screens
from torchprof_tui.ui.start.loading_screen import LoadingScreen

if TYPE_CHECKING:
    from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen

POLL_SECONDS = 0.1
"""Seconds between looks whether the user is back at the lanes."""


class LoadingApp(App[None]):
    """An app that opens traces with a `LoadingScreen`. `failure`: why the first trace could not be opened.

    `early_lanes`: the explorer of the beginning of the trace that is being loaded, above the loading screen; else None.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failure: str | None = None
        self.early_lanes: ExplorerScreen | None = None
        self._loading: LoadingScreen | None = None  # the one below `early_lanes`

    async def show_trace(self, message: LoadingScreen.Opened) -> None:
        """Replace the screens by the explorer of the trace."""
        raise NotImplementedError

    def prepare_for_lanes(self) -> None:
        """Change settings of this process for the frames of the explorer, before it is created for the first time."""
        raise NotImplementedError

    async def on_loading_screen_lanes_found(self, message: LoadingScreen.LanesFound) -> None:
        early, below = self.early_lanes, self.screen
        if below is not (message.screen if early is None else early) or message.screen not in self.screen_stack:
            return  # something else is on the screen
        if early is not None and early.is_asking:
            return
        note_phase("early lanes", events=len(message.early.trace))
        if early is None:
            self.prepare_for_lanes()
        explorer_screen = importlib.import_module("torchprof_tui.ui.explorer.explorer_screen")
        screen: ExplorerScreen = explorer_screen.ExplorerScreen(message.early.trace, lambda: message.screen.stage)
        self.early_lanes, self._loading = screen, message.screen
        if early is None:
            await self.push_screen(screen)
            self.run_worker(asyncio.to_thread(import_screens), group="screens")
        else:
            carry_over(early, screen)
            await self.switch_screen(screen)

    async def on_loading_screen_opened(self, message: LoadingScreen.Opened) -> None:
        if self._is_in_use(message):
            self.notify("the whole trace is loaded: you see it when you are back at the lanes", markup=False)
            self.run_worker(self._show_when_free(message), group="open", exclusive=True)
        else:
            await self.show_trace(message)

    def _is_in_use(self, message: LoadingScreen.Opened) -> bool:
        """Return whether the beginning of this trace is on the screen, and the user is busy with it."""
        early = self.early_lanes
        if early is None or self._loading is None or self._loading.opener is not message.opener:
            return False
        return self.screen is not early or early.is_asking

    async def _show_when_free(self, message: LoadingScreen.Opened) -> None:
        loading = self._loading
        while self._is_in_use(message):
            await asyncio.sleep(POLL_SECONDS)
        if loading in self.screen_stack:
            await self.show_trace(message)
        else:  # the user has left it, or has opened another trace
            message.opener.close()

    async def on_loading_screen_left(self) -> None:
        if not self.is_shown("LoadingScreen"):
            return
        self.failure = None
        if len(self.screen_stack) > 2:
            await self.pop_screen()
        else:
            await self.switch_screen(create_start_screen())

    async def action_leave(self) -> None:
        """Leave a screen that lies above another one; quit from the lowest, and from a run that goes on."""
        if len(self.screen_stack) <= 2 or getattr(self.screen, "busy", False):
            self.exit()
        elif self.screen is self.early_lanes:
            await self.leave_early_lanes()
            await self.action_leave()
        elif isinstance(self.screen, LoadingScreen):
            await self.screen.action_give_up()
        else:
            self.screen.dismiss()

    def is_shown(self, name: str) -> bool:
        """Return whether the current screen is of the class of this name (which may not have been imported)."""
        return any(base.__name__ == name for base in type(self.screen).__mro__)

    def take_early_lanes(self, message: LoadingScreen.Opened | None = None) -> ExplorerScreen | None:
        """Return the explorer of the beginning, of the trace that was opened, and forget it; None without one."""
        early, loading = self.early_lanes, self._loading
        self.early_lanes = self._loading = None
        return early if message is None or (loading is not None and loading.opener is message.opener) else None

    async def leave_early_lanes(self) -> LoadingScreen | None:
        """Go back to the loading screen below the beginning of a trace. Returns it, None where there is none."""
        loading = self._loading
        if self.take_early_lanes() is None or loading not in self.screen_stack:
            return None
        with self.batch_update():
            while self.screen is not loading:
                await self.pop_screen()
        return loading

    async def on_loading_cancelled(self) -> None:
        loading = await self.leave_early_lanes()
        if loading is not None:
            await loading.action_give_up()


def carry_over(early: ExplorerScreen, screen: ExplorerScreen) -> None:
    """Show what one explorer shows on another, of more of the trace, before that is on the screen."""
    importlib.import_module("torchprof_tui.ui.explorer.view_transfer").transfer_view(early, screen)
