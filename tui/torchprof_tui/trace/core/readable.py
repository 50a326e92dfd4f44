"""Wait until pipes or terminals can be read, with any descriptor: `select.select` refuses those from 1,024 on."""

from __future__ import annotations

import selectors
from collections.abc import Sequence


def wait_until_readable(files: Sequence[int], seconds: float | None = None) -> list[int]:
    """Wait for at most `seconds` (None: for ever); return the descriptors that can be read or have ended."""
    with selectors.DefaultSelector() as selector:
        for file in files:
            selector.register(file, selectors.EVENT_READ)
        return [key.fd for key, _ in selector.select(seconds)]
