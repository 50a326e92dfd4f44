"""Save the recording before the program ends, whichever way it ends, and then end it in the same way.

SIGTERM and SIGHUP would end the process at once: the recording is saved, then the process ends by the same signal.
Ctrl-C is Python's KeyboardInterrupt, which the program may catch. os._exit, os.abort and the exec calls run no exit
handlers, so they are wrapped to save first. SIGKILL and a crash in native code cannot be caught: only the cycles that
were written before are kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from .status_messages import move_to_high_descriptor

_TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
# SIGCHLD: the DataLoader's handler raises in the main thread when a worker dies, which must not interrupt a save.
_HELD_SIGNALS = (signal.SIGINT, *_TERMINATION_SIGNALS, signal.SIGCHLD)
UNBLOCK_AFTER_SECONDS = 3.0  # seconds in native code after a termination signal, before collectives are aborted
STUCK_AFTER_SECONDS = 30.0  # seconds in native code after a termination signal, before the process is killed
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, <linux/prctl.h>
_EXIT_FUNCTIONS = ("_exit", "abort", "execv", "execve")  # in `os`; its other exec functions call the last two


class StopRun(SystemExit):
    """Raised in the program to stop it when its recording is complete; unwinds like sys.exit(0)."""

    def __init__(self) -> None:
        super().__init__(0)


class SaveAbandoned(BaseException):
    """Ctrl-C was pressed again while a trace was being saved."""


class ExitHandlers:
    """Call `save(end_reason, status)` before the process ends in a way that runs no exit handlers.

    `end_reason` is "SIGTERM", "os._exit", …; `status` is the exit status as `subprocess` counts it (minus the number
    of a signal), None if the process goes on as another program.
    """

    def __init__(self, save: Callable[[str, int | None], None], log: Callable[[str], None]) -> None:
        self._save, self._log = save, log
        self._pid = os.getpid()
        self._depth = 0
        self._pending_signals: list[int] = []
        self._signal_mask = threading.local()  # the signals that were blocked before a fork
        self.is_saving = False  # the final save has begun, so the main thread runs Python
        self.interrupted = False  # Ctrl-C was pressed once: the next one abandons a save
        self._is_saving_block = True  # signals are held for a save
        self._is_skippable = False  # what is being written is not needed: the first Ctrl-C abandons it

    def install(self) -> None:
        """Install all handlers. Signals that the parent process chose to ignore (nohup) stay ignored."""
        for signum in _TERMINATION_SIGNALS:
            if signal.getsignal(signum) == signal.SIG_DFL:
                signal.signal(signum, self._save_and_terminate)
        for name in _EXIT_FUNCTIONS:
            setattr(os, name, self._wrap_exit_function(name, getattr(os, name)))
        os.register_at_fork(
            before=self._block_signals, after_in_parent=self._unblock_signals, after_in_child=self._reset_in_child
        )

    @contextlib.contextmanager
    def hold_signals(self, saves: bool = True) -> Iterator[None]:
        """Deliver signals only at the end of the block. If it `saves`, a second Ctrl-C raises SaveAbandoned at once."""
        if self._depth or threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {signum: signal.getsignal(signum) for signum in _HELD_SIGNALS}
        # Signals that the process ignores (Ctrl-C in a background job) stay ignored.
        handlers = {signum: handler for signum, handler in handlers.items() if handler != signal.SIG_IGN}
        self._depth += 1
        self._is_saving_block = saves
        for signum in handlers:
            signal.signal(signum, self._defer_signal)
        try:
            yield
        finally:
            for signum, handler in handlers.items():
                # None: a handler installed by C code, which Python cannot restore; the default is the nearest.
                signal.signal(signum, signal.SIG_DFL if handler is None else handler)
            self._depth -= 1
            pending, self._pending_signals = self._pending_signals, []
            for number in dict.fromkeys(pending):
                signal.raise_signal(number)

    @contextlib.contextmanager
    def allow_skip(self) -> Iterator[None]:
        """While signals are held, a Ctrl-C in the block raises SaveAbandoned at once and has no other effect."""
        self._is_skippable = True
        try:
            yield
        finally:
            self._is_skippable = False

    def watch_native_code(self, torch: Any, call_in_main: Callable[[Callable[[], None]], None]) -> None:
        """End the process on SIGTERM even if the main thread is in native code that never returns.

        An example is a collective whose other ranks have ended: Python's signal handlers never run there. A thread
        reads the signals from Python's wakeup descriptor and checks with `call_in_main`, which calls a function in the
        main thread, whether that still runs Python.
        """
        read_fd, write_fd = map(move_to_high_descriptor, os.pipe())
        os.set_blocking(write_fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        threading.Thread(
            target=self._listen_for_signals, args=(read_fd, torch, call_in_main), name="torchprof-endings", daemon=True
        ).start()

    def _listen_for_signals(self, read_fd: int, torch: Any, call_in_main: Callable[[Callable[[], None]], None]) -> None:
        while signals := os.read(read_fd, 1):
            # The program's own handler may let it go on.
            if signals[0] not in _TERMINATION_SIGNALS or signal.getsignal(signals[0]) != self._save_and_terminate:
                continue
            runs_python = threading.Event()
            call_in_main(runs_python.set)
            if runs_python.wait(UNBLOCK_AFTER_SECONDS):
                continue
            if not self.is_saving:
                with contextlib.suppress(Exception):  # a private interface of torch that not every version has
                    torch.distributed.distributed_c10d._abort_process_group()
            if not runs_python.wait(STUCK_AFTER_SECONDS - UNBLOCK_AFTER_SECONDS) and not self.is_saving:
                self._log("the program hangs in native code: unsaved recordings are lost")
                os.kill(os.getpid(), signal.SIGKILL)

    def _defer_signal(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGINT and self._is_saving_block:
            if self.interrupted or self._is_skippable:
                raise SaveAbandoned
            self.interrupted = True
            self._log("saving what was recorded; ctrl+c again stops without saving")
        self._pending_signals.append(signum)

    def _save_and_terminate(self, signum: int, frame: FrameType | None) -> None:
        self._save(signal.Signals(signum).name, -signum)
        end_by_signal(signum)

    def _wrap_exit_function(self, name: str, exit_function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(exit_function)
        def saving_exit(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() == self._pid:
                status = {"_exit": args[0] if args else kwargs.get("status"), "abort": -signal.SIGABRT}.get(name)
                self._save(f"os.{name}", status)
            return exit_function(*args, **kwargs)

        return saving_exit

    def _block_signals(self) -> None:
        """Block termination signals before a fork, until `_reset_in_child` has run in the child.

        Python would drop a signal that reached its own handlers in between, and the byte on the wakeup descriptor,
        which the child shares, would reach the listening thread of this process.
        """
        self._signal_mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, _TERMINATION_SIGNALS)

    def _unblock_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._signal_mask.before)

    def _reset_in_child(self) -> None:
        """Remove all handlers in a forked child."""
        signal.set_wakeup_fd(-1)
        for signum in _TERMINATION_SIGNALS:
            if signal.getsignal(signum) in (self._save_and_terminate, self._defer_signal):
                signal.signal(signum, signal.SIG_DFL)
        self._unblock_signals()


def end_with_parent(parent: str | None = None) -> None:
    """Have the kernel send SIGTERM when the parent process ends, even if it is killed. Linux only.

    `parent`: the expected pid of the parent; nothing happens if it is another process.
    """
    if parent is None or parent == str(os.getppid()):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)


def end_by_signal(signum: int) -> None:
    """End this process by `signum`, so that its parent sees the same status as without the recorder."""
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


def let_children_exit() -> None:
    """Let children that the program forks from now on end by `exit`. Call it once torch's profiler has been used.

    From then on Kineto keeps a thread (since torch 2.13, if not before) that C exit handlers wait for. A forked child
    has no such thread and would wait for ever, so its C exit handlers are skipped; only C's own files are flushed.
    """
    os.register_at_fork(after_in_child=_exit_at_once)


def _exit_at_once() -> None:
    with contextlib.suppress(OSError, AttributeError):  # on_exit is glibc's
        libc = ctypes.CDLL(None)
        for function in (libc._exit, libc.fcloseall):  # called with the status, the last one first
            libc.on_exit(function, None)
