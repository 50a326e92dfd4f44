"""Decompress blocks on a thread, a few blocks ahead of the decoder."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

_MAX_PREFETCHED_BLOCKS = 4
"""Decompressed blocks queued for the decoder, at most: about 4 MB."""


class Prefetcher:
    """Iterates over blocks on a thread, a few blocks ahead of the consumer. `stop` unblocks a read in progress."""

    def __init__(self, blocks: Iterator[bytes], stop: Callable[[], None] | None = None) -> None:
        self._blocks = blocks
        self._stop = stop
        self._queue: queue.Queue[bytes | BaseException | None] = queue.Queue(_MAX_PREFETCHED_BLOCKS)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inflate", daemon=True)

    def __iter__(self) -> Iterator[bytes]:
        self._thread.start()
        try:
            while (item := self._queue.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self._stopped.set()
            if self._stop is not None:
                self._stop()
            self._thread.join()

    def _run(self) -> None:
        last: BaseException | None = None
        try:
            for block in self._blocks:
                if not self._put_block(block):
                    return
        except BaseException as error:
            last = error  # raised by the consumer's iterator
        self._put_block(last)

    def _put_block(self, item: bytes | BaseException | None) -> bool:
        """Queue an item; returns False if the consumer has stopped."""
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=0.05)
            except queue.Full:
                continue
            return True
        return False
