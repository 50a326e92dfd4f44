"""Test parsing of guesses and their comparison with the launched kernels."""

from __future__ import annotations

import pytest

from tests.helpers.trace_builder import cpu, kernel, runtime, trace
from torchprof_tui.analysis.kernel.kernel_guess import Guess, compare_guesses, find_work_launched_between, parse_guesses

GEMM = "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3> >(int)"
)


@pytest.mark.parametrize(
    ("text", "guesses"),
    [
        ("", []),
        (" , ,", []),
        ("gemm", [Guess("gemm", None)]),
        ("GEMM 2, Elementwise", [Guess("gemm", 2), Guess("elementwise", None)]),
        ("2 gemm, 3x flash", [Guess("gemm", 2), Guess("flash", 3)]),
        ("gemm: 2, gemm 3", [Guess("gemm", 5)]),
        ("sm90", [Guess("sm90", None)]),
        ("7", [Guess("7", None)]),
        ("matrix 2, gemm x2, gemm ×1, at::native = 4", [Guess("matrix", 2), Guess("gemm", 3), Guess("at::native", 4)]),
        ("gemm x 2, flash 3x", [Guess("gemm", 2), Guess("flash", 3)]),
        ("gemm " + "9" * 5_000, [Guess("gemm " + "9" * 5_000, None)]),
        *((text, [Guess(text, None)]) for text in ("q" + "x" * 100_000 + "a", "q" + "=:" * 100_000 + "b")),
    ],
)
def test_what_people_type(text: str, guesses: list[Guess]) -> None:
    assert parse_guesses(text) == guesses


def test_mismatches_come_first_and_the_unexpected_is_told() -> None:
    shown = trace(
        cpu("aten::linear", 0, 100),
        runtime("cudaLaunchKernel", 10, 5, corr=1),
        runtime("cudaLaunchKernel", 20, 5, corr=2),
        runtime("cudaLaunchKernel", 30, 5, corr=3),
        runtime("cudaLaunchKernel", 200, 5, corr=4),
        kernel(GEMM, 150, 30, corr=1),
        kernel(ADD, 180, 4, corr=2),
        kernel(ADD, 185, 6, corr=3),
        kernel(GEMM, 210, 30, corr=4),
    )
    assert len(find_work_launched_between(shown, 0, 100_000)) == 3
    rows = compare_guesses(shown, 0, 100_000, parse_guesses("matmul 1, flash 2"))
    assert [(row.term, row.is_correct, row.actual_count, row.time) for row in rows] == [
        ("elementwise", False, 2, 10_000),
        ("flash", False, 0, 0),
        ("matmul", True, 1, 30_000),
    ]
    assert rows[0].guess is None
    assert shown.event(rows[0].longest_event).duration == 6_000
    assert all(row.is_correct for row in compare_guesses(shown, 0, 100_000, parse_guesses("gemm 1, vectorized")))
    assert compare_guesses(shown, 300_000, 400_000, []) == []
