"""Test the repetitions of whole traces: literal ones by value, recorded ones against what was run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.trace_builder import cpu, kernel, step, trace
from torchprof_tui.analysis.repetition.repetitions import Pattern, Repetitions, find_repetitions
from torchprof_tui.analysis.repetition.step_list import are_repetitions, keep_repeated_steps, list_steps
from torchprof_tui.commands.common.load import load_specs
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

LAYER = ("norm", "qkv", "attention", "out", "up", "down")
TAIL = ("last norm", "lm_head", "argmax", "copy")


def decode(tokens: int, layers: int, slow: int = -1, extra: int = -1) -> Trace:
    """Kernels of 2 µs every 3 µs, 10 µs between tokens; token `slow` has a gap, token `extra` a kernel more."""
    entries, at = [kernel("load", 0, 5)], 20
    for token in range(tokens):
        names = [*LAYER * layers, *TAIL, *(["reduce"] if token == extra else [])]
        for name in names:
            entries.append(kernel(name, at, 2))
            at += 3
        at += 10 + (100 if token == slow else 0)
    return trace(*entries)


def labels(found: Repetitions) -> list[tuple[str, int, int]]:
    return [(pattern.label, len(pattern), pattern.period) for pattern in found.patterns]


def open_shared(name: str) -> Trace:
    path = SHARED_TRACES / name
    if not path.exists():
        pytest.skip(f"no {name}")
    return load_specs([str(path)], cache=False).trace


def unit_of(found: Repetitions) -> Pattern:
    assert found.unit >= 0
    return found.patterns[found.unit]


def test_times_of_tokens_and_layers() -> None:
    found = find_repetitions(decode(tokens=8, layers=5))
    assert labels(found) == [("1", 8, 34), ("2", 40, 6)]
    tokens, layers = found.patterns
    assert tokens.start.tolist() == [20_000 + number * 112_000 for number in range(8)]
    assert set(tokens.duration.tolist()) == {101_000}  # 34 kernels, one each 3 µs, of 2 µs
    assert set(tokens.interval.tolist()) == {112_000}
    assert set(layers.duration.tolist()) == {17_000}
    assert len(layers.interval) == 8 * 4
    assert tokens.busy.tolist() == [34 * 2000] * 8
    assert tokens.coverage == pytest.approx(8 * 68 / (8 * 68 + 5))
    assert layers.position.tolist() == [0, 1, 2, 3, 4] * 8
    assert (tokens.differing, tokens.differences) == (0, ())
    assert found.unit == 0
    assert find_repetitions(decode(tokens=1, layers=1)).patterns == ()


def test_one_that_differs_is_told_with_the_kernel_that_it_has_more() -> None:
    found = find_repetitions(decode(tokens=8, layers=5, extra=3))
    (tokens, _) = found.patterns
    assert tokens.variant.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert [(each.name, each.more, each.fewer) for each in tokens.differences] == [("reduce", 1, 0)]
    assert tokens.shown != 3


def test_the_answer_is_kept_and_is_of_one_stream() -> None:
    made = decode(tokens=8, layers=5)
    assert find_repetitions(made) is find_repetitions(made)
    other = [kernel("other", 20 + 3 * index, 1, stream=9) for index in range(90)]
    busiest = trace(*(kernel(name, 3 * index, 2) for index, name in enumerate((*LAYER * 5, *TAIL) * 8)), *other)
    assert labels(find_repetitions(busiest)) == [("1", 8, 34), ("2", 40, 6)]


def test_a_trace_without_kernels_is_searched_by_its_outermost_ops() -> None:
    layer = ("aten::norm", "aten::linear", "aten::sdpa", "aten::mul", "aten::add")
    names = ("aten::embedding", *layer * 6, "aten::max")
    entries = []
    for place, name in enumerate(names * 5):
        entries += [cpu(name, 10 * place, 8), cpu("aten::empty", 10 * place + 1, 2)]
    found = find_repetitions(trace(*entries))
    assert found.sequence.unit == "ops"
    assert labels(found) == [("1", 5, 32), ("2", 30, 5)]


@pytest.mark.parametrize("kernels", [0, 1, 99])
def test_traces_without_a_repetition(kernels: int) -> None:
    found = find_repetitions(trace(*(kernel("k", 2 * number, 1) for number in range(kernels))))
    assert (found.patterns, found.unit, found.list_steps()) == ((), -1, [])


class TestSteps:
    """Repetitions stand in for steps where none were recorded."""

    def test_repetitions_as_steps(self) -> None:
        made = decode(tokens=8, layers=5)
        (rank,) = made.all_ranks
        assert list_steps(rank) == []
        keep_repeated_steps(rank, find_repetitions(made).list_steps(rank.first))
        steps = list_steps(rank)
        assert are_repetitions(steps)
        assert list_steps(rank) is steps
        assert [made.event(each.event).name for each in steps] == ["norm"] * 8
        assert (steps[2].name, steps[2].number, steps[2].start, steps[2].duration) == (
            "repetition #2",
            2,
            244_000,
            101_000,
        )
        assert [each.event for each in find_repetitions(made).list_steps(7)] == [each.event + 7 for each in steps]

    def test_recorded_steps_are_preferred(self) -> None:
        made = trace(step(1, 0, 10), kernel("k", 1, 2))
        keep_repeated_steps(made.all_ranks[0], decode(8, 5).steps)
        assert list_steps(made.all_ranks[0]) is made.steps
        assert not are_repetitions(made.steps)
        assert not are_repetitions([])


def strip_annotations(path: Path, out: Path) -> Path:
    """Write a trace without its steps and annotations."""
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    document["traceEvents"] = [
        entry
        for entry in document["traceEvents"]
        if entry.get("cat") not in ("user_annotation", "gpu_user_annotation")
        and not str(entry.get("name", "")).startswith("ProfilerStep")
    ]
    out.write_text(json.dumps(document))
    return out


class TestRecordedTraces:
    """What was run is known: tokens by the calls of argmax, layers by the attention kernels, steps as recorded."""

    @pytest.mark.long  # each push: the tokens and layers of a decode that is built without steps, above
    def test_tokens_of_a_decode_without_steps_and_annotations(self, tmp_path: Path) -> None:
        source = SHARED_TRACES / "llama_decode_eager.pt.trace.json.gz"
        if not source.exists():
            pytest.skip("no llama_decode_eager")
        shown = load_specs([str(strip_annotations(source, tmp_path / "bare.json"))], cache=False).trace
        assert not shown.steps
        assert not (shown.kind == Kind.ANNOTATION).any()
        found = find_repetitions(shown)
        tokens = unit_of(found)
        names = np.array(shown.names, dtype=object)[shown.name[found.sequence.events]]
        is_argmax = np.array(["ArgMaxOps" in name for name in names])
        is_attention = np.array(["flash" in name or "fmha" in name for name in names])
        assert len(tokens) == is_argmax.sum() == 32  # twice 16
        for first, last in zip(tokens.first.tolist(), tokens.last.tolist(), strict=True):
            assert is_argmax[first:last].sum() == 1
            assert is_attention[first:last].sum() == 8
        layers = [pattern for pattern in found.patterns if pattern.parent == found.unit]
        assert sum(len(pattern) for pattern in layers) == 32 * 8

    @pytest.mark.parametrize(
        ("name", "layers"),
        keep_some(
            [
                pytest.param("gpt2_train_modules_flops", [18, 18], marks=pytest.mark.long),
                pytest.param("gpt2_train_compile", [18, 18], marks=pytest.mark.long),
                ("gpt2_train_stack_memory", [12, 12]),
                ("resnet18_starved_dataloader", []),
            ],
            1,
        ),
    )
    def test_training_steps_and_the_layers_forward_and_backward(self, name: str, layers: list[int]) -> None:
        shown = open_shared(f"{name}.pt.trace.json.gz")
        found = find_repetitions(shown)
        assert len(unit_of(found)) == len(shown.steps)
        assert [len(pattern) for pattern in found.patterns if pattern.parent == found.unit] == layers
        launches = shown.links.launch_of[found.sequence.events[unit_of(found).first]]
        for launch, recorded in zip(shown.start[launches].tolist(), shown.steps, strict=True):
            assert recorded.start <= launch < recorded.start + recorded.duration

    @pytest.mark.parametrize(
        ("name", "layers"),
        keep_some(
            [
                ("graphs/sglang_decode/sglang_Qwen3-8B_decode.json.gz", 36),
                ("graphs/sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode.json.gz", 36),
                ("graphs/vllm_decode_full/graph_execution.json.gz", 24),
                ("pairs/timesformer_h100.json.gz", 12),
                ("pairs/timesformer_mi300.json.gz", 12),
            ],
            1,
        ),
    )
    def test_layers_of_one_pass(self, name: str, layers: int) -> None:
        found = find_repetitions(open_shared(name))
        assert len(unit_of(found)) == layers
        assert unit_of(found).coverage > 0.9
