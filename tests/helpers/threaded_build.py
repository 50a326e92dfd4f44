"""Build traces of any size on several threads, so that small ones are divided as large ones are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest.mock import patch

from torchprof_tui.trace.build import lane_order, nesting, sparse_columns
from torchprof_tui.trace.core import thread_tasks
from torchprof_tui.trace.model import row_index


@contextlib.contextmanager
def divide_among_threads(threads: int, size: int = 16) -> Iterator[None]:
    """Divide columns and lanes of more than `size` elements among so many threads."""
    with contextlib.ExitStack() as patches:
        for module in (thread_tasks, sparse_columns):
            patches.enter_context(patch.object(module, "count_cores", lambda: threads))
        for module in (thread_tasks, sparse_columns, lane_order, row_index):
            patches.enter_context(patch.object(module, "MIN_SLICE_SIZE", size))
        patches.enter_context(patch.object(nesting, "_PART_EVENTS", size))
        patches.enter_context(patch.object(thread_tasks, "_BLOCK", 1))
        yield
