"""Suspend the app while ssh asks for a login on the terminal."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual.app import App, SuspendNotSupported

from torchprof_tui.trace.core.printable import clean

if TYPE_CHECKING:
    from types import FrameType

    from torchprof_tui.trace.loading.opener import TraceOpener

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ask_for_login(app: App[object], opener: TraceOpener) -> bool:
    """Suspend the app and have ssh ask on the terminal; blocks the event loop, which must not draw meanwhile.

    Returns whether the user answered: not where there is no terminal, or with ctrl+c. `load_trace` may be called again.
    """
    answered = False
    # An exception must not leave `suspend`, which would leave the terminal to the shell.
    with (
        contextlib.suppress(SuspendNotSupported),
        app.suspend(),
        contextlib.suppress(KeyboardInterrupt),
        _raise_on_interrupt(),
    ):
        print(f"\ntorchprof-tui: log in to open {clean(opener.label)} (ctrl+c goes back)", file=sys.stderr)
        opener.wait_until_connected()
        answered = True
    return answered


@contextlib.contextmanager
def _raise_on_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on signals that end the app otherwise, or that it would handle only after the login.

    asyncio learns of signals through the wakeup descriptor: without taking it away, its loop would also call the app's
    own handler of ctrl+c once it goes on, and end the app. The other signals are raised again, and do end it.
    """
    received: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    wakeup = signal.set_wakeup_fd(-1)
    previous = {number: signal.signal(number, interrupt) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        for caught in received:
            if caught != signal.SIGINT:
                signal.raise_signal(caught)
