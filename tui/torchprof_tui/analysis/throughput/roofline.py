"""Compare the GPU work of a trace with the device's peaks: bytes and FLOPs, GB/s and TFLOP/s, share of each peak.

Williams, Waterman, Patterson, "Roofline: an insightful visual performance model" (2009): work that does few operations
for each byte is limited by memory, other work by arithmetic. Bytes are the least that an operator must move
(`op_formulas`); they belong to the kernel that does the operator's work, found by its class, and are counted once.

Shapes are read for a sample of each group of like launches (same kernel, grid, block and operator), and the rate of the
sample is taken as that of the group. The sums by class of work are what
the verdict names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.throughput.device_peaks import DTYPES, DevicePeaks, short_type
from torchprof_tui.analysis.throughput.op_formulas import PRODUCT_CLASSES, count_bytes, count_flops, working_classes
from torchprof_tui.analysis.throughput.op_inputs import OpInputs, SampledInputs, read_sampled_inputs
from torchprof_tui.trace.core.arrays import F64, I32, I64, U8, Bool, is_in, number_distinct, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace

NO_FRACTION = 0.0

MAIN_SHARE = 2 / 3  # share of the time from which one of several kernels of a matrix product is the one that multiplies


def attribute_work(op: I64, variant: I64, name: I32, duration: I64, is_product: Bool) -> F64:
    """Return the fraction of its operator's work that each piece of GPU work does: float64[k].

    Pieces with the same operator (`op`: its row) and `variant` share its work. One kernel, launched several times, does
    it in proportion to `duration`. Of several kernels, that of a matrix product (`is_product`) which takes most of the
    time does it all; for others nothing says which one: 0.
    """
    if not len(op):
        return np.empty(0)
    _, part = np.unique(op * 4 + variant, return_inverse=True)
    part = part.reshape(-1)
    size = int(part.max()) + 1
    order = np.lexsort((name, part))
    changes = (np.diff(name[order]) != 0) & (np.diff(part[order]) == 0)
    kernels = 1 + np.bincount(part[order][1:][changes], minlength=size)
    time = np.bincount(part, weights=duration, minlength=size)
    share: F64 = duration / np.maximum(time[part], 1)
    is_main = (share >= MAIN_SHARE) & is_product
    return np.where(kernels[part] == 1, share, np.where(is_main, 1.0, NO_FRACTION))


MIN_SHARE_OF_LIMIT = 0.30
"""Work that reaches less of both peaks is limited by neither: by latency, a small grid, or its code."""
MAX_PLAUSIBLE_SHARE = 1.05
"""No kernel exceeds a peak; a larger share says that data came from the cache, so no share is claimed."""


class Limit(IntEnum):
    """What limits a group of like launches."""

    UNKNOWN = 0
    MEMORY = 1
    COMPUTE = 2
    NEITHER = 3


@record
class GpuPieces:
    """The GPU work that is compared, w pieces: [w] each. `op`: row of the innermost operator above the launch, or -1.

    `launch_group`: equal for launches of one kernel on one grid; `kernel_class`: `KernelClass`; `duration` in ns.
    """

    name: I32
    launch_group: I64
    op: I64
    kernel_class: U8
    duration: I64
    device: I32

    def __len__(self) -> int:
        return len(self.name)


@record
class Roofline:
    """Rates of k groups of like launches. `group` int64[w]: group of each piece. The others are [k].

    `first`: index of a group's first piece. `time`: ns of all pieces; `sampled_time`, `bytes`, `flops`: of the pieces
    whose shapes were read, 0 where unknown. `gb_s`, `tflops`, `memory_share`, `compute_share`: NaN where unknown; no
    `memory_share` where `is_cached`: the data of one call fits into the device's last cache. `dtype`: index into
    DTYPES. `limit`: `Limit`. `case`: index into `cases` of the inputs that took most time, -1 for none. `missing`: why
    nothing is known, "" if something is.
    """

    group: I64
    first: I64
    time: F64
    sampled_time: F64
    bytes: F64
    flops: F64
    dtype: I64
    gb_s: F64
    tflops: F64
    memory_share: F64
    compute_share: F64
    is_cached: Bool
    limit: U8
    case: I64
    cases: tuple[OpInputs, ...]
    missing: str = ""

    def inputs(self, group: int) -> OpInputs | None:
        """Return the inputs that took most of a group's time, None if unknown."""
        return self.cases[self.case[group]] if self.case[group] >= 0 else None

    def describe_limit(self, group: int) -> str:
        """Describe what limits a group, with its share of the peak: "memory, 33 % of bandwidth"."""
        peaks = ("bandwidth", f"the {DTYPES[self.dtype[group]]} peak")
        shares = zip((self.memory_share[group], self.compute_share[group]), peaks, strict=True)
        parts = [f"{share * 100:.{0 if share >= 0.0995 else 1}f} % of {peak}" for share, peak in shares if share >= 0]
        limit = Limit(int(self.limit[group]))
        if limit in (Limit.MEMORY, Limit.COMPUTE):
            return f"{limit.name.lower()}, {parts[0 if limit is Limit.MEMORY else -1]}"
        if limit is Limit.NEITHER:
            return f"neither: {', '.join(parts)}"
        if self.missing:
            return f"unknown: {'record shapes (record_shapes=True)' if self.missing == NO_SHAPES else self.missing}"
        if self.is_cached[group]:
            return "unknown: the data of a call fits into the cache"
        is_counted = self.sampled_time[group] > 0
        return f"unknown: {'no peak of this device' if is_counted else 'neither bytes nor FLOPs'} known"


