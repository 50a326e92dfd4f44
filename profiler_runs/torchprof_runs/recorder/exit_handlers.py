"""Every way in which a program ends, caught so that what was recorded is saved first; then it ends just so.

SIGTERM and SIGHUP would end it at once: they save, then end it by the same signal. Ctrl-C is Python's own
KeyboardInterrupt, which the program may catch. os._exit, os.abort and the exec calls leave no time for anything, so
they save before they leave. SIGKILL and a crash in native code cannot be caught: what earlier cycles wrote is kept.
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
# A child that dies makes a DataLoader raise in the main thread, wherever that is: not while a trace is written.
_HELD_SIGNALS = (signal.SIGINT, *_TERMINATION_SIGNALS, signal.SIGCHLD)
UNBLOCK_AFTER_SECONDS = 3.0  # seconds that a program may stay in native code once it is told to end
STUCK_AFTER_SECONDS = 30.0  # … before it is taken for one that never leaves it
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG, <linux/prctl.h>
_EXIT_FUNCTIONS = ("_exit", "abort", "execv", "execve")  # in `os`; its other exec functions call the last two


class StopRun(SystemExit):
    """Raised in the program where its recording is done and it is to be stopped: it unwinds like sys.exit(0)."""

    def __init__(self) -> None:
        super().__init__(0)


class SaveAbandoned(BaseException):
    """Ctrl-C was pressed again while a trace was being saved."""


class ExitHandlers:
    """Calls `save(how, status)` before the process ends in a way that Python would not unwind.

    `how` names it ("SIGTERM", "os._exit"); `status` is the exit status, None where the process goes on as another
    program; minus the number of a signal, as `subprocess` has it.
    """

    def __init__(self, save: Callable[[str, int | None], None], log: Callable[[str], None]) -> None:
        self._save, self._log = save, log
        self._pid = os.getpid()
        self._depth = 0
        self._pending_signals: list[int] = []
        self._signal_mask = threading.local()  # the signals that were blocked before a fork
        self.is_saving = False  # the end has come to Python code
        self.interrupted = False  # a first Ctrl-C has come: the next one means it

    def install(self) -> None:
        """Catch what can be caught. Signals that the parent chose to ignore (nohup) stay ignored."""
        for signum in _TERMINATION_SIGNALS:
            if signal.getsignal(signum) == signal.SIG_DFL:
                signal.signal(signum, self._save_and_terminate)
        for name in _EXIT_FUNCTIONS:
            setattr(os, name, self._wrap_exit_function(name, getattr(os, name)))
        os.register_at_fork(
            before=self._block_signals, after_in_parent=self._unblock_signals, after_in_child=self._reset_in_child
        )

    @contextlib.contextmanager
    def hold_signals(self) -> Iterator[None]:
        """Signals that come meanwhile are delivered at the end. A second Ctrl-C raises Abandoned here and now."""
        if self._depth or threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {signum: signal.getsignal(signum) for signum in _HELD_SIGNALS}
        # What the program does not hear (a job in the background has no Ctrl-C) is nothing to wait with either.
        handlers = {signum: handler for signum, handler in handlers.items() if handler != signal.SIG_IGN}
        self._depth += 1
        for signum in handlers:
            signal.signal(signum, self._defer_signal)
        try:
            yield
        finally:
            for signum, handler in handlers.items():
                # None: not set from Python, and only C could set it again; Python's default is the nearest.
                signal.signal(signum, signal.SIG_DFL if handler is None else handler)
            self._depth -= 1
            noted, self._pending_signals = self._pending_signals, []
            for number in dict.fromkeys(noted):
                signal.raise_signal(number)

    def watch_native_code(self, torch: Any, call_in_main: Callable[[Callable[[], None]], None]) -> None:
        """End also where SIGTERM finds the main thread in native code that does not return, as a collective whose
        other ranks are gone: Python's handlers never run there. A thread is told by the signal itself, and asks
        `in_main`, which calls a function in the main thread, whether that still runs Python.
        """
        heard, told = map(move_to_high_descriptor, os.pipe())
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        threading.Thread(
            target=self._listen_for_signals, args=(heard, torch, call_in_main), name="torchprof-endings", daemon=True
        ).start()

    def _listen_for_signals(self, heard: int, torch: Any, in_main: Callable[[Callable[[], None]], None]) -> None:
        while signals := os.read(heard, 1):
            # A handler of the program's own may well let it go on.
            if signals[0] not in _TERMINATION_SIGNALS or signal.getsignal(signals[0]) != self._save_and_terminate:
                continue
            runs = threading.Event()
            in_main(runs.set)
            if runs.wait(UNBLOCK_AFTER_SECONDS):
                continue
            if not self.is_saving:
                with contextlib.suppress(Exception):  # an interface of torch's that comes and goes
                    torch.distributed.distributed_c10d._abort_process_group()
            if not runs.wait(STUCK_AFTER_SECONDS - UNBLOCK_AFTER_SECONDS) and not self.is_saving:
                self._log("the program hangs in native code: what is not saved yet is lost")
                os.kill(os.getpid(), signal.SIGKILL)

    def _defer_signal(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGINT:
            if self.interrupted:
                raise SaveAbandoned
            self.interrupted = True
            self._log("saving what was recorded; ctrl+c again to give it up")
        self._pending_signals.append(signum)

    def _save_and_terminate(self, signum: int, frame: FrameType | None) -> None:
        self._save(signal.Signals(signum).name, -signum)
        end_by_signal(signum)

    def _wrap_exit_function(self, name: str, leave: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(leave)
        def leaving(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() == self._pid:
                status = {"_exit": args[0] if args else kwargs.get("status"), "abort": -signal.SIGABRT}.get(name)
                self._save(f"os.{name}", status)
            return leave(*args, **kwargs)

        return leaving

    def _block_signals(self) -> None:
        """From here on a signal to the child waits for `_forget`: Python drops those that its own handlers got in
        between, and their bytes would reach the thread of ours that listens.
        """
        self._signal_mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, _TERMINATION_SIGNALS)

    def _unblock_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._signal_mask.before)

    def _reset_in_child(self) -> None:
        """In a forked child: end as if we were not there."""
        signal.set_wakeup_fd(-1)
        for signum in _TERMINATION_SIGNALS:
            if signal.getsignal(signum) in (self._save_and_terminate, self._defer_signal):
                signal.signal(signum, signal.SIG_DFL)
        self._unblock_signals()


def end_with_parent(parent: str | None = None) -> None:
    """Be sent SIGTERM when the parent ends, even if it is killed; where `parent` is given, if that is its pid.

    Linux alone has it.
    """
    if parent is None or parent == str(os.getppid()):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)


def end_by_signal(signum: int) -> None:
    """End this process by `signum`, so that its parent sees what it would have seen without us."""
    signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)


def let_children_exit() -> None:
    """Call it once torch's profiler has been used: a child that the program forks from now on can end by `exit`.

    Kineto keeps a thread from then on (since torch 2.13, if not before), and what C runs at exit waits for it: for ever
    in a child, which has no such thread. There nothing is run at exit but the flushing of C's own files.
    """
    os.register_at_fork(after_in_child=_exit_at_once)


def _exit_at_once() -> None:
    with contextlib.suppress(OSError, AttributeError):  # on_exit is glibc's
        libc = ctypes.CDLL(None)
        for function in (libc._exit, libc.fcloseall):  # called with the status, the last one first
            libc.on_exit(function, None)
