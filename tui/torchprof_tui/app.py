"""The Textual app: the screens, the theme, and the global keys.

A trace replaces the start screen; `o` opens the start screen on top of it. What is imported here is imported before the
first frame, so numpy and the explorer are not: they are imported while the trace is being loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import work
from textual.app import SystemCommand
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen
from textual.worker import WorkerFailed

from torchprof_tui.program.config_file import summarize_problems
from torchprof_tui.program.phase_log import note_phase
from torchprof_tui.trace.core.errors import DAMAGED_CACHE_MESSAGE, UnreadableFileError, format_error
from torchprof_tui.trace.core.process_state import use_switch_interval
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.compare_asked import CompareAsked, RunAsked, TraceAsked, TrialsAsked
from torchprof_tui.ui.common.garbage_collection import GarbageCollectingApp
from torchprof_tui.ui.common.ordered_keys import HelpApp, OrderedKeysApp
from torchprof_tui.ui.common.screen_picture import draw_screen, write_new_pictures
from torchprof_tui.ui.common.screen_styles import THEMES, ScreenStylesApp
from torchprof_tui.ui.common.terminal_driver import TerminalDriver
from torchprof_tui.ui.later_screens import (
    create_opening_screen,
    create_start_screen,
    create_trials_screen,
    import_attribute,
    import_screens,
    list_tryable_findings,
    start_opener,
    update_recent_and_prune,
)

if TYPE_CHECKING:
    from torchprof_tui.learn.case_file import Case
    from torchprof_tui.program.settings import Configuration
    from torchprof_tui.runs.recording_request import RecordingRequest
    from torchprof_tui.trace.loading.opener import TraceOpener
    from torchprof_tui.trace.model.trace import Trace
    from torchprof_tui.trace.sources.ssh_connections import SshConnections
    from torchprof_tui.ui.common.comparison_request import ComparisonRequest
    from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
    from torchprof_tui.ui.explorer.lesson_panel import LessonDriver
    from torchprof_tui.ui.learn.learn_screen import LearnScreen
    from torchprof_tui.ui.record.record_screen import RecordScreen
    from torchprof_tui.ui.record.recording_screen import RecordingScreen
    from torchprof_tui.ui.start.loading_screen import LoadingScreen

CREATE_DIFF = "diff.diff_screen:create_diff_screen"

POLL_SECONDS = 0.1  # seconds between looks whether the user is back at the lanes

SETTLE_SECONDS = 0.1
"""Seconds after which a screen is painted without the prompt or the palette that asked for its picture."""

SWITCH_INTERVAL_SECONDS = 0.0002
"""Seconds after which a background thread, also one that imports modules, must release the GIL for the frame that is
being painted. Python's default of 5 ms is as long as most of a frame takes."""