NO_SHAPES = "shapes were not recorded: profile with record_shapes=True"
NO_FILE = "the trace file, which contains the shapes, cannot be read"


def compute_roofline(trace: Trace, pieces: GpuPieces, peaks_of_device: Callable[[int], DevicePeaks | None]) -> Roofline:
    """Compute the roofline of a trace's GPU work. `peaks_of_device`: device number -> peaks, None if unknown."""
    names = trace.names
    op_name = np.where(pieces.op >= 0, trace.name[np.maximum(pieces.op, 0)].astype(np.int64), -1)
    first, group = _find_distinct(pieces.launch_group, op_name)
    first_of_pair, pair = _find_distinct(op_name, pieces.name)
    pairs = zip(op_name[first_of_pair].tolist(), pieces.name[first_of_pair].tolist(), strict=True)
    does_work = np.array([op >= 0 and _does_work(names[op], names[kernel]) for op, kernel in pairs], np.bool_)
    candidates = np.flatnonzero(does_work[pair])
    try:
        sampled = read_sampled_inputs(trace, pieces.op[candidates], group[candidates], pieces.duration[candidates])
        missing = "" if len(sampled.rows) else NO_SHAPES
    except (OSError, LookupError):
        sampled, missing = SampledInputs(np.empty(0, np.int64), np.empty(0, np.int64), []), NO_FILE
    is_sampled = is_in(pieces.op[candidates], sampled.rows)
    counts = _count_sampled_work(names, pieces, op_name, candidates[is_sampled], sampled)
    return _build_roofline(pieces, group, first, counts, sampled.cases, peaks_of_device, missing)


def _find_distinct(*columns: I64 | I32) -> tuple[I64, I64]:
    """Find the distinct rows of columns of n values, in ascending order.

    Returns the index of the first row that is equal to each, int64[k], and which of them each row is, int64[n].
    """
    order = np.lexsort(columns[::-1])
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    index = np.empty(len(order), np.int64)
    index[order] = np.cumsum(is_new) - 1
    return order[is_new], index


def _does_work(op: str, kernel_name: str) -> bool:
    """Return whether a kernel does its operator's work: it is of a fitting class, and no preparation."""
    kernel = decode_kernel_name(kernel_name)
    return kernel.kernel_class in working_classes(op) and not kernel.display.endswith((" setup", " step"))


@record
class _Counts:
    """Of s sampled pieces: their index, bytes and FLOPs (NaN where unknown), index into DTYPES, and case."""

    piece: I64
    bytes: F64
    flops: F64
    dtype: I64
    case: I64


def _count_sampled_work(
    names: Sequence[str], pieces: GpuPieces, op_name: I64, sample: I64, sampled: SampledInputs
) -> _Counts:
    """Count bytes and FLOPs of the sampled pieces: one formula for each operator, kernel name and set of inputs."""
    # Which of an operator's two results each kernel computes: 1 for gradients of weights, 2 of data, else 0.
    distinct, inverse = np.unique(pieces.name[sample], return_inverse=True)
    variants = np.array([_find_variant(decode_kernel_name(names[number]).display) for number in distinct.tolist()])
    variant = variants[inverse.reshape(-1)] if len(distinct) else np.empty(0, np.int64)
    is_product = is_in(pieces.kernel_class[sample], PRODUCT_CLASSES)
    fraction = attribute_work(pieces.op[sample], variant, pieces.name[sample], pieces.duration[sample], is_product)
    kept = fraction > NO_FRACTION
    sample, fraction = sample[kept], fraction[kept]
    case = sampled.case[np.searchsorted(sampled.rows, pieces.op[sample])]
    kernel, op = pieces.name[sample], op_name[sample]
    first, call = _find_distinct(case, op, kernel)
    calls = zip(case[first].tolist(), op[first].tolist(), kernel[first].tolist(), strict=True)
    counted = [_evaluate(names[one], sampled.cases[number], names[work]) for number, one, work in calls]
    moved, flops, dtype = zip(*counted, strict=True) if counted else ((), (), ())
    return _Counts(
        sample,
        np.array(moved, np.float64)[call] * fraction,
        np.array(flops, np.float64)[call] * fraction,
        np.array(dtype, np.int64)[call],
        case,
    )


