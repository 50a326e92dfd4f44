"""Run the program for a random walk, in the walk's terminal: report keys, screens and exceptions, and answer pings.

Started as `python -c "…run_program()"` with two pipes. A ping is answered when the app and the screen on top, or the
widget with the focus, have handled everything before it, and the screen has painted: what a user waits for after a key.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from textual.app import App
from textual.command import CommandPalette

from torchprof_tui.app import TorchprofApp
from torchprof_tui.cli import main
from torchprof_tui.program.stall_watchdog import format_stacks
from torchprof_tui.runs import recording_request

RESERVED_KEYS = frozenset({"ctrl+c"})
"""Keys that are not offered to the walk: their only job is to end the program."""


def run_program(commands: int, reports: int) -> None:
    """Run the command line with the arguments of this process. `commands`, `reports`: the walk's pipes."""
    agent = _Agent(commands, reports)
    recording_request.HARNESS = Path(os.environ["HOSTILE_HARNESS"])
    agent.observe()
    sys.exit(main())


class _Agent:
    def __init__(self, commands: int, reports: int) -> None:
        self._commands = commands
        self._reports = reports
        self._app: App[Any] | None = None
        self._ended = False

    def report(self, **report: Any) -> None:
        os.write(self._reports, (json.dumps(report) + "\n").encode())

    def observe(self) -> None:
        """Put this agent's observers around the app's methods."""
        agent = self
        check_bindings, handle_exception = App._check_bindings, App._handle_exception
        on_mount = TorchprofApp.on_mount

        async def check_and_report(app: App[Any], key: str, priority: bool = False) -> bool:
            screen = type(app.screen).__name__
            is_bound = await check_bindings(app, key, priority)
            if is_bound:
                agent.report(key=key, screen=screen)
            return is_bound

        def report_exception(app: App[Any], error: Exception) -> None:
            agent.report(error="".join(traceback.format_exception(error))[-6000:])
            handle_exception(app, error)

        def start(app: TorchprofApp) -> None:
            on_mount(app)
            agent._app = app
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: agent._report_context(context))
            threading.Thread(target=agent._answer_pings, args=(loop,), daemon=True).start()

        def stay(app: TorchprofApp, *_: Any, **options: Any) -> None:
            """Ignore keys that leave the program: the walk goes on."""
            if options.get("return_code", 0) >= 128 or app._exception is not None or agent._ended:
                leave(app, *_, **options)

        leave = App.exit
        App._check_bindings = check_and_report  # type: ignore[method-assign]
        App.exit = stay  # type: ignore[assignment,method-assign]
        App._handle_exception = report_exception  # type: ignore[method-assign]
        TorchprofApp.on_mount = start  # type: ignore[method-assign]
        threading.excepthook = lambda what: agent.report(
            error="".join(traceback.format_exception(what.exc_type, what.exc_value, what.exc_traceback))
        )
        sys.unraisablehook = lambda what: agent.report(error=f"{what.err_msg}: {what.exc_value!r} in {what.object!r}")
        stacks = os.open(os.environ["WALK_STACKS"], os.O_WRONLY | os.O_CREAT, 0o600)
        faulthandler.register(signal.SIGUSR2, file=stacks, all_threads=True)

    def _report_context(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        detail = "" if error is None else "".join(traceback.format_exception(error))
        self.report(error=f"{context.get('message')}\n{detail}"[-6000:])

    def _answer_pings(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read the walk's commands: `ping N`, `stacks`, `end`."""
        with open(self._commands, encoding="ascii") as lines:
            for line in lines:
                word, _, number = line.strip().partition(" ")
                if word == "stacks":
                    self.report(stacks=format_stacks(loop) + self._describe())
                elif word == "end":
                    self._ended = True
                    loop.call_soon_threadsafe(self._app.exit)
                else:
                    loop.call_soon_threadsafe(self._ping_app, int(number))

    def _describe(self) -> list[str]:
        app = self._app
        assert app is not None
        screens = [
            f"  {screen}: {screen._message_queue.qsize()} messages, layout {screen._layout_required}, "
            f"repaint {screen._repaint_required}, {len(screen._dirty_widgets)} dirty widgets"
            for screen in app.screen_stack
        ]
        state = f"{app._message_queue.qsize()} messages, batch count {app._batch_count}, focus {app.focused}"
        return [f"app: {state}", *screens]

    def _ping_app(self, number: int) -> None:
        app = self._app
        assert app is not None
        app.call_later(self._ping_screen, number)

    def _ping_screen(self, number: int) -> None:
        app = self._app
        assert app is not None
        target = app.focused or app.screen
        if not target.call_later(self._ping_painted, number):
            app.call_later(self._ping_screen, number)  # it is being removed

    def _ping_painted(self, number: int) -> None:
        assert self._app is not None
        self._app.call_after_refresh(self._pong, number)

    def _pong(self, number: int) -> None:
        app = self._app
        assert app is not None
        screen = app.screen
        keys = {} if not screen._running else screen.active_bindings
        self.report(
            pong=number,
            screen=type(screen).__name__,
            keys=[key for key in keys if key not in RESERVED_KEYS],
            palette=any(isinstance(below, CommandPalette) for below in app.screen_stack),
        )
