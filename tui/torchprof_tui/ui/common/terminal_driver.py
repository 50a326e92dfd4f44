"""The driver of a real terminal: it survives SIGSTOP and SIGCONT, and a terminal that is gone.

textual's driver starts its threads again on each SIGCONT, even where it was not suspended. Then the program does not
end, because the first threads still run, and the terminal stays raw, because raw mode was saved as the mode to restore.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import subprocess
import termios
import threading
import tty
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, cast

from textual import events
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers import linux_driver
from textual.geometry import Size
from textual.message import Message

from torchprof_tui.program.stall_watchdog import StallWatchdog
from torchprof_tui.program.terminal_progress import TerminalProgress

if TYPE_CHECKING:
    from torchprof_tui.program.terminal_graphics import TerminalGraphics

RESET_MODES = "".join(f"\\033[?{mode}l" for mode in (1000, 1002, 1003, 1006, 1015, 1016, 1004, 2004, 2026, 2048, 1049))
"""No mouse, no focus reports, no bracketed paste, the usual screen; written as `printf` reads them."""

KILLED_LINE = "torchprof-tui: the program was killed: out of memory, or a cached file was cut short while open"

_CANCEL = "\\030"
"""Ends a control sequence that the program was killed in the middle of, which would swallow the first mode."""

# The word arrives when the terminal has been restored; without it, the pipe was closed by the end of the program.
_SCRIPT = f"""
trap '' HUP INT TERM
read -r word
[ "$word" = restored ] && exit
stty "$1" <&1 || stty sane <&1
printf '{_CANCEL}{RESET_MODES}\\033[<u\\033[?7h\\033[?25h\\033[0m\\r\\n%s\\r\\n' "$2"
"""

_END_SECONDS = 1.0


def find_progress(app: App[Any]) -> TerminalProgress | None:
    """Return the progress bar of the terminal that the app runs in; None without one, as in tests."""
    progress = getattr(app._driver, "progress", None)
    return progress if isinstance(progress, TerminalProgress) else None


def find_graphics(app: App[Any]) -> TerminalGraphics | None:
    """Return the pictures of the terminal that the app runs in; None without one, and before it was asked."""
    return app._driver.graphics if isinstance(app._driver, TerminalDriver) else None


class _AnswerParser(XTermParser):
    """Parse keys without the answers about pictures, which textual would take for keys."""

    def __init__(self, driver: TerminalDriver, debug: bool = False) -> None:
        super().__init__(debug)
        self._driver = driver

    def feed(self, data: str) -> Iterable[Message]:
        graphics = self._driver.graphics if data else None  # without data: the end of input
        typed = data if graphics is None else graphics.read(data)
        return super().feed(typed) if typed or not data else ()

    def tick(self) -> Iterable[Message]:
        if self._driver.graphics is not None and (held := self._driver.graphics.release()):
            yield from super().feed(held)
        yield from super().tick()


class TerminalGuard:
    """Restores the terminal after a program that was killed, for lack of memory or by a mapped file cut short.

    No handler runs on SIGKILL. On SIGBUS, Python's own would return to the instruction that failed, again and again. So
    a small shell waits for the end of this process while the terminal is raw, in a session of its own, where no signal
    to the job reaches it.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, output: int, attributes: list[Any] | None) -> None:
        """Guard the terminal that `output` is; `attributes`: its modes before, as `termios.tcgetattr` returns them."""
        self.stop()
        if not os.isatty(output):
            return
        modes = "sane"
        if attributes is not None:  # as `stty -g` prints them on Linux: hexadecimal numbers, separated by colons
            characters = [ord(value) if isinstance(value, bytes) else value for value in attributes[6]]
            modes = ":".join(f"{number:x}" for number in [*attributes[:4], *characters])
        with contextlib.suppress(OSError):  # without a shell, or another process, the terminal is not guarded
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "torchprof-tui-guard", modes, KILLED_LINE],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def stop(self) -> None:
        """End the shell: the terminal is restored."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            process.communicate(b"restored\n", timeout=_END_SECONDS)


REPAINT_MODES = "\x1b[?1049h\x1b[?25l\x1b[?1004h\x1b[?7l\x1b[?2004h"
"""Alternate screen, no cursor, focus reports, no line wrap, bracketed paste: what a shell may have changed."""


LINE_FEED = "ctrl+j"
"""Textual's name of the key whose code is a line feed."""


class _InputEnd(threading.Event):
    """Set when reading input must end, also where nobody sets it: without a terminal, or after the main thread."""

    def __init__(self, is_terminal_gone: Callable[[], bool]) -> None:
        super().__init__()
        self._is_terminal_gone = is_terminal_gone

    def is_set(self) -> bool:
        return super().is_set() or not threading.main_thread().is_alive() or self._is_terminal_gone()


