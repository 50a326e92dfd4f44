"""Test what is read of a program's practices from the names of its trace."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_traces import ADD, H200, check_pattern, healthy
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, memcpy, runtime, trace
from torchprof_tui.analysis.patterns.engine.practices import OptimizerKind, Practices
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables


def practices(*entries: Entry, **more: object) -> Practices:
    return TraceTables(trace(*healthy(), *entries, **more)).practices  # type: ignore[arg-type]


def test_a_plain_loop_has_none() -> None:
    plain = practices()
    assert not plain.uses_cuda_graphs
    assert not plain.uses_compile
    assert not plain.uses_workers
    assert not plain.pins_memory
    assert not plain.uses_gradscaler
    assert plain.is_inference
    assert plain.optimizer_kind is None
    assert plain.capability is None


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (runtime("cudaGraphLaunch", 0, 5, 1), "uses_cuda_graphs"),
        (runtime("hipGraphLaunch", 0, 5, 1), "uses_cuda_graphs"),
        (cpu("Torch-Compiled Region: 0/0", 0, 5), "uses_compile"),
        (annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 5), "uses_workers"),
        (memcpy("Memcpy HtoD (Pinned -> Device)", 0, 5), "pins_memory"),
        (cpu("autograd::engine::evaluate_function: AddmmBackward0", 0, 5), "has_backward"),
        (cpu("aten::_amp_foreach_non_finite_check_and_unscale_", 0, 5), "uses_gradscaler"),
    ],
)
def test_each_practice_shows_in_a_name(entry: Entry, name: str) -> None:
    assert getattr(practices(entry), name)


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 5), "uses_workers"),
        (memcpy("Memcpy DtoH (Device -> Pinned)", 0, 5), "pins_memory"),  # item() has a pinned buffer of its own
        (cpu("aten::_adaptive_avg_pool2d", 0, 5), "has_backward"),
    ],
)
def test_names_that_look_alike(entry: Entry, name: str) -> None:
    assert not getattr(practices(entry), name)


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("aten::_fused_adamw_", OptimizerKind.FUSED),
        ("aten::_foreach_mul_", OptimizerKind.FOREACH),
        ("aten::mul_", OptimizerKind.PER_PARAMETER),
    ],
)
def test_the_optimizer_has_a_kind(op: str, kind: OptimizerKind) -> None:
    trained = practices(annotation("Optimizer.step#AdamW.step", 0, 50), cpu(op, 5, 10))
    assert trained.optimizer_kind is kind
    assert trained.optimizer_names == ("AdamW",)
    assert not trained.is_inference


def test_the_capability_is_the_first_gpus() -> None:
    assert practices(header={"deviceProperties": [H200]}).capability == (9, 0)


def test_what_is_computed_once_is_kept() -> None:
    tables = TraceTables(trace(*healthy()))
    calls: list[TraceTables] = []

    def compute(of: TraceTables) -> int:
        calls.append(of)
        return 3

    assert (tables.compute_once(compute), tables.compute_once(compute), len(calls)) == (3, 3, 1)


def test_graphs_in_use_are_not_advised() -> None:
    entries = [runtime("cudaGraphLaunch", 5, 5, 1), kernel(ADD, 15, 5, 1), cpu("aten::add", 0, 4000)]
    remedy = check_pattern(trace(*entries), "overhead-bound").remedy
    assert remedy.action.startswith("graphs are replayed already")
    assert "reduce-overhead" not in remedy.code
