"""Name the tasks and options of a worker process: the arguments of worker_main, for both ends of the pipe."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


class Task(str, Enum):
    """Name what a worker does: the first argument of the program."""

    DECODE = "decode"
    SERVE = "serve"
    LIST = "list"
    SPLIT = "split"


DEFER_BLOCKS_OPTION = "--defer-blocks"
"""Leave the text of a local gzip file whole; `split` writes its blocks later."""


EARLY_OPTION = "--early"
"""Build the beginning of a large file first, and announce it."""

MAX_MESSAGE_BYTES = 8 << 20
"""Bytes of a message, at most: a listing has thousands of names."""
