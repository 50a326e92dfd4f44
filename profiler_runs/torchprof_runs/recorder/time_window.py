"""Record between two points in time, and call functions in the main thread, which that needs."""

from __future__ import annotations

import collections
import os
import signal
import sys
import threading
from collections.abc import Callable

# The profiler must be started and stopped in the program's own thread, so a signal runs the call there. Programs hardly
# ever use the last real-time signals. macOS has none; there SIGINFO does nothing unless a program asks for it.
_CALL_SIGNAL: int = signal.SIGRTMAX - 3 if hasattr(signal, "SIGRTMAX") else getattr(signal, "SIGINFO", signal.SIGUSR2)


def is_loading_torch() -> bool:
    """Return whether a module of torch is being imported right now.

    torch imports some of its modules late, for example when the program creates its first optimizer. A profiler that
    is started at that moment would find some modules imported only in part.
    """
    return any(
        getattr(getattr(module, "__spec__", None), "_initializing", False)
        for name, module in list(sys.modules.items())
        if name == "torch" or name.startswith("torch.")
    )


RETRY_SECONDS = 0.02  # seconds between attempts to begin while torch is loading


class MainThreadCaller:
    """Call functions in the main thread, between two of its bytecodes. Must be created in the main thread."""

    def __init__(self) -> None:
        self._calls: collections.deque[Callable[[], None]] = collections.deque()
        self._pid = os.getpid()
        self._ident = threading.main_thread().ident
        signal.signal(_CALL_SIGNAL, self._run_calls)
        # System calls made by C code are restarted after the signal; Python restarts its own.
        signal.siginterrupt(_CALL_SIGNAL, False)

    def call(self, function: Callable[[], None]) -> None:
        """Run `function` in the main thread soon; its exceptions are raised there."""
        if threading.get_ident() == self._ident:
            function()
            return
        self._calls.append(function)
        if self._ident is not None:
            signal.pthread_kill(self._ident, _CALL_SIGNAL)

    def _run_calls(self, signum: int, frame: object) -> None:
        while self._calls and os.getpid() == self._pid:
            self._calls.popleft()()


class TimeWindow:
    """Call `begin` after `after` seconds and `end` after `duration` more, each in the main thread.

    `begin` is delayed while torch is loading and while the main thread runs native code; `duration` counts from the
    moment when `begin` was called.
    """

    def __init__(
        self,
        after: float,
        duration: float | None,
        main_thread: MainThreadCaller,
        begin: Callable[[], None],
        end: Callable[[], None],
    ) -> None:
        self.after, self.duration = after, duration
        self._main_thread, self._begin, self._end = main_thread, begin, end
        self._cancelled = threading.Event()
        self._attempted = threading.Event()
        self.begun = False

    def start(self) -> None:
        """Start the clock; with `after` 0, call `begin` now."""
        if self.after == 0:
            self._try_begin()
        if self.after > 0 or self.duration is not None:
            threading.Thread(target=self._run_timer, name="torchprof-window", daemon=True).start()

    def cancel(self) -> None:
        """Call neither `begin` nor `end` from now on."""
        self._cancelled.set()

    def _try_begin(self) -> None:
        if not self._cancelled.is_set() and not is_loading_torch():
            self.begun = True
            self._begin()
        self._attempted.set()

    def _run_timer(self) -> None:
        delay = self.after
        while not self.begun:
            if self._cancelled.wait(delay):
                return
            self._attempted.clear()
            self._main_thread.call(self._try_begin)
            self._attempted.wait()
            delay = RETRY_SECONDS
        if self.duration is not None and not self._cancelled.wait(self.duration):
            self._main_thread.call(self._end)