class TorchprofApp(OrderedKeysApp, HelpApp, GarbageCollectingApp, ScreenStylesApp):
    """The app. `opener`: opens the first trace, already started. `at`: the time or step to show first.

    `learn`: list the cases, or begin `case` on the trace that is opened, None for questions about any trace.
    `comparison`: what to compare it with. `connections`: those of the session to ssh hosts. `configuration`: the
    user's file. `failure`: why the first trace could not be opened, one line.
    `lanes_ready` is set when lanes are on screen, or when it is certain that there will be none.
    `early_lanes`: the explorer of the beginning of the trace that is being loaded, above the loading screen; else None.
    `last_compared`: the name that the prompt suggests. `earlier_recording`: the trace before the last recording, which
    is A where it is compared. `kept_screens`: those of the stack that stay when a trace is opened, the last of which it
    replaces.
    """

    TITLE = "torchprof-tui"
    kept_screens = 2
    CSS_PATH = ["ui/start/loading_screen.tcss", "ui/explorer/explorer_screen.tcss"]
    """The style sheets of the first two screens, parsed with textual's own: for a screen's own CSS_PATH, textual parses
    every style sheet once more when the screen is first shown."""
    BINDINGS = keys.PROGRAM
    KEYLESS_COMMANDS = keys.PROGRAM_COMMANDS

    def __init__(
        self,
        opener: TraceOpener | None = None,
        *,
        theme: str = "dark",
        cache: bool = True,
        at: str | None = None,
        debug: bool = False,
        connections: SshConnections | None = None,
        comparison: ComparisonRequest | None = None,
        configuration: Configuration | None = None,
        learn: bool = False,
        case: Case | None = None,
    ) -> None:
        super().__init__()
        self.lesson: LessonDriver | None = None  # the last case that was begun
        self._pending_case = (case,) if learn and opener is not None else ()
        self._lists_cases = learn and opener is None
        self.failure: str | None = None  # why the first trace could not be opened
        self.early_lanes: ExplorerScreen | None = None
        self._loading: LoadingScreen | None = None  # the one below `early_lanes`
        self.last_compared = ""
        self.earlier_recording = ""
        self.pending_comparison = comparison  # of the next trace, once it is on screen
        for app_theme in THEMES.values():
            self.register_theme(app_theme)
        self.theme = THEMES[theme].name
        self.lanes_ready = asyncio.Event()
        self._initial_opener = opener
        self._current_opener: TraceOpener | None = None
        self._use_cache = cache
        self._has_reported_cache = False
        self._connections = connections
        self._start_position = at
        self._debug_errors = debug
        self._crash_details: tuple[str, ...] = ()
        self._switch_interval = contextlib.ExitStack()  # restored on unmount
        self._configuration = configuration
        if configuration is not None:
            self.remapped_keys = dict(configuration.keys)
            self.set_keymap(self.remapped_keys)
        self._original_environment = dict(os.environ)  # for recordings: the app changes some of it for itself

    def on_mount(self) -> None:
        self._switch_interval.enter_context(use_switch_interval(SWITCH_INTERVAL_SECONDS))
        # The app's own empty screen always stays below: only a screen that was pushed can be switched.
        self.push_screen(self._create_first_screen())
        if self._lists_cases:
            self.push_screen(import_attribute("learn.learn_screen:LearnScreen")())
        note_phase("first screen", columns=self.size.width, lines=self.size.height)
        if self._configuration is not None:
            self._report_configuration(self._configuration)
        # Where the ssh session is closed or the app killed, restore the terminal and remove temporary folders.
        loop = asyncio.get_running_loop()
        if not self.is_headless:  # the exit status as shells report it: 128 + the number of the signal
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, partial(self.exit, return_code=128 + number))

    def _create_first_screen(self) -> Screen[Any]:
        opener = self._initial_opener
        return create_start_screen() if opener is None else create_opening_screen(opener, self._settle_snapshot)

    def _settle_snapshot(self, problem: str) -> None:
        if len(self.screen_stack) <= 2:  # above another screen it is not the file that the program was started with
            self.failure = problem or None
        self.lanes_ready.set()

    def get_driver_class(self) -> type[Driver]:
        driver_class = super().get_driver_class()
        return TerminalDriver if driver_class is LinuxDriver else driver_class

    @work(group="configuration")
    async def _report_configuration(self, configuration: Configuration) -> None:
        """Notify what is wrong with the configuration file; find conflicts of keys when all screens are imported."""
        lines = [problem.line for problem in configuration.problems]
        if configuration.keys:
            if self._initial_opener is not None:
                await self.lanes_ready.wait()
            check_keymap = await asyncio.to_thread(import_attribute, "all_bindings:check_keymap")
            lines += await asyncio.to_thread(check_keymap, type(self), configuration.keys)
        if lines:
            text = summarize_problems(lines)
            self.notify(text, title="configuration", severity="warning", timeout=10, markup=False)

    # -- opening a trace -------------------------------------------------------------------------------------------

    def action_open_another(self) -> None:
        if not self._check_busy() and self.screen.TITLE != "start":
            self.push_screen(create_start_screen(can_go_back=self._current_opener is not None))

    async def action_go_anywhere(self) -> None:
        """Ask where to go: on this screen if it has lanes below it, else on the lanes; without any, for a trace."""
        if self._check_busy():
            return
        lanes = next((screen for screen in self.screen_stack if screen.TITLE == "explorer"), None)
        if lanes is None:
            self.action_open_another()
            self.screen.call_later(self.screen.run_action, "type_path('')")
            return
        if not hasattr(self.screen, "action_go_to"):
            while self.screen is not lanes:
                await self.pop_screen()
        await self.screen.run_action("go_to")

    def list_known_traces(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Return (name, what it is) of the open trace's eager or compiled twins; of recent traces and samples.

        Reads the disk.
        """
        from torchprof_tui.ui.start.twin_trace import list_known_traces  # deferred: not needed before the first frame

        return list_known_traces("" if self._current_opener is None else self._current_opener.spec)

    def on_trials_asked(self, message: TrialsAsked) -> None:
        path = "" if self._current_opener is None else self._current_opener.path
        try:
            self.push_screen(create_trials_screen(path, message.finding))
        except (OSError, ValueError) as error:
            self.notify(format_error(error), title="cannot be tried", severity="warning", timeout=10, markup=False)

    def on_trace_asked(self, message: TraceAsked) -> None:
        self._open(message.spec, *message.other_specs)

    @work(exclusive=True, group="open")
    async def _open(self, *specs: str) -> None:
        try:
            opener = await asyncio.to_thread(self._start_opener, specs)
        except (OSError, ValueError) as error:
            self.notify(format_error(error), title="cannot be opened", severity="error", timeout=8, markup=False)
            return
        show = self.switch_screen if self.is_shown("LoadingScreen") else self.push_screen  # a failed one
        await show(create_opening_screen(opener, self._settle_snapshot))

    def _start_opener(self, specs: tuple[str, ...], captures: tuple[str, ...] = ()) -> TraceOpener:
        return start_opener(specs, captures, self._use_cache, self._connections)

    async def show_trace(self, message: LoadingScreen.Opened) -> None:
        previous, self._current_opener = self._current_opener, message.opener
        self.failure = None
        if self.last_compared != self.earlier_recording:  # it was compared with another trace
            self.last_compared = ""
        note_phase("trace opened", events=len(message.trace), cached=message.opener.cached)
        early = self.take_early_lanes(message)
        if previous is None and early is None:
            self.freeze_program()
        from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen  # deferred: imports numpy

        screen = ExplorerScreen(message.trace)
        if early is not None:
            screen.take_view(early)
        with self.batch_update():
            while len(self.screen_stack) > self.kept_screens:
                await self.pop_screen()
            await self.switch_screen(screen)
        if previous is not None:
            previous.close()
        screen.call_after_refresh(self._finish_startup, screen)
        if message.opener.cache_was_damaged:
            self.notify(DAMAGED_CACHE_MESSAGE, markup=False)
        if message.opener.left_out:
            self.notify("\n".join(message.opener.left_out[:3]), title="left out", timeout=10, markup=False)
        self._update_recent_and_prune(message.opener.spec)
        self.run_worker(asyncio.to_thread(message.opener.split_into_blocks, message.trace), group="finish")

    def on_trace_checked(self) -> None:
        note_phase("whole trace checked")
        # Not before: imports hold the GIL, and would delay the check of a large trace by a sixth.
        self.run_worker(asyncio.to_thread(import_screens), group="screens")
        self._find_tryable()

    @work(group="house")
    async def _find_tryable(self) -> None:
        """Find what the cheatsheet can offer to measure: the explorer's trace may have come with its run."""
        opener = self._current_opener
        explorer = next((screen for screen in self.screen_stack if screen.TITLE == "explorer"), None)
        if opener is not None and explorer is not None:
            findings = await asyncio.to_thread(list_tryable_findings, opener.path)
            explorer.set_tryable(findings)  # type: ignore[attr-defined]

    @work(group="house")
    async def _update_recent_and_prune(self, spec: str) -> None:
        refusal = await asyncio.to_thread(update_recent_and_prune, spec)
        if refusal is not None and self._use_cache and not self._has_reported_cache:
            self._has_reported_cache = True
            self.notify(refusal, title="no cache", severity="warning", timeout=10, markup=False)

    async def on_loading_screen_folder_found(self, message: LoadingScreen.FolderFound) -> None:
        await self.switch_screen(create_start_screen(self._current_opener is not None, (message.name, message.traces)))
        self.lanes_ready.set()

    async def on_loading_screen_failed(self, message: LoadingScreen.Failed) -> None:
        await self.leave_early_lanes()
        if self._current_opener is None:
            self.failure = message.line
        if self._debug_errors:
            with tempfile.NamedTemporaryFile("w", prefix="torchprof-tui-", suffix=".log", delete=False) as log:
                log.write(message.detail)
            self.notify(f"the traceback: {log.name}", timeout=20, markup=False)
        self.lanes_ready.set()

    def on_loading_screen_retry_requested(self, message: LoadingScreen.RetryRequested) -> None:
        self._open(message.spec)

    # -- the beginning of a large trace, before the whole of it --------------------------------------------

    async def on_loading_screen_lanes_found(self, message: LoadingScreen.LanesFound) -> None:
        early, below = self.early_lanes, self.screen
        if below is not (message.screen if early is None else early) or message.screen not in self.screen_stack:
            return  # something else is on the screen
        if early is not None and early.is_asking:
            return
        note_phase("early lanes", events=len(message.early.trace))
        if early is None:
            self.freeze_program()
            self.defer_garbage_collection()
        explorer = import_attribute("explorer.explorer_screen:ExplorerScreen")
        screen: ExplorerScreen = explorer(message.early.trace, lambda: message.screen.stage)
        self.early_lanes, self._loading = screen, message.screen
        if early is None:
            await self.push_screen(screen)
        else:
            screen.take_view(early)
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
        elif self.is_shown("LoadingScreen"):
            await self.screen.run_action("give_up")
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
            while self.screen is not loading and loading in self.screen_stack:  # it may be left meanwhile
                await self.pop_screen()
        return loading

    async def on_loading_cancelled(self) -> None:
        loading = await self.leave_early_lanes()
        if loading is not None:
            await loading.action_give_up()

    # -- recording -----------------------------------------------------------------------------------------

    def _check_busy(self) -> bool:
        """Return whether a recording runs, which no other screen may cover; then notify how to stop it."""
        busy: bool = getattr(self.screen, "busy", False)
        if busy:
            self.notify("a run is active: ctrl+c stops it and keeps what it recorded", markup=False)
        return busy

    def action_record(self) -> None:
        # deferred, as the other screens below: not needed before the first frame
        from torchprof_tui.ui.record.recording_screen import RecordingScreen

        if self._check_busy() or self.screen.TITLE == "record" or self.is_shown("LoadingScreen"):
            return
        if isinstance(self.screen, RecordingScreen):
            self.switch_screen(self._create_record_screen(self.screen.request, self.screen.cwd))
        else:
            self.push_screen(self._create_record_screen(is_of_trace=self.screen.TITLE != "start"))

    def action_again(self) -> None:
        """Repeat the recording of the trace on screen, which stays below until the new one is loaded.

        A request that this user did not make is not started: the form shows it. Without a request, show an empty form.
        """
        if self._current_opener is None or self.screen.TITLE != "explorer":
            self.action_record()
            return
        from torchprof_tui.runs.history import read_request  # deferred: not needed before the first frame

        try:
            stored = read_request(self._current_opener.path)
        except UnreadableFileError:
            self.action_record()  # the form says what is wrong with it
            return
        if stored is not None and stored.problem is not None:
            self.notify(stored.problem, severity="warning", markup=False)
        if stored is None:
            self.notify("it is unknown how this trace was recorded: here is a new run", markup=False)
            self.action_record()
        elif stored.is_own:
            self.push_screen(self._create_recording_screen(stored.request, stored.cwd))
        else:
            self.push_screen(self._create_record_screen(stored.request, stored.cwd, stored.path))

    def on_run_asked(self, message: RunAsked) -> None:
        if self.is_shown("RecordScreen") or self.is_shown("RecordingScreen"):
            self.switch_screen(self._create_recording_screen(message.request, message.cwd))

    def _create_record_screen(
        self,
        request: RecordingRequest | None = None,
        cwd: str | None = None,
        foreign_file: str | None = None,
        is_of_trace: bool = False,
    ) -> RecordScreen:
        """Create the form with a request; `is_of_trace`: with that of the open trace, if it has one."""
        from torchprof_tui.ui.record.record_screen import RecordScreen, create_form_of_trace

        explorer = next((screen for screen in self.screen_stack if screen.TITLE == "explorer"), None)
        if is_of_trace and explorer is not None and self._current_opener is not None:
            trace: Trace | None = getattr(explorer, "trace", None)
            return create_form_of_trace(self._current_opener.path, trace, self._original_environment)
        return RecordScreen(request, cwd, foreign_file, self._original_environment)

    def _create_recording_screen(self, request: RecordingRequest, cwd: str) -> RecordingScreen:
        earlier = "" if self._current_opener is None else self._current_opener.spec
        create = import_attribute("record.recording_screen:RecordingScreen")
        screen: RecordingScreen = create(request, cwd, self._original_environment, earlier)
        return screen

    def on_recording_screen_recorded(self, message: RecordingScreen.Recorded) -> None:
        if self._current_opener is not None:  # its lanes stay below until the new ones are there
            self.notify("the previous trace is kept: D compares with it, o lists it", markup=False)
            self.note_recording(self._current_opener.spec)
        self.pending_comparison = message.comparison
        self._open(*message.traces)

    # -- pictures ------------------------------------------------------------------------------------------

    @work(group="export")
    async def action_export(self) -> None:
        """Write the screen as it is without the prompt and messages, and the pictures of its answers."""
        self.clear_notifications()
        await asyncio.sleep(SETTLE_SECONDS)
        kind = type(self.screen).__name__.removesuffix("Screen").lower()
        pictures = {kind: draw_screen(self), **getattr(self.screen, "draw_pictures", dict)()}
        name = self.title if self._current_opener is None else self._current_opener.spec
        line, written = await asyncio.to_thread(write_new_pictures, name, pictures)
        self.notify(line, severity="information" if written else "error", timeout=8, markup=False)

    # -- learning ------------------------------------------------------------------------------------------

    def on_start_screen_learn_asked(self) -> None:
        self.push_screen(import_attribute("learn.learn_screen:LearnScreen")())

    def on_learn_screen_case_chosen(self, message: LearnScreen.CaseChosen) -> None:
        """Begin a case on its sample; opened first, where another trace is."""
        opener, case = self._current_opener, message.case
        explorer = next((screen for screen in self.screen_stack if screen.TITLE == "explorer"), None)
        is_open = case is None or (opener is not None and opener.spec == case.sample)
        if explorer is not None and is_open and explorer is not self.early_lanes:
            self._begin_case(explorer, case)
        elif case is not None:
            self._pending_case = (case,)
            self._open(case.sample)

    def _begin_case(self, explorer: Screen[Any], case: Case | None) -> None:
        if self.lesson is not None:
            self.lesson.end()
        lesson: LessonDriver = import_attribute("explorer.lesson_panel:LessonDriver")(self, explorer, case)
        self.lesson = lesson
        self.run_worker(lesson.start(), group="lesson", exclusive=True)

    # -- comparisons ----------------------------------------------------------------------------------------

    def note_recording(self, earlier: str) -> None:
        """Suggest the trace before a recording for the comparison with it."""
        self.last_compared = self.earlier_recording = earlier

    def on_compare_asked(self, message: CompareAsked) -> None:
        if message.request.other:
            self._open_second(message)
        else:
            self.push_screen(import_attribute(CREATE_DIFF)(message, message.trace, None))

    @work(exclusive=True, group="second trace")
    async def _open_second(self, asked: CompareAsked) -> None:
        try:
            opener = await asyncio.to_thread(self._start_opener, (asked.request.other,), asked.request.captures)
        except (OSError, ValueError) as error:
            line = f"{format_error(error)}; D takes a path, sample:NAME or host:path"
            self.notify(line, title="cannot be compared", severity="error", timeout=8, markup=False)
            return
        self.last_compared = asked.request.other
        show = partial(self._show_comparison, asked, opener)
        second = import_attribute("start.loading_screen:SecondTraceScreen")
        await self.push_screen(second(opener, show, partial(self._open_second, asked)))

    def _show_comparison(self, asked: CompareAsked, opener: TraceOpener, other: Trace) -> None:
        self.push_screen(import_attribute(CREATE_DIFF)(asked, other, opener))
        self.run_worker(asyncio.to_thread(update_recent_and_prune, opener.spec), group="house")
        self.run_worker(asyncio.to_thread(opener.split_into_blocks, other), group="finish")

    # -- start and end -------------------------------------------------------------------------------------------

    def _finish_startup(self, screen: ExplorerScreen) -> None:
        """Finish when lanes are on screen: go to the start position; collect garbage only in `post_display_hook`."""
        if self._start_position is not None:
            problem = screen.show_position(self._start_position.lower().removeprefix("profiler"))
            self._start_position = None
            if problem:
                self.notify(problem, title="--at", severity="warning", markup=False)
        request, self.pending_comparison = self.pending_comparison, None
        if request is not None:
            self.post_message(CompareAsked(request, screen.trace, screen.trace.label))
        pending, self._pending_case = self._pending_case, ()
        if pending:
            self._begin_case(screen, *pending)
        self.defer_garbage_collection()
        note_phase("lanes on screen")
        self.lanes_ready.set()

    def on_unmount(self) -> None:
        """Close the trace, because a thread that waits for its worker would delay the exit.

        Without a terminal the process continues after the app: restore the collector and the switch interval.
        """
        if self._current_opener is not None:
            self._current_opener.close()
        if self.is_headless:
            self._switch_interval.close()
            self.restore_garbage_collection()

    # -- the rest ------------------------------------------------------------------------------------------

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        yield SystemCommand("Open another trace", "recent ones, this folder's, samples: o", self.action_open_another)
        yield SystemCommand("Record a run", "a workload, or a command of your own: R", self.action_record)
        other = "light" if self.current_theme.dark else "dark"
        yield SystemCommand(
            f"{other.capitalize()} theme", "change all colours", partial(setattr, self, "theme", THEMES[other].name)
        )
        yield SystemCommand("Quit", "key: q", self.action_quit)

    def _handle_exception(self, error: Exception) -> None:
        screens = " > ".join(type(screen).__name__ for screen in self.screen_stack) if self._running else ""
        self._crash_details = (f"app {self.size.width}x{self.size.height}, screens {screens or 'none'}",)
        super()._handle_exception(error)
        if self._exception is not None:  # it was not ignored because the program is ending
            self._return_code = 2  # 1 is an answer of a command
        self.lanes_ready.set()  # ends what waits for lanes; the error is raised when the app ends

    def _print_error_renderables(self) -> None:
        if self._debug_errors:
            super()._print_error_renderables()
            return
        if self._exit_renderables and self._exception is not None:
            print_crash(self._exception, self._crash_details)
        self._exit_renderables.clear()


def print_crash(error: BaseException, details: Sequence[str] = ()) -> None:
    """Print one line about an error that ended the app, and write the report. `details`: lines about the screen."""
    if isinstance(error, WorkerFailed):  # does not say where the worker failed
        error = error.error
    # Imported by name: only a program that has failed needs it.
    line = importlib.import_module("torchprof_tui.program.crash_report").report_crash(error, details)
    print(f"torchprof-tui: {line}", file=sys.stderr)


class ListApp(TorchprofApp):
    """An app of an extension, whose lowest screen is `screen`. `options`: of `TorchprofApp`.

    The style sheets of the explorer are read when a trace is opened.
    """

    CSS_PATH = []
    kept_screens = 3

    def __init__(self, screen: Screen[Any], **options: Any) -> None:
        super().__init__(**options)
        self._lowest_screen = screen

    def _create_first_screen(self) -> Screen[Any]:
        self.lanes_ready.set()
        return self._lowest_screen
