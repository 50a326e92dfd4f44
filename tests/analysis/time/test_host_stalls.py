"""Test the comparison of the ranks' hosts by the same ops."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.merged_ranks import load_shared_ranks
from torchprof_tui.analysis.time.host_stalls import MIN_RUNS, SLOWER_RATIO, compare_host_speed


def scan_medians(path: Path) -> dict[str, float]:
    """The median duration (µs) of each aten op that ran often enough, from the JSON alone."""
    durations = defaultdict(list)
    for entry in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
        if entry.get("ph") == "X" and entry.get("cat") == "cpu_op" and entry["name"].startswith("aten::"):
            durations[entry["name"]].append(entry["dur"])
    return {name: median(times) for name, times in durations.items() if len(times) >= MIN_RUNS and median(times) > 0}


@pytest.mark.parametrize(("name", "slowest", "fastest"), keep_some([("ddp", 2, 1), ("fsdp", 3, 0)], 1))
def test_the_factors_equal_a_scan_of_the_files(name: str, slowest: int, fastest: int) -> None:
    paths, merged = load_shared_ranks(name)
    assert merged.merged_ranks is not None
    speed = compare_host_speed(merged.merged_ranks)
    medians = [scan_medians(path) for path in paths]
    common = sorted(set.intersection(*map(set, medians)))
    ratios = [[of_rank[op] / medians[fastest][op] for op in common] for of_rank in medians]
    assert (speed.slowest, speed.fastest, speed.op_count) == (slowest, fastest, len(common))
    assert speed.factor.tolist() == pytest.approx([median(of_rank) for of_rank in ratios], rel=1e-3)
    slower = [sum(ratio >= SLOWER_RATIO for ratio in of_rank) / len(common) for of_rank in ratios]
    assert speed.slower_share.tolist() == pytest.approx(slower, abs=0.03)  # a ratio may lie on the limit
