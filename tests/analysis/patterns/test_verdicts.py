"""Compare verdicts with those that were written from the raw traces before the program was asked.

`expectations/verdicts/README.md` says how they were read, and how each difference was settled.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.paths import SAMPLES, SHARED_TRACES, find_shared_trace, is_long
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.verdict.rank_checks import MultiRankChecker
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
from torchprof_tui.trace.loading.load_in_process import load_trace

_FOLDER = Path(__file__).parent / "expectations" / "verdicts"


def _read_expectations() -> dict[str, dict[str, Any]]:
    expectations: dict[str, dict[str, Any]] = {}
    for file in sorted(_FOLDER.glob("*.json")):
        expectations |= json.loads(file.read_text(encoding="utf-8"))
    return expectations


EXPECTATIONS = _read_expectations()
RUNS = {key for key in EXPECTATIONS if not key.endswith((".json", ".gz"))}


def _resolve_paths(key: str) -> list[Path]:
    """Resolve a key of the expectations to its trace files; skips the test where they are missing."""
    if key.startswith("samples/"):
        found = [SAMPLES / key.removeprefix("samples/")]
    else:
        found = sorted(SHARED_TRACES.glob(key)) if "*" in key else [find_shared_trace(key)]
    if len(found) == 1 and found[0].is_dir():
        found = sorted(found[0].glob("*.json.gz"))
    if not found or not all(path.exists() for path in found):
        pytest.skip("this trace is not here")
    return found


@cache
def _decide(key: str) -> list[Verdict]:
    """Decide the verdict of one trace, or of each rank of a run."""
    paths = _resolve_paths(key)
    if key in RUNS:
        checker = MultiRankChecker(load_merged_ranks(paths))
        return checker.check(checker.default_scope)[1]
    checker = Checker(load_trace(str(paths[0]), cache=False))
    return [checker.decide_verdict(findings=checker.check())]


def _mark_long(key: str) -> Any:
    """Leave large traces to the long run, and whole runs, whose ranks are judged one by one, too."""
    path = find_shared_trace(key)
    return pytest.param(key, id=key, marks=pytest.mark.long if path.is_dir() or is_long(path) else ())


TRACES_AND_RUNS = keep_some(map(_mark_long, EXPECTATIONS), 30)


@pytest.mark.parametrize("key", keep_some(TRACES_AND_RUNS, 8))
def test_the_verdict_says_what_was_expected(key: str) -> None:
    expected, verdicts = EXPECTATIONS[key], _decide(key)
    assert find_differences(expected, verdicts) == []


def find_differences(expected: dict[str, Any], verdicts: list[Verdict]) -> list[str]:
    """List how a verdict (of a run: all of its ranks' verdicts) differs from what was expected of it."""
    differences = []
    text = " / ".join(f"{verdict.first} {verdict.why}" for verdict in verdicts).lower()
    first = " / ".join(verdict.first for verdict in verdicts).lower()
    if not any(verdict.regime.value in expected["regimes"] for verdict in verdicts):
        differences.append(f"regime {verdicts[0].regime.value}, not {' or '.join(expected['regimes'])}")
    differences += [
        f"says none of {group}: {first}"
        for group in expected["must"]
        if not any(re.search(alternative, text) for alternative in group)
    ]
    return differences + [f"says {advice!r}: {first}" for advice in expected["must_not"] if re.search(advice, first)]


SETTLED_SHARES = {
    "matmul_add_64_sched0_active20.pt.trace.json.gz": {"cold_call", "dispatch"},
    "matmul_add_64_sched0_active3.pt.trace.json.gz": {"cold_call", "dispatch"},
    "samples/matmul_add_64_sched0_active3.pt.trace.json.gz": {"cold_call", "dispatch"},
    "public/facebookresearch+HolisticTraceAnalysis/benchmark_result_493459_1694039959_trace.json.gz": {
        "cold_call",
        "dispatch",
    },
    "public/facebookresearch+HolisticTraceAnalysis/benchmark_result_924719_1679055439_trace.json.gz": {
        "cold_call",
        "dispatch",
    },
    "public/facebookresearch+HolisticTraceAnalysis/backward_thread.json": {"host_code", "queued", "unknown"},
    "public/facebookresearch+HolisticTraceAnalysis/triton_example.json.gz": {"host_code", "unknown"},
    "public/facebookresearch+HolisticTraceAnalysis/cuda_event_sync_event_sync_trace.json.gz": {"host_code", "input"},
    "public/facebookresearch+HolisticTraceAnalysis/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz": {"host_code"},
    "public/xiaobingling93-pixel+Ascend-mstt/trace_view.json.gz": {"dispatch", "launch"},
}
"""Causes of which the reading and the program differ; `expectations/verdicts/README.md` says why."""

_TOLERANCE = 0.055
"""Two readings of one trace differ by less: in what counts as inside an op, and in the last digits of busy."""


@pytest.mark.parametrize("key", [each for each in TRACES_AND_RUNS if each.values[0] not in RUNS])
def test_the_shares_of_the_time_are_those_of_the_raw_trace(key: str) -> None:
    expected, (verdict,) = EXPECTATIONS[key], _decide(key)
    if verdict.tree is None:
        assert not expected["shares"]
        return
    parts = {part.id: part.time for part in verdict.tree.parts}
    window = sum(time for part_id, time in parts.items() if part_id != "outside")
    ours, theirs = Counter[str](), Counter(expected["shares"])
    for part_id, time in parts.items():
        ours[_COMMON_NAMES.get(part_id, part_id)] += time / window
    theirs["unknown"] += theirs.pop("unknown_edge", 0) + theirs.pop("tail", 0)
    same = [cause for group in expected.get("same", ()) for cause in group]
    left_out = {"outside", "busy", "communication", *SETTLED_SHARES.get(key, ()), *same}
    differing = {
        cause: (round(ours[cause], 3), theirs[cause])
        for cause in {*ours, *theirs} - left_out
        if abs(ours[cause] - theirs[cause]) > _TOLERANCE
    }
    assert differing == {}
    if not SETTLED_SHARES.get(key) and expected["busy"] is not None:
        assert ours["busy"] == pytest.approx(expected["busy"], abs=_TOLERANCE)


_COMMON_NAMES = {
    "compute": "busy",
    "copies": "busy",
    "exposed_communication": "busy",
    "unknown_edge": "unknown",
    "ops": "dispatch",
    "cpu_compute": "dispatch",  # the reading does not tell what an op does without a launch
}


def test_each_settled_difference_is_one() -> None:
    assert SETTLED_SHARES.keys() <= EXPECTATIONS.keys()
