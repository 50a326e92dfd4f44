"""The time of each layer, by module calls and annotations."""

from __future__ import annotations

from tests.helpers.trace_builder import annotation, kernel, python, runtime, trace
from torchprof_tui.analysis.serving.layer_times import measure_layers
from torchprof_tui.analysis.serving.measure_steps import measure_serving_steps
from torchprof_tui.trace.model.trace import Trace

DECODE = "execute_context_0(0)_generation_2(2)"


def build_step(layer_names: list[str], start: float = 0) -> list[dict[str, object]]:
    """A step with two layers of 40 µs, each with a norm; layer i has kernels of 10 (i + 1) and 1 µs."""
    entries = [annotation(DECODE, start, 100), python("nn.Module: Model_0", start + 1, 98)]
    for index, name in enumerate(layer_names):
        at, number = start + 10 + 40 * index, int(start) * 100 + 2 * index + 1
        maker = annotation if "layers" in name else python
        entries += [
            maker(name, at, 40),
            python(f"nn.Module: Norm_{index}", at + 20, 10),
            runtime("cudaLaunchKernel", at + 5, 1, number), kernel("gemm", at + 200, 10 * (index + 1), number),
            runtime("cudaLaunchKernel", at + 22, 1, number + 1), kernel("norm", at + 230, 1, number + 1),
        ]  # fmt: skip
    return entries


def measure(built: Trace) -> object:
    return measure_layers(built, measure_serving_steps(built))


def test_the_module_with_several_numbers_and_most_gpu_time_is_the_layer() -> None:
    names = ["nn.Module: Qwen3DecoderLayer_0", "nn.Module: Qwen3DecoderLayer_1"]
    built = trace(*build_step(names), *build_step(names, 1000))
    layers = measure_layers(built, measure_serving_steps(built))
    assert layers is not None
    assert layers.name == "Qwen3DecoderLayer"
    assert layers.step.tolist() == [0, 0, 1, 1]
    assert layers.layer.tolist() == [0, 1, 0, 1]
    assert layers.gpu_time.tolist() == [11_000, 21_000] * 2
    assert layers.cpu_time.tolist() == [40_000] * 4
    assert [column.tolist() for column in layers.medians] == [[0, 1], [11_000, 21_000], [40_000, 40_000]]
    assert not layers.is_captured


def test_annotations_of_layers_count_as_well() -> None:
    built = trace(*build_step(["model.layers.4", "model.layers.5"]))
    layers = measure_layers(built, measure_serving_steps(built))
    assert layers is not None
    assert (layers.name, layers.layer.tolist()) == ("layers", [4, 5])


def test_one_module_of_each_name_is_no_layer() -> None:
    assert measure(trace(annotation(DECODE, 0, 50), python("nn.Module: Model_0", 1, 40))) is None


def test_a_trace_without_steps_has_no_layers() -> None:
    assert measure(trace(python("nn.Module: L_0", 1, 40), python("nn.Module: L_1", 50, 40))) is None
