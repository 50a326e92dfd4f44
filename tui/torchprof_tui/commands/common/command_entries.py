"""Close the cache entries that a command has opened, so that a process that calls several commands keeps none.

The cache is not imported for this: a command that opens no trace answers without it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_CACHE = "torchprof_tui.trace.storage.disk_cache"


@contextmanager
def close_command_entries() -> Iterator[None]:
    """Close the entries that are opened in this context; those that were open before stay so."""
    before = _find_cache()
    kept = set() if before is None else before.list_open_entries()
    try:
        yield
    finally:
        cache = _find_cache()
        if cache is not None:
            cache.close_entries(keep=kept)


def _find_cache() -> Any:
    """Find the module of the cache, None where it is not imported."""
    return sys.modules.get(_CACHE)
