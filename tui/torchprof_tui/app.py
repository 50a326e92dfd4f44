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

from torchprof_tui.trace.loading.open_trace import SingleTraceOpener
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.storage.disk_cache import prune_cache
from torchprof_tui.ui.common.themes import THEMES
from torchprof_tui.ui.start.loading_screen import LoadingScreen

if TYPE_CHECKING:
    from torchprof_tui.runs.recording_request import RecordingRequest
    from torchprof_tui.trace.loading.resolve import AnyOpener
    from torchprof_tui.trace.model.trace import Trace
    from torchprof_tui.trace.specs.address import ListedTrace
    from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
    from torchprof_tui.ui.record.record_screen import RecordScreen
    from torchprof_tui.ui.record.recording_screen import RecordingScreen
    from torchprof_tui.ui.start.start_screen import StartScreen

YOUNG_OBJECT_LIMIT = 2_000
"""New objects after which a frame is followed by a small collection: a painted frame makes some thousands in cycles,
a moved cursor hardly any."""

SWITCH_INTERVAL_SECONDS = 0.0002
"""For how long a thread that finds something out keeps the interpreter from the frame that waits for it. Python's own
5 ms are as long as most of a frame takes."""

FRAME_WRITE_SECONDS = 0.005
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
        opening: AnyOpener | None = None,
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
        self.lanes_ready = asyncio.Event()  # set when lanes are on screen, or never will be
        self._initial_opening = opening
        self._current_opening: AnyOpener | None = None
        self._cache = cache
        self._start_position = at
        self._has_replaced_trace = False  # whether there was a trace before the one that is shown
        self._debug_errors = debug
        self._switch_interval = sys.getswitchinterval()
        self._collection_scheduled = False
        self._original_environment = dict(os.environ)  # what a run is to find: we set some of it for ourselves

    def on_mount(self) -> None:
        # Over the app's own empty screen, which always stays at the bottom: a screen that was not pushed cannot be
        # switched away from.
        self.push_screen(
            _create_start_screen()
            if self._initial_opening is None
            else self._create_loading_screen(self._initial_opening)
        )
        # A closed ssh connection or a kill must still put the terminal and our temporary folders in order.
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGHUP, signal.SIGTERM):
            if not self.is_headless:
                loop.add_signal_handler(sign, self.exit)

    # -- opening -------------------------------------------------------------------------------------------

    def action_open_another(self) -> None:
        if not self._check_busy() and self.screen.TITLE != "start":
            self.push_screen(_create_start_screen(can_go_back=self._current_opening is not None))

    def on_start_screen_chosen(self, message: StartScreen.Chosen) -> None:
        self._open(message.spec, *message.other_specs)

    def on_start_screen_left(self) -> None:
        self.pop_screen()

    @work(exclusive=True, group="open")
    async def _open(self, *specs: str) -> None:
        try:
            opening = await asyncio.to_thread(self._start_opening, specs)
        except (OSError, ValueError) as error:
            from torchprof_tui.trace.core.errors import format_error

            self.notify(format_error(error), title="cannot be opened", severity="error", timeout=8, markup=False)
            return
        await self.push_screen(self._create_loading_screen(opening))

    def _start_opening(self, specs: tuple[str, ...]) -> AnyOpener:
        opening = resolve_specs(specs).create_opener(cache=self._cache, defer_blocks=True)
        opening.start()
        return opening

    def _create_loading_screen(self, opening: AnyOpener) -> LoadingScreen:
        return LoadingScreen(opening, prepare=_import_explorer)

    async def on_loading_screen_opened(self, message: LoadingScreen.Opened) -> None:
        before, self._current_opening = self._current_opening, message.opening
        self.failure = None
        if before is None:
            gc.freeze()  # what lives now is the program, which the collector need never look at
        from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen

        screen = ExplorerScreen(message.trace)
        with self.batch_update():
            while len(self.screen_stack) > 2:
                await self.pop_screen()
            await self.switch_screen(screen)
        self._has_replaced_trace = before is not None
        if before is not None:
            before.close()
        screen.call_after_refresh(self._finish_startup, screen)
        self.run_worker(asyncio.to_thread(_update_recent_and_prune, message.opening.spec), group="house")
        self.run_worker(asyncio.to_thread(_import_screens), group="screens")
        if isinstance(message.opening, SingleTraceOpener):
            self.run_worker(asyncio.to_thread(_finish_opening, message.opening, message.trace), group="finish")

    async def on_loading_screen_folder_found(self, message: LoadingScreen.FolderFound) -> None:
        await self.switch_screen(
            _create_start_screen(self._current_opening is not None, (message.name, message.traces))
        )
        self.lanes_ready.set()

    def on_loading_screen_failed(self, message: LoadingScreen.Failed) -> None:
        if self._current_opening is None:
            self.failure = message.line
        if self._debug_errors:
            self._write_log(message.detail)
        self.lanes_ready.set()

    async def on_loading_screen_left(self) -> None:
        self.failure = None
        if len(self.screen_stack) > 2:
            await self.pop_screen()
        else:
            await self.switch_screen(_create_start_screen())

    # -- recording -----------------------------------------------------------------------------------------

    def _check_busy(self) -> bool:
        """Whether a run goes on, which must not be left by the way; then it is said how."""
        busy: bool = getattr(self.screen, "busy", False)
        if busy:
            self.notify("a run goes on: ctrl+c stops it and keeps what it recorded", markup=False)
        return busy

    def action_record(self) -> None:
        from torchprof_tui.ui.record.record_screen import RecordScreen
        from torchprof_tui.ui.record.recording_screen import RecordingScreen

        if self._check_busy() or isinstance(self.screen, (RecordScreen, LoadingScreen)):
            return
        if isinstance(self.screen, RecordingScreen):
            self.switch_screen(RecordScreen(self.screen.request, self.screen.cwd))
        else:
            self.push_screen(RecordScreen())

    def action_again(self) -> None:
        """On the lanes of a trace that was recorded here. It stays below, until the new one is there."""
        if self._current_opening is None or self.screen.TITLE != "explorer":
            return
        from torchprof_tui.runs.history import read_request

        asked = read_request(self._current_opening.path)
        if asked is None:
            self.notify("nothing says how this trace was recorded; R records a run", markup=False)
        else:
            self.push_screen(self._create_recording_screen(*asked))

    def on_start_screen_record_asked(self) -> None:
        self.action_record()

    def on_record_screen_start_requested(self, message: RecordScreen.StartRequested) -> None:
        self.switch_screen(self._create_recording_screen(message.request, message.cwd))

    def on_recording_screen_restart_requested(self, message: RecordingScreen.RestartRequested) -> None:
        self.switch_screen(self._create_recording_screen(message.request, message.cwd))

    def _create_recording_screen(self, request: RecordingRequest, cwd: str) -> RecordingScreen:
        from torchprof_tui.ui.record.recording_screen import RecordingScreen

        return RecordingScreen(request, cwd, self._original_environment)

    def on_recording_screen_recorded(self, message: RecordingScreen.Recorded) -> None:
        if self._current_opening is not None:  # whose lanes lie below, until the new ones are there
            self.notify("the trace before this one is kept: o lists it, below this one", markup=False)
        self._open(*message.traces)

    def on_record_screen_left(self) -> None:
        self.pop_screen()

    def on_recording_screen_left(self) -> None:
        self.pop_screen()

    # -- garbage -------------------------------------------------------------------------------------------

    def _finish_startup(self, screen: ExplorerScreen) -> None:
        """Lanes are on screen. From here on garbage is collected where it disturbs nobody: `post_display_hook`."""
        if self._start_position is not None:
            from torchprof_tui.ui.common.messages import PromptClosed

            problem = screen.view_state.go_to(self._start_position.lower().removeprefix("profiler"))
            self._start_position = None
            if problem:
                self.notify(problem, title="--at", severity="warning", markup=False)
            screen.post_message(PromptClosed("go to"))  # and it shows where it is now
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        gc.disable()
        if self._has_replaced_trace:
            gc.collect()  # the trace before this one may go; a tenth of what it takes with the program itself
        self.lanes_ready.set()

    def on_unmount(self) -> None:
        """Threads that wait for a child of what is on screen would keep us. Without a terminal the process goes on
        after us: give it its collector back, and its threads their time."""
        if self._current_opening is not None:
            self._current_opening.close()
        if self.is_headless:
            sys.setswitchinterval(self._switch_interval)
            gc.unfreeze()
            gc.enable()

    def post_display_hook(self) -> None:
        """After each frame. Painted strips are cycles; left to itself the collector takes its time in mid-frame. The
        frame is only handed over here: the thread that writes it would wait for a collection right now."""
        if not gc.isenabled() and gc.get_count()[0] > YOUNG_OBJECT_LIMIT and not self._collection_scheduled:
            self._collection_scheduled = True
            asyncio.get_running_loop().call_later(FRAME_WRITE_SECONDS, self._collect_young)

    def _collect_young(self) -> None:
        self._collection_scheduled = False
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
        self.lanes_ready.set()  # whoever waits for lanes waits no longer; the error reaches them when the app ends

    def _print_error_renderables(self) -> None:
        """A bug of ours: one line on the terminal, and the traceback where it can be sent from."""
        if self._debug_errors:
            super()._print_error_renderables()
            return
        if self._exit_renderables and self._exception is not None:
            error: BaseException = self._exception
            if isinstance(error, WorkerFailed):  # which says that a worker failed, but not where
                error = error.error
            log = self._write_log("".join(traceback.format_exception(error)))
            name = type(error).__name__
            print(f"torchprof-tui: stopped by a bug of its own ({name}); the details are in {log}", file=sys.stderr)
        self._exit_renderables.clear()

    def _write_log(self, text: str) -> str:
        with tempfile.NamedTemporaryFile("w", prefix="torchprof-tui-", suffix=".log", delete=False) as log:
            log.write(text)
        return log.name


def _create_start_screen(
    can_go_back: bool = False, remote_folder: tuple[str, list[ListedTrace]] | None = None
) -> StartScreen:
    from torchprof_tui.ui.start.start_screen import (
        StartScreen,  # which a program that is started with a trace does not begin with
    )

    return StartScreen(can_go_back=can_go_back, remote_folder=remote_folder)


def _finish_opening(opening: SingleTraceOpener, trace: Trace) -> None:
    with contextlib.suppress(OSError):  # no further process: args come more slowly
        opening.split_into_blocks(trace)


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


def _update_recent_and_prune(spec: str) -> None:
    """What nobody waits for, and what a slow home folder may take its time for."""
    if spec:
        from torchprof_tui.ui.start.recent_traces import add_recent_trace

        add_recent_trace(spec)
    prune_cache()


def _import_explorer() -> None:
    """While the child decodes: numpy and the explorer's modules."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    importlib.import_module("torchprof_tui.ui.explorer.explorer_screen")