def _find_variant(display: str) -> int:
    return 1 if "weight" in display else 2 if "bwd data" in display else 0


def _evaluate(op: str, inputs: OpInputs, kernel_name: str) -> tuple[float, float, int]:
    """Return (bytes, FLOPs, index into DTYPES) of a call; NaN for unknown counts."""
    kernel = decode_kernel_name(kernel_name)
    moved = count_bytes(op, inputs, kernel)
    flops: float | None = None
    if kernel.kernel_class in PRODUCT_CLASSES:
        flops = count_flops(op, inputs.dims, inputs.concrete)
        if flops and op == "aten::convolution_backward":  # each gradient is a kernel of its own, and costs as much
            mask = str(inputs.concrete[10]) if len(inputs.concrete) > 10 else "[True, True]"
            gradients = max(",".join(mask.split(",")[:2]).count("True"), 1)
            flops = flops / gradients if gradients == 1 or _find_variant(kernel.display) else None
    dtype = next((text for name in inputs.types if (text := short_type(str(name)))), "")
    if dtype == "fp32" and "tf32" in kernel.dtypes:
        dtype = "tf32"
    return (
        np.nan if moved is None else _to_float(moved),
        np.nan if not flops else _to_float(flops),
        DTYPES.index(dtype),
    )


def _to_float(count: float) -> float:
    """Convert a count, NaN above what any call can do: the shapes of a damaged file may be of any size."""
    return float(count) if count < _MAX_COUNT else np.nan


_MAX_COUNT = 1e24  # bytes or FLOPs of one call: months of work for the largest machine


def _build_roofline(
    pieces: GpuPieces,
    group: I64,
    first: I64,
    counts: _Counts,
    cases: list[OpInputs],
    peaks_of_device: Callable[[int], DevicePeaks | None],
    missing: str,
) -> Roofline:
    size = len(first)
    duration = pieces.duration.astype(np.float64)
    is_known = (counts.bytes > 0) | (counts.flops > 0)
    piece, of_group = counts.piece[is_known], group[counts.piece[is_known]]
    moved, flops = np.nan_to_num(counts.bytes[is_known]), np.nan_to_num(counts.flops[is_known])
    sampled_time, byte_sum, flop_sum = (
        np.bincount(of_group, weights=values, minlength=size).astype(np.float64)
        for values in (duration[piece], moved, flops)
    )
    dtype, case = np.zeros(size, np.int64), np.full(size, -1, np.int64)
    dtype[of_group] = counts.dtype[is_known]
    by_time = np.argsort(duration[piece], kind="stable")
    case[of_group[by_time]] = counts.case[is_known][by_time]  # the last assignment, of the longest piece, wins
    calls = np.bincount(of_group, minlength=size)
    with np.errstate(divide="ignore", invalid="ignore"):
        gb_s = np.where(byte_sum > 0, byte_sum / sampled_time, np.nan)  # bytes a ns are GB/s
        tflops = np.where(flop_sum > 0, flop_sum / sampled_time / 1e3, np.nan)
        bytes_of_call = byte_sum / calls
    bandwidth, cache, peak = _peaks_of_groups(pieces.device[first], dtype, peaks_of_device)
    memory_share, compute_share = gb_s / bandwidth, tflops / peak
    # Data of a call that fits into the cache may never have come from memory.
    is_cached = (byte_sum > 0) & ((bytes_of_call < cache) | (memory_share > MAX_PLAUSIBLE_SHARE))
    memory_share[is_cached] = np.nan
    is_wrong = compute_share > MAX_PLAUSIBLE_SHARE  # the FLOPs were attributed to the wrong kernel
    compute_share[is_wrong] = tflops[is_wrong] = np.nan
    # NEITHER needs the share that counts: of a product, that of its rate.
    memory, compute = np.nan_to_num(memory_share), np.nan_to_num(compute_share)
    limit = np.full(len(memory), int(Limit.UNKNOWN), np.uint8)
    limit[~np.isnan(np.where((flop_sum > 0), compute_share, memory_share))] = int(Limit.NEITHER)
    limit[(memory >= MIN_SHARE_OF_LIMIT) & (memory >= compute)] = int(Limit.MEMORY)
    limit[(compute >= MIN_SHARE_OF_LIMIT) & (compute > memory)] = int(Limit.COMPUTE)
    time = np.bincount(group, weights=duration, minlength=size).astype(np.float64)
    return Roofline(
        group, first.astype(np.int64), time, sampled_time, byte_sum, flop_sum, dtype, gb_s, tflops, memory_share,
        compute_share, is_cached, limit, case, tuple(cases), missing,
    )  # fmt: skip


