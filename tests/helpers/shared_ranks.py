"""Traces of several ranks, loaded as one: from any rank files, or from the sets of the shared traces."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.helpers.paths import SHARED_TRACES
from torchprof_tui.trace.loading.load import load_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.ranks.collective_records import read_collectives
from torchprof_tui.trace.ranks.merge import OpenedRank, merge_ranks

SHARED_RANK_SETS = {
    "ddp": ("ddp_4ranks", "*.gz"),
    "fsdp": ("fsdp_4ranks", "*.gz"),
    "dlrm": ("public/facebookresearch+param", "worker*.gz"),
}
"""Name → (folder of the shared traces, pattern of the rank files)."""


def load_ranks(paths: list[Path]) -> Trace:
    """Load rank files without the cache and merge them into one trace."""
    traces = [load_trace(str(path), cache=False) for path in paths]
    return merge_ranks(
        [OpenedRank(trace.rank or 0, trace.label, trace, read_collectives(trace)) for trace in traces], "ranks"
    )


@cache
def load_shared_ranks(name: str) -> tuple[list[Path], Trace]:
    """Load a set of shared ranks once: (its files, the merged trace). Skips the test if the files are missing."""
    folder, pattern = SHARED_RANK_SETS[name]
    paths = sorted((SHARED_TRACES / folder).glob(pattern))
    if not paths:
        pytest.skip("these ranks are not here")
    return paths, load_ranks(paths)
