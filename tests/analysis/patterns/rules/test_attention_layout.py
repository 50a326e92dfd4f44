"""Test the pattern of keys and values that are copied for each head."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case
from tests.helpers.pattern_traces import ADD, GPU_ONLY, check_pattern, healthy
from tests.helpers.trace_builder import Entry, cpu, kernel, runtime, trace
from torchprof_tui.analysis.patterns.engine.pattern import State


def attention(copies: int = 2, expand: bool = True, clone: bool = True, count: int = 3) -> list[Entry]:
    """Attentions of 200 µs, each after so many expanded copies of 12 µs on the GPU."""
    entries: list[Entry] = []
    for number in range(count):
        at = 200.0 * number
        for index in range(copies):
            first, corr = at + 50 * index, 10 * number + index + 1
            if expand:
                entries += [cpu("aten::expand", first, 8), cpu("aten::as_strided", first + 2, 3)]
            entries.append(cpu("aten::reshape", first + 10, 30))
            if clone:
                entries += [cpu("aten::clone", first + 12, 25), cpu("aten::copy_", first + 14, 20)]
                entries += [runtime("cudaLaunchKernel", first + 16, 5, corr), kernel(ADD, first + 25, 12, corr)]
        entries.append(cpu("aten::scaled_dot_product_attention", at + 150, 20))
    return [*entries, runtime("cudaLaunchKernel", 600, 5, 99), kernel(ADD, 610, 12, 99)]


CASES: Cases = {"gqa-expand-copy": {FIRED: attention(), ABSENT: attention(clone=False), CANNOT_TELL: GPU_ONLY}}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_the_copies_and_their_time_are_counted() -> None:
    finding = check_pattern(trace(*attention()), "gqa-expand-copy")
    assert finding.answer.seen == "6 copies of expanded keys and values for 3 attentions: 72.0 µs on the GPU"
    assert finding.answer.at_stake == 6 * 12_000
    assert "enable_gqa=True" in finding.remedy.code


@pytest.mark.parametrize(
    "entries", [attention(expand=False), attention(copies=0), healthy(), [*attention(1, count=1), *healthy()]]
)
def test_other_copies_are_left_alone(entries: list[Entry]) -> None:
    assert check_pattern(trace(*entries), "gqa-expand-copy").state is ABSENT


def softmaxes(*products: str, count: int = 3) -> list[Entry]:
    """What `attention` copies, with a softmax between two products instead of a fused op."""
    entries = [entry for entry in attention() if "attention" not in entry["name"]]
    for number in range(count):
        for index, name in enumerate((products[0], "aten::softmax", products[1])):
            entries.append(cpu(name, 200.0 * number + 150 + 10 * index, 8))
    return entries


def test_only_a_softmax_between_two_batched_products_is_attention() -> None:
    """The router of experts takes the softmax of a linear layer; batched products of the experts follow."""
    assert check_pattern(trace(*softmaxes("aten::bmm", "aten::bmm")), "gqa-expand-copy").state is State.FIRED
    for products in (("aten::addmm", "aten::bmm"), ("aten::mm", "aten::bmm"), ("aten::bmm", "aten::mm")):
        assert check_pattern(trace(*softmaxes(*products)), "gqa-expand-copy").state is ABSENT