class TerminalDriver(linux_driver.LinuxDriver):
    """Enter application mode once, leave it once, and handle job control on the event loop.

    A signal handler must not write: it may interrupt a write that holds the lock of the writer's queue.
    """

    _is_active = False
    _event_loop: asyncio.AbstractEventLoop | None = None
    _guard: TerminalGuard | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.exit_event = _InputEnd(self._check_terminal)
        self._watchdog: StallWatchdog | None = None
        self.progress = TerminalProgress(cast(TextIO, self))
        self.graphics: TerminalGraphics | None = None

    def start_application_mode(self) -> None:
        """Enter application mode; where it is entered already, only set the terminal's modes again and repaint."""
        if self._event_loop is None:
            self._event_loop = asyncio.get_running_loop()
            self._watchdog = StallWatchdog(self._event_loop, self._probe_app)
        if self._is_active:
            self._set_modes_again()
            return
        writer_before = self._writer_thread
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._is_active = self._writer_thread is not writer_before  # not where the program is in the background
        if self._is_active and self._file is not None:
            self._guard = TerminalGuard()
            self._guard.start(self._file.fileno(), self.attrs_before)

    def stop_application_mode(self) -> None:
        """Leave application mode, if it was entered."""
        if self._is_active:
            self.progress.clear()
            if self.graphics is not None:
                self.graphics.clear()
            self._is_active = False
            super().stop_application_mode()
        if self._guard is not None:
            self._guard.stop()
            self._guard = None

    def ask_for_pictures(self, widget: Any) -> None:
        """Ask the terminal once whether it draws pictures, after the first frame; repaint the widget if it does."""
        if self.graphics is None:
            module = importlib.import_module("torchprof_tui.program.terminal_graphics")
            self.graphics = module.TerminalGraphics(self, self.fileno, self._call_on_loop)
        self.graphics.widgets.add(widget)

    def run_input_thread(self) -> None:
        """Read input until application mode ends; end the program where the terminal is gone."""
        # the name by which textual's loop creates its parser
        vars(linux_driver)["XTermParser"] = partial(_AnswerParser, self)
        with contextlib.suppress(OSError):  # EIO, at the same time as SIGHUP
            super().run_input_thread()
        if self.is_terminal_gone():
            self._call_on_loop(partial(self._app.exit, return_code=128 + signal.SIGHUP))

    def process_message(self, message: Message) -> None:
        """Send a message to the app. A line feed is the enter key, which was pressed before raw mode was set."""
        if isinstance(message, events.Key) and message.key == LINE_FEED:
            message = events.Key("enter", "\r")
        super().process_message(message)

    def _check_terminal(self) -> bool:
        """Return whether the terminal is gone; called by the input thread before each read, 10 times a second."""
        if self._watchdog is not None:
            self._watchdog.look()
        return self.is_terminal_gone()

    def _probe_app(self, answer: Callable[[], None]) -> None:
        """Call `answer` when the app and what handles keys have handled all before it, and the screen is painted.

        A probe is lost where that widget is removed meanwhile; the next one is answered then.
        """
        app = self._app

        def ask_focused() -> None:
            if app.screen_stack:
                (app.focused or app.screen).call_later(app.call_after_refresh, answer_if_painted)

        def answer_if_painted() -> None:
            if not app._batch_count:  # else nothing is painted
                answer()

        app.call_later(ask_focused)

    def is_terminal_gone(self) -> bool:
        """Return whether the terminal was closed. Then reading returns nothing, at once and for ever."""
        try:
            termios.tcgetattr(self.fileno)
        except termios.error:
            return True
        return False

    def write(self, data: str) -> None:
        """Queue output; drop it where the writer has ended, because the terminal is gone: the queue would fill up."""
        if self._writer_thread is not None and self._writer_thread.is_alive():
            super().write(data)

    def isatty(self) -> bool:
        """Return whether what is written reaches a terminal, as of a file."""
        return os.isatty(self.fileno)

    def close(self) -> None:
        if self._writer_thread is not None and self._writer_thread.is_alive():
            super().close()

    def _sigtstp_application(self, *_: object) -> None:
        self._call_on_loop(self._suspend)

    def _sigcont_application(self, *_: object) -> None:
        self._call_on_loop(self._resume)

    def _call_on_loop(self, handle: Callable[[], None]) -> None:
        if self._event_loop is not None and not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(handle)

    def _suspend(self) -> None:
        """Leave application mode and stop the process; `_resume` follows SIGCONT. Go on where none would come."""
        if not is_stop_allowed():
            self._app.notify("ctrl+z: there is no shell to return to", timeout=3, markup=False)
            return
        if self._auto_restart and self._is_active:
            self.suspend_application_mode()
            self._must_signal_resume = True
        os.kill(os.getpid(), signal.SIGSTOP)

    def _resume(self) -> None:
        if self._auto_restart:
            self.resume_application_mode()
            if self.graphics is not None:
                self.graphics.repaint()

    def _set_modes_again(self) -> None:
        """Set raw mode and the screen's modes again, which the shell may have changed, and repaint everything."""
        with contextlib.suppress(termios.error):  # in the background this stops the process until it is continued
            attributes = termios.tcgetattr(self.fileno)
            attributes[tty.LFLAG] = self._patch_lflag(attributes[tty.LFLAG])
            attributes[tty.IFLAG] = self._patch_iflag(attributes[tty.IFLAG])
            attributes[tty.CC][termios.VMIN] = 1
            termios.tcsetattr(self.fileno, termios.TCSANOW, attributes)
        self.write(REPAINT_MODES)
        self._enable_mouse_support()
        size = Size(*self._get_terminal_size())
        self._app.post_message(events.Resize(size, size))
        self._app.refresh(layout=True)


def is_stop_allowed() -> bool:
    """Return whether a shell can continue this process; without one, the kernel discards SIGTSTP.

    Such is a program that is the first of its terminal: `ssh -t host torchprof-tui …`, `docker run -it`, `kubectl exec
    -it`. A child process in the same group shows what the kernel does, also where a script lies between.
    """
    try:
        process = subprocess.Popen(["/bin/sh", "-c", "kill -TSTP $$"], stdin=subprocess.DEVNULL)
    except OSError:
        return False  # no shell at all
    status = os.waitpid(process.pid, os.WUNTRACED)[1]
    process.kill()
    process.wait()
    return os.WIFSTOPPED(status)
