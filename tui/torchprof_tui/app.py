"""The App: which screen is on, the theme, the keys that work everywhere, and when garbage is collected.

A trace replaces the start screen; `o` puts the start screen over it. What is imported here is imported before the
first frame, so numpy and the explorer are not: they come while the trace is on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.worker import WorkerFailed

from torchprof_tui.trace.loading.open_trace import Opening
from torchprof_tui.trace.loading.resolve import named
from torchprof_tui.trace.storage.disk_cache import prune
from torchprof_tui.ui.common.themes import THEMES
from torchprof_tui.ui.start.loading_screen import LoadingScreen

if TYPE_CHECKING:
    from torchprof_tui.runs.recording_request import Request
    from torchprof_tui.trace.loading.resolve import AnyOpening
    from torchprof_tui.trace.model.trace import Trace
    from torchprof_tui.trace.specs.address import Listed
    from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
    from torchprof_tui.ui.record.record_screen import RunScreen
    from torchprof_tui.ui.record.recording_screen import RunningScreen
    from torchprof_tui.ui.start.start_screen import StartScreen

YOUNG_OBJECTS = 2_000
"""New objects after which a frame is followed by a small collection: a painted frame makes some thousands in cycles,
a moved cursor hardly any."""

SWITCH_SECONDS = 0.0002
"""For how long a thread that finds something out keeps the interpreter from the frame that waits for it. Python's own
5 ms are as long as most of a frame takes."""

WRITTEN_SECONDS = 0.005
"""After which a frame that was handed over is on its way to the terminal."""


class TorchprofApp(App[None]):
    """`opening`: the trace to begin with, already started. `failure`: why it could not be opened, one line."""

    TITLE = "torchprof-tui"
    CSS_PATH = ["ui/start/loading_screen.tcss", "ui/explorer/explorer_screen.tcss"]
    """Of the screens that somebody waits for. Read with textual's own; for a screen's, when it is first shown, textual
    reads all that it has read once more."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit", id="program.quit", tooltip="quit"),
        Binding("ctrl+c", "quit", "quit", show=False, system=True),
        Binding("o", "open_another", "open", id="program.open", tooltip="open another trace", show=False),
        Binding("R", "record", "record", id="program.record", tooltip="record a run, and open its trace", show=False),
        Binding("r", "again", "run again", id="program.again", tooltip="run again what this trace is of", show=False),
    ]

    def __init__(
        self,
        opening: AnyOpening | None = None,
        *,
        theme: str = "dark",
        cache: bool = True,
        at: str | None = None,
        debug: bool = False,
    ) -> None:
        super().__init__()
        for each in THEMES.values():
            self.register_theme(each)
        self.theme = THEMES[theme].name
        self.failure: str | None = None
        self.explored = asyncio.Event()  # set when lanes are on screen, or never will be
        self._first = opening
        self._shown: AnyOpening | None = None
        self._cache = cache
        self._at = at
        self._replaced = False  # whether there was a trace before the one that is shown
        self._debug_errors = debug
        self._switch_interval = sys.getswitchinterval()
        self._collecting = False
        self._environment = dict(os.environ)  # what a run is to find: we set some of it for ourselves

    def on_mount(self) -> None:
        # Over the app's own empty screen, which always stays at the bottom: a screen that was not pushed cannot be
        # switched away from.
        self.push_screen(_start_screen() if self._first is None else self._loading(self._first))
        # A closed ssh connection or a kill must still put the terminal and our temporary folders in order.
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGHUP, signal.SIGTERM):
            if not self.is_headless:
                loop.add_signal_handler(sign, self.exit)

    # -- opening -------------------------------------------------------------------------------------------

    def action_open_another(self) -> None:
        if not self._busy() and self.screen.TITLE != "start":
            self.push_screen(_start_screen(over=self._shown is not None))

    def on_start_screen_chosen(self, message: StartScreen.Chosen) -> None:
        self._open(message.spec, *message.more)

    def on_start_screen_left(self) -> None:
        self.pop_screen()

    @work(exclusive=True, group="open")
    async def _open(self, *specs: str) -> None:
        try:
            opening = await asyncio.to_thread(self._started, specs)
        except (OSError, ValueError) as error:
            from torchprof_tui.trace.core.errors import describe

            self.notify(describe(error), title="cannot be opened", severity="error", timeout=8, markup=False)
            return
        await self.push_screen(self._loading(opening))

    def _started(self, specs: tuple[str, ...]) -> AnyOpening:
        opening = named(specs).opening(cache=self._cache, late=True)
        opening.start()
        return opening

    def _loading(self, opening: AnyOpening) -> LoadingScreen:
        return LoadingScreen(opening, prepare=_import_explorer)

    async def on_loading_screen_opened(self, message: LoadingScreen.Opened) -> None:
        before, self._shown = self._shown, message.opening
        self.failure = None
        if before is None:
            gc.freeze()  # what lives now is the program, which the collector need never look at
        from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen

        screen = ExplorerScreen(message.trace)
        with self.batch_update():
            while len(self.screen_stack) > 2:
                await self.pop_screen()
            await self.switch_screen(screen)
        self._replaced = before is not None
        if before is not None:
            before.close()
        screen.call_after_refresh(self._settle, screen)
        self.run_worker(asyncio.to_thread(_keep_house, message.opening.spec), group="house")
        self.run_worker(asyncio.to_thread(_import_screens), group="screens")
        if isinstance(message.opening, Opening):
            self.run_worker(asyncio.to_thread(_finish, message.opening, message.trace), group="finish")

    async def on_loading_screen_folder_found(self, message: LoadingScreen.FolderFound) -> None:
        await self.switch_screen(_start_screen(self._shown is not None, (message.name, message.found)))
        self.explored.set()

    def on_loading_screen_failed(self, message: LoadingScreen.Failed) -> None:
        if self._shown is None:
            self.failure = message.line
        if self._debug_errors:
            self._keep_log(message.detail)
        self.explored.set()

    async def on_loading_screen_left(self) -> None:
        self.failure = None
        if len(self.screen_stack) > 2:
            await self.pop_screen()
        else:
            await self.switch_screen(_start_screen())

    # -- recording -----------------------------------------------------------------------------------------

    def _busy(self) -> bool:
        """Whether a run goes on, which must not be left by the way; then it is said how."""
        busy: bool = getattr(self.screen, "busy", False)
        if busy:
            self.notify("a run goes on: ctrl+c stops it and keeps what it recorded", markup=False)
        return busy

    def action_record(self) -> None:
        from torchprof_tui.ui.record.record_screen import RunScreen
        from torchprof_tui.ui.record.recording_screen import RunningScreen

        if self._busy() or isinstance(self.screen, (RunScreen, LoadingScreen)):
            return
        if isinstance(self.screen, RunningScreen):
            self.switch_screen(RunScreen(self.screen.request, self.screen.cwd))
        else:
            self.push_screen(RunScreen())

    def action_again(self) -> None:
        """On the lanes of a trace that was recorded here. It stays below, until the new one is there."""
        if self._shown is None or self.screen.TITLE != "explorer":
            return
        from torchprof_tui.runs.history import asked_for

        asked = asked_for(self._shown.path)
        if asked is None:
            self.notify("nothing says how this trace was recorded; R records a run", markup=False)
        else:
            self.push_screen(self._screen_of(*asked))

    def on_start_screen_record_asked(self) -> None:
        self.action_record()

    def on_run_screen_asked(self, message: RunScreen.Asked) -> None:
        self.switch_screen(self._screen_of(message.request, message.cwd))

    def on_running_screen_again(self, message: RunningScreen.Again) -> None:
        self.switch_screen(self._screen_of(message.request, message.cwd))

    def _screen_of(self, request: Request, cwd: str) -> RunningScreen:
        from torchprof_tui.ui.record.recording_screen import RunningScreen

        return RunningScreen(request, cwd, self._environment)

    def on_running_screen_recorded(self, message: RunningScreen.Recorded) -> None:
        if self._shown is not None:  # whose lanes lie below, until the new ones are there
            self.notify("the trace before this one is kept: o lists it, below this one", markup=False)
        self._open(*message.traces)

    def on_run_screen_left(self) -> None:
        self.pop_screen()

    def on_running_screen_left(self) -> None:
        self.pop_screen()

    # -- garbage -------------------------------------------------------------------------------------------

    def _settle(self, screen: ExplorerScreen) -> None:
        """Lanes are on screen. From here on garbage is collected where it disturbs nobody: `post_display_hook`."""
        if self._at is not None:
            from torchprof_tui.ui.common.messages import PromptClosed

            problem = screen.walk.go_to(self._at.lower().removeprefix("profiler"))
            self._at = None
            if problem:
                self.notify(problem, title="--at", severity="warning", markup=False)
            screen.post_message(PromptClosed("go to"))  # and it shows where it is now
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.disable()
        if self._replaced:
            gc.collect()  # the trace before this one may go; a tenth of what it takes with the program itself
        self.explored.set()

    def on_unmount(self) -> None:
        """Threads that wait for a child of what is on screen would keep us. Without a terminal the process goes on
        after us: give it its collector back, and its threads their time."""
        if self._shown is not None:
            self._shown.close()
        if self.is_headless:
            sys.setswitchinterval(self._switch_interval)
            gc.unfreeze()
            gc.enable()

    def post_display_hook(self) -> None:
        """After each frame. Painted strips are cycles; left to itself the collector takes its time in mid-frame. The
        frame is only handed over here: the thread that writes it would wait for a collection right now."""
        if not gc.isenabled() and gc.get_count()[0] > YOUNG_OBJECTS and not self._collecting:
            self._collecting = True
            asyncio.get_running_loop().call_later(WRITTEN_SECONDS, self._collect_young)

    def _collect_young(self) -> None:
        self._collecting = False
        if not gc.isenabled():
            gc.collect(1)

    # -- the rest ------------------------------------------------------------------------------------------

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        yield SystemCommand("Open another trace", "recent ones, this folder's, samples: o", self.action_open_another)
        yield SystemCommand("Record a run", "a workload, or a command of your own: R", self.action_record)
        other = "light" if self.current_theme.dark else "dark"
        yield SystemCommand(f"{other.capitalize()} theme", "change all colours", partial(self._use_theme, other))
        yield SystemCommand("Quit", "key: q", self.action_quit)

    def _use_theme(self, name: str) -> None:
        self.theme = THEMES[name].name

    def _handle_exception(self, error: Exception) -> None:
        super()._handle_exception(error)
        self.explored.set()  # whoever waits for lanes waits no longer; the error reaches them when the app ends

    def _print_error_renderables(self) -> None:
        """A bug of ours: one line on the terminal, and the traceback where it can be sent from."""
        if self._debug_errors:
            super()._print_error_renderables()
            return
        if self._exit_renderables and self._exception is not None:
            error: BaseException = self._exception
            if isinstance(error, WorkerFailed):  # which says that a worker failed, but not where
                error = error.error
            log = self._keep_log("".join(traceback.format_exception(error)))
            name = type(error).__name__
            print(f"torchprof-tui: stopped by a bug of its own ({name}); the details are in {log}", file=sys.stderr)
        self._exit_renderables.clear()

    def _keep_log(self, text: str) -> str:
        with tempfile.NamedTemporaryFile("w", prefix="torchprof-tui-", suffix=".log", delete=False) as log:
            log.write(text)
        return log.name


def _start_screen(over: bool = False, elsewhere: tuple[str, list[Listed]] | None = None) -> StartScreen:
    from torchprof_tui.ui.start.start_screen import (
        StartScreen,  # which a program that is started with a trace does not begin with
    )

    return StartScreen(over=over, elsewhere=elsewhere)


def _finish(opening: Opening, trace: Trace) -> None:
    with contextlib.suppress(OSError):  # no further process: args come more slowly
        opening.finish(trace)


def _import_screens() -> None:
    """Where a key of the explorer leads to."""
    for screen in (
        "table.table",
        "tree.tree",
        "guess.guess",
        "common.help",
        "start.start",
        "record.record",
        "record.recording",
    ):
        importlib.import_module(f"torchprof_tui.ui.{screen}_screen")


def _keep_house(spec: str) -> None:
    """What nobody waits for, and what a slow home folder may take its time for."""
    if spec:
        from torchprof_tui.ui.start.recent_traces import remember

        remember(spec)
    prune()


def _import_explorer() -> None:
    """While the child decodes: numpy and the explorer's modules."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    importlib.import_module("torchprof_tui.ui.explorer.explorer_screen")
