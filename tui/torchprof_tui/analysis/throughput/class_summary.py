"""Sum GPU time by class of work, with its rate and the share of the device's peak: what the verdict names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.throughput.roofline import GpuPieces, Limit, Roofline
from torchprof_tui.trace.core.arrays import F64, I32, I64, U8, Bool

ELEMENTWISE_AND_COPIES = "elementwise and copies"
NORM_AND_SOFTMAX = "norms and softmax"
REDUCTIONS = "reductions"
OPTIMIZER = "multi-tensor optimizer"
ATTENTION = "attention"
TRITON = "fused Triton kernels"
COLLECTIVES = "collectives"
TRANSFERS = "copies and fills by the driver"
OTHER = "other kernels"

_CLASS_NAMES = {
    KernelClass.ELEMENTWISE: ELEMENTWISE_AND_COPIES,
    KernelClass.COPY: ELEMENTWISE_AND_COPIES,
    KernelClass.RANDOM: ELEMENTWISE_AND_COPIES,
    KernelClass.REDUCTION: REDUCTIONS,
    KernelClass.NORM: NORM_AND_SOFTMAX,
    KernelClass.SOFTMAX: NORM_AND_SOFTMAX,
    KernelClass.OPTIMIZER: OPTIMIZER,
    KernelClass.ATTENTION: ATTENTION,
    KernelClass.TRITON: TRITON,
    KernelClass.COLLECTIVE: COLLECTIVES,
    KernelClass.MEMORY: TRANSFERS,
}

MIN_KNOWN_SHARE = 0.50
"""A class's rate is stated if the shapes of at least half of its time are known."""


@dataclass(frozen=True, slots=True)
class GpuClassSummary:
    """GPU time of one class of work. `time` in ns, `share` of all GPU time 0..1.

    `achieved_text`: its mean rate ("1,234 GB/s", "12.3 TFLOP/s"), "" where unknown. `peak_share`: of the peak of what
    limits it, the time-weighted mean over the time whose share is known; None where that is less than half.
    """

    name: str
    time: int
    share: float
    limit: Limit
    achieved_text: str
    peak_share: float | None
    is_cached: bool  # most of its data fits into the cache: no share of the memory's bandwidth is claimed

    @property
    def is_product(self) -> bool:
        """Whether the class is matrix products, convolutions or attention: its rate is in TFLOP/s."""
        return self.name == ATTENTION or "GEMMs" in self.name or "convolutions" in self.name

    def describe(self) -> str:
        """Describe the class: "61 % elementwise and copies at 67 % of memory bandwidth"."""
        text = f"{self.share * 100:.0f} % {self.name}"
        if self.peak_share is not None:
            peak = "the peak rate" if self.is_product and self.limit is not Limit.MEMORY else "memory bandwidth"
            return f"{text} at {self.peak_share * 100:.0f} % of {peak}"
        is_bandwidth = self.achieved_text.endswith("B/s")
        if self.achieved_text and not (self.is_product and is_bandwidth):  # bytes say little of a product
            return f"{text} at {self.achieved_text}{', from tensors that fit into the cache' if self.is_cached else ''}"
        return text


def name_classes(names: Sequence[str], name: I32, kernel_class: U8) -> tuple[list[str], I64]:
    """Return the names of the classes of work, and the index of each piece's class: int64[w]."""
    pair, inverse = np.unique(name.astype(np.int64) * 256 + kernel_class, return_inverse=True)
    texts = [_name_class(names[number // 256], KernelClass(number % 256)) for number in pair.tolist()]
    class_names = sorted(set(texts))
    index_of = {text: index for index, text in enumerate(class_names)}
    return class_names, np.array([index_of[text] for text in texts], np.int64)[inverse.reshape(-1)]


def _name_class(kernel_name: str, kernel_class: KernelClass) -> str:
    """Name a kernel's class of work; products by their precision: "bf16 GEMMs"."""
    if kernel_class not in (KernelClass.GEMM, KernelClass.CONV):
        return _CLASS_NAMES.get(kernel_class, OTHER)
    kernel = decode_kernel_name(kernel_name)
    kind = "GEMMs" if kernel_class is KernelClass.GEMM else "convolutions"
    precision = "tf32 " if "tf32" in kernel.dtypes else f"{kernel.dtypes[0]} " if kernel.dtypes else ""
    return f"{precision}{kind}{' without tensor cores' if kernel.tensor_core is False else ''}"


def summarize_classes(
    classes: tuple[list[str], I64], pieces: GpuPieces, roofline: Roofline, time: I64, transferred: I64
) -> list[GpuClassSummary]:
    """Sum the GPU work by class, most time first.

    `classes`: of `name_classes`. `time` int64[w]: ns of each piece that count (0 outside a scope). `transferred`
    int64[w]: bytes of copies and fills by the driver, -1 for kernels and where unknown.
    """
    class_names, of_piece = classes
    total = float(time.sum())
    summaries = []
    for index, class_name in enumerate(class_names):
        here = (of_piece == index) & (time > 0)
        class_time = int(time[here].sum())
        if class_time:
            summaries.append(_summarize(class_name, class_time, total, here, roofline, pieces, time, transferred))
    return sorted(summaries, key=lambda summary: -summary.time)


def _summarize(
    name: str, class_time: int, total: float, here: Bool, roofline: Roofline, pieces: GpuPieces, time: I64,
    transferred: I64,
) -> GpuClassSummary:  # fmt: skip
    share = class_time / total
    if name == TRANSFERS:
        sized = here & (transferred > 0) & (pieces.duration > 0)
        sized_time = float(pieces.duration[sized].sum())
        text = (
            f"{transferred[sized].sum() / sized_time:,.0f} GB/s" if sized_time >= MIN_KNOWN_SHARE * class_time else ""
        )
        return GpuClassSummary(name, class_time, share, Limit.UNKNOWN, text, None, False)
    weight = np.bincount(roofline.group[here], weights=time[here], minlength=len(roofline.time)).astype(np.float64)
    memory, _ = _mean(weight, roofline.memory_share, class_time)
    compute, _ = _mean(weight, roofline.compute_share, class_time)
    gb_s, has_gb_s = _mean(weight, roofline.gb_s, class_time)
    tflops, has_tflops = _mean(weight, roofline.tflops, class_time)
    text = f"{tflops:,.3g} TFLOP/s" if has_tflops else f"{gb_s:,.0f} GB/s" if has_gb_s else ""
    is_cached = float(weight[roofline.is_cached].sum()) >= MIN_KNOWN_SHARE * class_time
    by_limit = np.bincount(roofline.limit, weights=weight, minlength=len(Limit))
    limit = Limit(int(by_limit.argmax())) if has_gb_s or has_tflops else Limit.UNKNOWN
    peak_share = memory if limit is Limit.MEMORY or not has_tflops else compute
    return GpuClassSummary(name, class_time, share, limit, text, peak_share, is_cached)


def _mean(weight: F64, values: F64, class_time: int) -> tuple[float | None, bool]:
    """Return (the time-weighted mean of known values, whether at least half of the time has one); None where not."""
    is_known = ~np.isnan(values) & (weight > 0)
    known_time = float(weight[is_known].sum())
    if known_time < MIN_KNOWN_SHARE * class_time or not known_time:
        return None, False
    return float((weight[is_known] * values[is_known]).sum() / known_time), True
