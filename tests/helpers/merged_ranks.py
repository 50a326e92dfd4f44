"""Load the trace files of several ranks as one merged trace: any files, or the shared sets of real ranks."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.helpers.paths import find_shared_trace
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.ranks.collective_matching import read_collectives
from torchprof_tui.trace.ranks.merge import OpenedRank, merge_ranks

SHARED_RANK_SETS = {
    "ddp": ("ddp_4ranks", "*.gz", 21),
    "ddp step": ("ddp_one_step", "*.gz", 7),
    "fsdp": ("fsdp_4ranks", "*.gz", 60),
    "dlrm": ("public/facebookresearch+param", "worker*.gz", 8),
}
"""Name -> (folder of the shared traces, pattern of the files, number of matched collectives)."""


def load_merged_ranks(paths: list[Path]) -> Trace:
    """Load the files in this process, without the cache, and merge their traces; one without a rank is rank 0."""
    traces = [load_trace(str(path), cache=False) for path in paths]
    return merge_ranks(
        [OpenedRank(trace.rank or 0, trace.label, trace, read_collectives(trace)) for trace in traces], "ranks"
    )


@cache
def load_shared_ranks(name: str) -> tuple[list[Path], Trace]:
    """Load one of SHARED_RANK_SETS once: its files and the merged trace. Skips the test if the files are missing."""
    folder, pattern, _ = SHARED_RANK_SETS[name]
    paths = sorted(find_shared_trace(folder).glob(pattern))
    if not paths:
        pytest.skip("these ranks are not here")
    return paths, load_merged_ranks(paths)
