"""Run the code that findings show against the code that it replaces: "A  # instead of B" must compute the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from tests.helpers.later_imports import import_later
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.rules.remedy_choice import HIDDEN_COPY_REMEDIES

torch = import_later("torch")
pytestmark = pytest.mark.torch


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


def test_shown_code_of_models_computes_the_same() -> None:
    """Code that its pattern describes, and whose comment names nothing that it replaces."""
    functional = torch.nn.functional

    def run(pattern_id: str, **names: Any) -> dict[str, Any]:
        exec(PATTERNS[pattern_id].code, scope := {"torch": import_module("torch"), "F": functional, **names})
        return scope

    torch.manual_seed(0)
    before = torch.randn((3, 5)).to("cpu")
    torch.manual_seed(0)
    assert torch.equal(run("cpu-work", shape=(3, 5), device="cpu")["x"], before)

    q, k, v = torch.randn(2, 8, 5, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)
    repeated = (part.repeat_interleave(4, dim=1) for part in (k, v))
    expected = functional.scaled_dot_product_attention(q, *repeated, is_causal=True)
    result = eval(PATTERNS["gqa-expand-copy"].code, {"F": functional, "q": q, "k": k, "v": v})
    torch.testing.assert_close(result, expected)

    cache, keys = torch.zeros(2, 3, 6, 4), torch.randn(2, 3, 1, 4)
    run("kv-cache-cat", cache=cache, keys=keys, position=torch.tensor([2]))
    assert torch.equal(cache[:, :, :3], torch.cat([torch.zeros(2, 3, 2, 4), keys], dim=2))

    expert = torch.tensor([1, 0, 1, 1])
    tokens, weights = torch.randn(4, 16).bfloat16(), torch.randn(2, 16, 16).bfloat16()
    order, offsets = expert.argsort(), torch.bincount(expert).cumsum(0).int()
    y = torch.empty(4, 16, dtype=torch.bfloat16)
    run("moe-expert-loop", x=tokens, y=y, weights=weights, order=order, offsets=offsets)
    torch.testing.assert_close(y, torch.stack([tokens[i] @ weights[expert[i]] for i in range(4)]), atol=0.1, rtol=0.05)


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
