"""Read without waiting for ever: pipes and terminals as soon as they can be read, files only where they have content.

With any descriptor: `select.select` refuses those from 1,024 on.
"""

from __future__ import annotations

import os
import selectors
import stat
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


def read_begin(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Read at most `max_bytes` of the begin of a regular file; b"" of anything else. Raises OSError.

    A file of /proc or the kernel's tracing is a regular one of 0 bytes, and a read may wait for ever: it is not read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not status.st_size:
            return b""
        return os.read(descriptor, max_bytes)
    finally:
        os.close(descriptor)
