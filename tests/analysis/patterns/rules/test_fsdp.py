"""Test the pattern of FSDP's all-gathers that come too late to be hidden."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, Cases, case_params, check_case
from tests.helpers.pattern_traces import GEMM, GPU_ONLY, SHAPE, check_pattern, op_with_work
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import Finding, State
from torchprof_tui.trace.loading.load_in_process import load_trace

GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def layers(
    *gathers: float, hidden: bool = False, owner: str = "fsdp::all_gather_copy_in", nbytes: int = 8 << 20
) -> list[Entry]:
    """Layers of 400 µs, each with an all-gather of this length before it, or beside it."""
    entries: list[Entry] = [step(1, 0, 1000 * len(gathers))]
    size = {"Out msg nelems": nbytes // 2, "dtype": "BFloat16"}
    for number, length in enumerate(gathers):
        at, corr = 1000.0 * number, number + 1
        entries += [cpu(owner, at, 20), runtime("cudaLaunchKernel", at + 5, 5, corr)]
        entries.append(kernel(GATHER, at + 30, length, corr, stream=20, **SHAPE, **size))
        entries += op_with_work("aten::mm", at + 40, at + 30 + (0 if hidden else length), 400, GEMM)
    return entries


CASES: Cases = {
    "fsdp-prefetch": {ABSENT: layers(200, 200, 200, hidden=True), CANNOT_TELL: layers(200, 200, 200)},
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def check_file(folder: Path, entries: list[Entry]) -> Finding:
    """Check the entries as a file: the sizes of messages are read from there."""
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": entries}), encoding="utf-8")
    return Checker(load_trace(str(path), cache=False)).check(ids=["fsdp-prefetch"])[0]


def test_only_the_transfer_is_at_stake(tmp_path: Path) -> None:
    finding = check_file(tmp_path, layers(200, 350, 250))  # 8 MiB in 200 µs: 42 GB/s
    assert finding.answer.seen == (
        "800.0 µs of 3 all-gathers is exposed, 27 % of the steps; 600.0 µs of it is transfer"
    )
    assert finding.answer.at_stake == 600_000


def test_slow_gathers_only_wait(tmp_path: Path) -> None:
    finding = check_file(tmp_path, layers(200, 350, 250, nbytes=1 << 20))  # 5 GB/s: no link is that slow
    assert finding.state is CANNOT_TELL
    assert "open the other ranks" in finding.answer.reason


@pytest.mark.parametrize("entries", [layers(200, 200, owner="aten::add"), GPU_ONLY])
def test_without_fsdp_it_is_absent(entries: list[Entry]) -> None:
    assert check_pattern(trace(*entries), "fsdp-prefetch").state is ABSENT


def test_the_remedy_is_that_of_the_version(tmp_path: Path) -> None:
    assert "set_modules_to_forward_prefetch" in check_file(tmp_path, layers(200, 200)).remedy.code
    first = [*layers(200, 200, owner="aten::copy_"), annotation("FullyShardedDataParallel.forward", 0, 900)]
    assert "forward_prefetch=True" in check_file(tmp_path, first).remedy.code
