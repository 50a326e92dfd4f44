"""Labels of kernels: short, equal for equal names, different for different names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.paths import SAMPLES
from torchprof_tui.analysis.kernel.names.distinct_labels import label_kernels
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import Kind

MUL = "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"
VECTORIZED = "void at::native::vectorized_elementwise_kernel<{}, " + MUL + ", std::array<char*, 3ul> >(int)"
UNROLLED = "void at::native::unrolled_elementwise_kernel<" + MUL + ", std::array<char*, 3ul>, 4>(int)"


KERNELS = [*(VECTORIZED.format(width) for width in (1, 2, 4)), UNROLLED]


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["ampere_sgemm_128x64_tn"], ["gemm fp32 128×64"]),
        (["ampere_sgemm_128x64_tn"] * 2, ["gemm fp32 128×64"] * 2),
        (["ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_nn"], ["gemm fp32 128×64 (tn)", "gemm fp32 128×64 (nn)"]),
        ([VECTORIZED.format(4), UNROLLED], ["mul fp32 (vectorized)", "mul fp32 (unrolled)"]),
        ([VECTORIZED.format(4), VECTORIZED.format(2)], ["mul fp32 (4 per load)", "mul fp32 (2 per load)"]),
        (
            ["triton_poi_fused__to_copy_4", "triton_poi_fused__to_copy_11", "triton_poi_fused__to_copy_t_17"],
            ["triton to_copy (#4)", "triton to_copy (#11)", "triton to_copy (#17)"],
        ),
        (["void mine::step<float, 4>(float*)", "void mine::step<float, 8>(float*)"], ["step (#4)", "step (#8)"]),
        (["plain_kernel", "Memcpy DtoD"], ["plain_kernel", "memcpy DtoD"]),
        (["k<1>(int)", "k<1>(int) "], ["k", "k (no. 2)"]),  # nothing that a reader sees tells them apart
    ],
)
def test_labels(names: list[str], labels: list[str]) -> None:
    assert label_kernels(names) == labels


@given(st.lists(st.one_of(st.text(max_size=6), st.sampled_from(KERNELS))))
def test_as_many_labels_as_names(names: list[str]) -> None:
    labels = label_kernels(names)
    assert len(labels) == len(names)
    assert len(set(zip(names, labels, strict=True))) == len(set(names)) == len(set(labels))


@pytest.mark.parametrize("sample", ["train_gpt_stack_memory", "compile_recompiles", "cuda_graph_replay"])
def test_kernels_of_samples_have_one_label_each(sample: str) -> None:
    shown = load_trace(str(SAMPLES / f"{sample}.pt.trace.json.gz"), cache=False)
    names = sorted({shown.names[name] for name in shown.name[shown.kind == Kind.KERNEL].tolist()})
    labels = label_kernels(names)
    assert len(set(labels)) == len(names)
    assert max(map(len, labels)) < 90
    assert not any("void " in label or "::" in label for label in labels)
