"""Run the code that findings show against the code that it replaces: "A  # instead of B" must compute the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.later_imports import import_later
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.rules.remedy_choice import HIDDEN_COPY_REMEDIES

torch = import_later("torch")


def show_pattern(pattern_id: str) -> Callable[[], str]:
    return lambda: PATTERNS[pattern_id].code


def show_copy(op: str) -> Callable[[], str]:
    def find() -> str:
        remedy = HIDDEN_COPY_REMEDIES.get(op)
        assert remedy is not None
        return remedy.code

    return find


def make_tensors() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(3)

    def random(*shape: int) -> Any:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return {
        "torch": torch,
        "x": random(5, 6),
        "w": random(6, 7),
        "b": random(5, 7),
        "qkv": random(3, 4, 5),
        "sizes": [2, 4],
        "n": 2,
        "indices": torch.tensor([4, 0, 0, 2]),
        "scores": random(4, 4),
        "mask": torch.eye(4, dtype=torch.bool),
    }


REPLACED = [
    (show_pattern("copy-before-gemm"), "y", "torch.addmm(b, x, w)"),
    (show_copy("aten::addmm"), "y", "torch.addmm(b, x, w)"),
    (show_copy("aten::select_backward"), "torch.stack([q, k, v])", "torch.stack([qkv[0], qkv[1], qkv[2]])"),
    (show_copy("aten::slice_backward"), "torch.cat([b, a], 1)", "torch.cat([x[..., n:], x[..., :n]], 1)"),
    (show_copy("aten::_index_put_impl_"), "y", "torch.stack([x[i] for i in indices])"),
    (show_copy("aten::masked_fill"), "scores", "scores.masked_fill(mask, float('-inf'))"),
]
"""(Code shown, result of it, what it replaces); the last is as the comment behind the code says, in runnable words."""


@pytest.mark.parametrize(("find_code", "result", "replaced"), REPLACED)
def test_shown_code_computes_the_same(find_code: Callable[[], str], result: str, replaced: str) -> None:
    code = find_code()
    names = make_tensors()
    exec(code, names)
    expected = eval(replaced, make_tensors())
    torch.testing.assert_close(eval(result, names), expected)


def test_a_bias_in_place_is_not_copied() -> None:
    """addmm_ writes into its bias, so no copy of it can be needed: the result lies where the bias lay."""
    names = make_tensors()
    exec(PATTERNS["copy-before-gemm"].code, names)
    assert names["y"].data_ptr() == names["b"].data_ptr()


def test_all_shown_code_can_be_parsed() -> None:
    """Lines of Python; what has an ellipsis, or is a command line, is no program."""
    for pattern in PATTERNS.values():
        if pattern.code and "…" not in pattern.code and "..." not in pattern.code and re.search(r"[(=]", pattern.code):
            words = pattern.code.split()
            if not re.match(r"[a-z_.-]+$|[A-Z_]+=", words[0]):
                compile(pattern.code.removesuffix(":"), pattern.id, "exec")
