"""Interpreter settings that hold for the whole process: the switch interval and the garbage collector.

In the middle of a process both are changed only through the context managers, which restore the previous value, so that
nested uses and tests do not disturb each other.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def use_switch_interval(seconds: float) -> Iterator[None]:
    """Set how long a thread keeps the GIL while another one waits for it; Python's default is 5 ms.

    A thread that returns from a system call or from numpy to Python waits that long for a busy thread, so threads that
    work in short bursts beside one that runs Python all the time need a shorter interval.
    """
    previous = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(previous)


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Disable the cyclic collector.

    Decoding creates millions of short-lived dicts and no cycles; the collector would traverse them again and again and
    double the time. Reference counts free them without it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def start_without_collections() -> None:
    """Disable the cyclic collector at the start of a process, until `freeze_imported_objects`.

    At the end, no collection visits what is left: the process gives its memory back as a whole.
    """
    gc.disable()
    atexit.register(gc.freeze)


def freeze_imported_objects() -> None:
    """Exclude all objects so far from collections, and enable the collector, where it is disabled."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