def _peaks_of_groups(
    device: I32, dtype: I64, peaks_of_device: Callable[[int], DevicePeaks | None]
) -> tuple[F64, F64, F64]:
    """Return (GB/s, bytes of cache, TFLOP/s for its data type) of each group's device: float64[k], NaN for unknown."""
    bandwidth, cache, rate = (np.full(len(device), np.nan) for _ in range(3))
    for number in sorted_unique(device).tolist():
        peaks = peaks_of_device(number)
        if peaks is None:
            continue
        here = device == number
        bandwidth[here] = np.nan if peaks.bandwidth is None else peaks.bandwidth
        cache[here] = np.nan if peaks.cache is None else peaks.cache
        rates = [peaks.tflops(name) if name else None for name in DTYPES]
        rate[here] = np.array([np.nan if value is None else value for value in rates])[dtype[here]]
    return bandwidth, cache, rate


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

MIN_KNOWN_SHARE = 0.50  # a class's rate is stated if the shapes of at least half of its time are known


@record
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
        return f"{self.share * 100:.0f} % {self.describe_rate()}"

    def describe_rate(self) -> str:
        """Describe the class without its share: "elementwise and copies at 67 % of memory bandwidth"."""
        if self.peak_share is not None:
            peak = "the peak rate" if self.is_product and self.limit is not Limit.MEMORY else "memory bandwidth"
            return f"{self.name} at {self.peak_share * 100:.0f} % of {peak}"
        is_bandwidth = self.achieved_text.endswith("B/s")
        if not self.achieved_text or (self.is_product and is_bandwidth):  # bytes say little of a product
            return self.name
        return (
            f"{self.name} at {self.achieved_text}{', from tensors that fit into the cache' if self.is_cached else ''}"
        )


def name_classes(names: Sequence[str], name: I32, kernel_class: U8) -> tuple[list[str], I64]:
    """Return the names of the classes of work, and the index of each piece's class: int64[w]."""
    used, number_of_name = number_distinct(name, len(names))
    pair, inverse = number_distinct(number_of_name.astype(np.int64) * 256 + kernel_class, len(used) * 256)
    texts = [_name_class(names[int(used[number // 256])], KernelClass(number % 256)) for number in pair.tolist()]
    class_names = sorted(set(texts))
    index_of = {text: index for index, text in enumerate(class_names)}
    return class_names, np.array([index_of[text] for text in texts], np.int64)[inverse]


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
    for index, name in enumerate(class_names):
        here = (of_piece == index) & (time > 0)
        class_time = int(time[here].sum())
        if not class_time:
            continue
        if name == TRANSFERS:
            sized = here & (transferred > 0) & (pieces.duration > 0)
            sized_time = float(pieces.duration[sized].sum())
            is_known = sized_time >= MIN_KNOWN_SHARE * class_time
            text = f"{transferred[sized].sum() / sized_time:,.0f} GB/s" if is_known else ""
            summaries.append(GpuClassSummary(name, class_time, class_time / total, Limit.UNKNOWN, text, None, False))
            continue
        weight = np.bincount(roofline.group[here], weights=time[here], minlength=len(roofline.time)).astype(np.float64)
        memory = _mean(weight, roofline.memory_share, class_time)
        compute = _mean(weight, roofline.compute_share, class_time)
        gb_s, tflops = _mean(weight, roofline.gb_s, class_time), _mean(weight, roofline.tflops, class_time)
        text = "" if gb_s is None else f"{gb_s:,.0f} GB/s"
        if tflops is not None:
            text = f"{tflops:,.3g} TFLOP/s"
        is_cached = float(weight[roofline.is_cached].sum()) >= MIN_KNOWN_SHARE * class_time
        by_limit = np.bincount(roofline.limit, weights=weight, minlength=len(Limit))
        limit = Limit(int(by_limit.argmax())) if text else Limit.UNKNOWN
        share = memory if limit is Limit.MEMORY or tflops is None else compute
        summaries.append(GpuClassSummary(name, class_time, class_time / total, limit, text, share, is_cached))
    return sorted(summaries, key=lambda summary: -summary.time)


def _mean(weight: F64, values: F64, class_time: int) -> float | None:
    """Return the time-weighted mean of known values; None where less than half of the time has one."""
    is_known = ~np.isnan(values) & (weight > 0)
    known_time = float(weight[is_known].sum())
    if known_time < MIN_KNOWN_SHARE * class_time or not known_time:
        return None
    return float((weight[is_known] * values[is_known]).sum() / known_time)
