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
    """Raise KeyboardInterrupt on signals that end the app otherwise, or that it would handle only after the login."""
    previous = {number: signal.getsignal(number) for number in _INTERRUPTS}
    for number in _INTERRUPTS:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
