"""Inflate a compressed file once for several processes, each of which decodes one part of its text.

The inflater skips the text up to where a part begins and forks a process there, which has a copy of the decompressor
and so goes on inflating by itself; the inflater goes on to the next part. The last part is decoded in the inflater.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torchprof_tui.trace.core.readable import wait_until_readable
from torchprof_tui.trace.sources.prefetch import Prefetcher
from torchprof_tui.trace.sources.source import Source


@dataclass(frozen=True, slots=True)
class InflatedPart:
    """A part that begins after offset `target` of the text.

    `run` decodes it: source, blocks, the offset where these begin, and a pipe that closes when the parent ends.
    `close_outputs`: closes the pipes that `run` writes to.
    """

    target: int
    run: Callable[[Source, Iterator[bytes], int, int], None]
    close_outputs: Callable[[], None]


def inflate_for_workers(source: Source, parts: list[InflatedPart], parent_alive: int) -> None:
    """Inflate a source, and decode each part in a process of its own, the last one in this process.

    Waits for all of them. Must run in a process without other threads. Raises OSError, TraceError.
    """
    source = source.reopen()
    waiting = list(parts)
    children: list[int] = []
    try:
        _start_parts(source, waiting, children, parent_alive)
    finally:
        _close_outputs(waiting)
        for child in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def _start_parts(source: Source, waiting: list[InflatedPart], children: list[int], parent_alive: int) -> None:
    """Fork a process for each part but the last, which is decoded here. Moves what was started out of `waiting`."""
    blocks = source.blocks_in_this_thread()
    offset = 0
    for block in blocks:
        if wait_until_readable([parent_alive], 0):
            return  # the parent has ended
        while waiting and waiting[0].target < offset + len(block):
            part = waiting.pop(0)
            rest = itertools.chain([block], blocks)
            if not waiting:
                part.run(source, iter(Prefetcher(rest)), offset, parent_alive)
                return
            child = os.fork()
            if not child:
                status = 1
                try:
                    _close_outputs(waiting)
                    source.reopen_in_place()
                    part.run(source, iter(Prefetcher(rest)), offset, parent_alive)
                    status = 0
                finally:
                    os._exit(status)
            children.append(child)
            part.close_outputs()
        offset += len(block)


def _close_outputs(parts: list[InflatedPart]) -> None:
    for part in parts:
        part.close_outputs()
