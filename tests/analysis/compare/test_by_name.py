"""Counts and times by name equal those of HolisticTraceAnalysis 0.5.0; see README.md beside this file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.analysis.compare.hta_reference import Table, round_totals, run_trace_diff
from tests.analysis.compare.sides import load_side, side_of
from tests.helpers.paths import FIXTURES, SAMPLES, SHARED_TRACES
from tests.helpers.trace_builder import cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.compare.matched_rows import Device, NameRow, compare_by_name
from torchprof_tui.analysis.compare.op_tree import Side

ANSWERS = FIXTURES / "compare" / "hta_answers.json"
"""HTA's own tables of SAMPLE_PAIRS: {"first second": {"cpu": table, "gpu": table}}."""

SAMPLE_PAIRS = (
    ("matmul_add_4096_warm_eager", "matmul_add_4096_warm_compile"),
    ("geglu_mlp_eager", "geglu_mlp_compile"),
)
PUBLIC = SHARED_TRACES / "public/facebookresearch+HolisticTraceAnalysis"
PUBLIC_PAIRS = (
    ("control.json.gz", "sampled_rank-0.json.gz"),
    ("control.json.gz", "df_index_resolver.json.gz"),
)
DEVICES: tuple[Device, ...] = ("cpu", "gpu")
ANNOTATIONS = {"matmul_add", "mlp_fwd"}
"""Annotations that HTA also counts once per extent on the GPU, as calls on the CPU."""


def check_table(a: Side, b: Side, device: Device, expected: Table, left_out: set[str]) -> None:
    rows = {row.name: row for row in compare_by_name(a, b, device)}
    assert rows.keys() == expected.keys()
    totals = round_totals(a, device), round_totals(b, device)
    found = {
        name: [row.count_a, row.count_b, totals[0].get(name, 0), totals[1].get(name, 0)] for name, row in rows.items()
    }
    assert {n: v for n, v in found.items() if n not in left_out} == {
        n: v for n, v in expected.items() if n not in left_out
    }


def test_counts_and_times_of_a_small_pair() -> None:
    a = trace(step(0, 0, 100), cpu("aten::mm", 10, 20), runtime("cudaLaunchKernel", 12, 3, 1), kernel("gemm", 30, 9, 1))
    b = trace(step(0, 0, 100), cpu("aten::mm", 10, 25), cpu("aten::mm", 50, 20), cpu("aten::add", 110, 1))
    assert compare_by_name(side_of(a), side_of(b), "cpu") == (
        NameRow("ProfilerStep#0", 1, 1, 100_000, 100_000),
        NameRow("aten::mm", 1, 2, 20_000, 45_000),  # aten::add is after the step
        NameRow("cudaLaunchKernel", 1, 0, 3_000, 0),
    )
    assert compare_by_name(side_of(a), side_of(b), "gpu") == (NameRow("gemm", 1, 0, 9_000, 0),)


@pytest.mark.parametrize(("first", "second"), SAMPLE_PAIRS)
@pytest.mark.parametrize("device", DEVICES)
def test_samples_equal_the_recorded_answer(first: str, second: str, device: Device) -> None:
    expected = json.loads(ANSWERS.read_text())[f"{first} {second}"][device]
    sides = [load_side(SAMPLES / f"{name}.pt.trace.json.gz") for name in (first, second)]
    check_table(sides[0], sides[1], device, expected, ANNOTATIONS)


@pytest.mark.parametrize(("first", "second"), PUBLIC_PAIRS)
def test_public_pairs_equal_hta(first: str, second: str, tmp_path: Path) -> None:
    """Exactly, in whole microseconds as recorded: runs HTA where it is installed."""
    pytest.importorskip("hta", reason="HolisticTraceAnalysis is not installed")
    if not PUBLIC.exists():
        pytest.skip("the shared traces are not here")
    answer = run_trace_diff(PUBLIC / first, PUBLIC / second, tmp_path)
    a, b = load_side(PUBLIC / first), load_side(PUBLIC / second)
    for device in DEVICES:
        check_table(a, b, device, answer[device], set())
        for row in compare_by_name(a, b, device):
            assert [row.total_a, row.total_b] == [1000 * total for total in answer[device][row.name][2:]]


@pytest.mark.parametrize(("first", "second"), SAMPLE_PAIRS)
def test_recorded_answer_is_that_of_hta(first: str, second: str, tmp_path: Path) -> None:
    pytest.importorskip("hta", reason="HolisticTraceAnalysis is not installed")
    paths = [SAMPLES / f"{name}.pt.trace.json.gz" for name in (first, second)]
    assert run_trace_diff(paths[0], paths[1], tmp_path) == json.loads(ANSWERS.read_text())[f"{first} {second}"]
