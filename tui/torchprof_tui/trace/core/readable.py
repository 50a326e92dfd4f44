"""Wait until pipes or terminals can be read, with any descriptor: `select.select` refuses those from 1,024 on."""

from __future__ import annotations

import selectors
import sys
from collections.abc import Sequence

# epoll refuses what is always readable, such as /dev/null in place of a terminal; macOS cannot poll terminals.
_Selector = selectors.PollSelector if sys.platform == "linux" else selectors.DefaultSelector


def wait_until_readable(files: Sequence[int], seconds: float | None = None) -> list[int]:
    """Wait for at most `seconds` (None: for ever); return the descriptors that can be read or have ended."""
    with _Selector() as selector:
        for file in files:
            selector.register(file, selectors.EVENT_READ)
        return [key.fd for key, _ in selector.select(seconds)]
