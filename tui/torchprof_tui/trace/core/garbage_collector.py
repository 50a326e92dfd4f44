"""Control of the cyclic garbage collector while many objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def disable_garbage_collector() -> Iterator[None]:
    """Disable the collector: decoding makes millions of short-lived dicts, no cycles, and would take twice the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
