"""Test bytes, FLOPs, rates and shares of GPU work: on literal traces, and on real ones recomputed from their JSON."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.long_run import keep_some
from tests.helpers.paths import SHARED_TRACES, find_shared_traces, is_long
from tests.helpers.pattern_traces import ADD, GEMM, H200, SGEMM, healthy, op_with_work
from tests.helpers.shape_traces import load_entries, op_with_shapes
from tests.helpers.trace_builder import trace
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.throughput.device_peaks import DTYPES, find_peaks
from torchprof_tui.analysis.throughput.op_inputs import MAX_CHUNKS, _choose_chunks
from torchprof_tui.analysis.throughput.roofline import NO_FILE, NO_SHAPES, Limit, Roofline, attribute_work
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.load_in_process import load_trace

F, H = "float", "c10::BFloat16"
BIG, SMALL = [8192, 8192], [64, 64]


def measure_coverage(roofline: Roofline) -> float:
    """Return the share of the GPU time whose bytes or FLOPs are known, 0..1."""
    total = float(roofline.time.sum())
    return float(roofline.time[roofline.sampled_time > 0].sum()) / total if total else 0.0


def test_a_large_addition_is_limited_by_memory(tmp_path: Path) -> None:
    """3 × 256 MiB in 200 µs: 4,027 GB/s of the H200's 4,800."""
    roofline = _roofline(tmp_path, op_with_shapes("aten::add", [BIG, BIG, []], [F, F, "Scalar"], 0, 20, 200, ADD))
    assert roofline.bytes.tolist() == [805_306_368]
    assert roofline.gb_s == pytest.approx([4026.5], abs=0.1)
    assert roofline.memory_share == pytest.approx([0.8389], abs=1e-4)
    assert roofline.limit.tolist() == [Limit.MEMORY]
    assert np.isnan(roofline.tflops).all()
    assert measure_coverage(roofline) == 1
    assert roofline.describe_limit(0) == "memory, 84 % of bandwidth"


def test_a_large_product_is_limited_by_arithmetic(tmp_path: Path) -> None:
    """2 × 8192³ operations in 1.5 ms: 733 TFLOP/s of the H200's 989.4 for bf16."""
    roofline = _roofline(tmp_path, op_with_shapes("aten::mm", [BIG, BIG], [H, H], 0, 20, 1500, GEMM))
    assert roofline.flops.tolist() == [1_099_511_627_776]
    assert roofline.bytes.tolist() == [402_653_184]
    assert roofline.tflops == pytest.approx([733.0], abs=0.1)
    assert roofline.compute_share == pytest.approx([0.7409], abs=1e-4)
    assert roofline.limit.tolist() == [Limit.COMPUTE]
    assert DTYPES[roofline.dtype[0]] == "bf16"
    assert roofline.inputs(0).dims == [BIG, BIG]  # type: ignore[union-attr]
    assert roofline.describe_limit(0) == "compute, 74 % of the bf16 peak"


def test_a_product_in_fp32_has_the_peak_of_its_type(tmp_path: Path) -> None:
    roofline = _roofline(tmp_path, op_with_shapes("aten::mm", [BIG, BIG], [F, F], 0, 20, 32_000, SGEMM))
    assert roofline.compute_share == pytest.approx([1_099_511_627_776 / 32e6 / 67e3])


def test_data_that_fits_into_the_cache_has_no_share_of_memory_bandwidth(tmp_path: Path) -> None:
    roofline = _roofline(tmp_path, op_with_shapes("aten::add", [SMALL, SMALL, []], [F, F, "Scalar"], 0, 20, 2, ADD))
    assert roofline.gb_s == pytest.approx([3 * 64 * 64 * 4 / 2000])
    assert roofline.is_cached.all()
    assert roofline.describe_limit(0) == "unknown: the data of a call fits into the cache"
    assert np.isnan(roofline.memory_share).all()
    assert roofline.limit.tolist() == [Limit.UNKNOWN]


@pytest.mark.parametrize("microseconds", [100, 10])
def test_no_share_above_the_peak_is_claimed(tmp_path: Path, microseconds: float) -> None:
    entries = [
        *op_with_shapes("aten::add", [BIG, BIG, []], [F, F, "Scalar"], 0, 20, microseconds, ADD),
        *op_with_shapes("aten::mm", [BIG, BIG], [H, H], 50, 1000, microseconds, GEMM),
    ]
    roofline = _roofline(tmp_path, entries)
    assert np.isnan(roofline.memory_share).all() or (np.nan_to_num(roofline.memory_share) <= 1.05).all()
    assert np.isnan(roofline.compute_share).all()


def test_an_unknown_device_has_rates_but_no_shares(tmp_path: Path) -> None:
    device = {**H200, "name": "A GPU of tomorrow"}
    roofline = _roofline(tmp_path, op_with_shapes("aten::mm", [BIG, BIG], [H, H], 0, 20, 1500, GEMM), device)
    assert roofline.tflops == pytest.approx([733.0], abs=0.1)
    assert np.isnan(roofline.compute_share).all()
    assert np.isnan(roofline.memory_share).all()
    assert roofline.limit.tolist() == [Limit.UNKNOWN]


def test_a_kernel_of_another_class_gets_nothing(tmp_path: Path) -> None:
    """An addition beneath a matrix product prepares or finishes it."""
    roofline = _roofline(tmp_path, op_with_shapes("aten::mm", [BIG, BIG], [H, H], 0, 20, 1500, ADD))
    assert measure_coverage(roofline) == 0
    assert roofline.bytes.tolist() == [0]


def test_what_is_unknown_says_why(tmp_path: Path) -> None:
    roofline = _roofline(tmp_path, op_with_work("aten::mm", 0, 20, 1500, GEMM))
    assert (roofline.missing, measure_coverage(roofline)) == (NO_SHAPES, 0)
    assert roofline.describe_limit(0) == "unknown: record shapes (record_shapes=True)"
    assert TraceTables(trace(*healthy())).roofline.missing == NO_FILE


def test_the_sample_stays_small_and_prefers_the_heaviest_groups() -> None:
    chunk = np.repeat(np.arange(1000), 3)
    group = np.tile([0, 1, 2], 1000)
    group[-1] = 3
    chosen = _choose_chunks(chunk, group, np.array([5.0, 4.0, 3.0, 1.0]))
    assert sorted(chosen.tolist()) == [0, 999]
    many = _choose_chunks(np.arange(1000), np.arange(1000), np.arange(1000.0))
    assert sorted(many.tolist()) == list(range(1000 - MAX_CHUNKS, 1000))


@pytest.mark.parametrize(
    ("name", "bandwidth", "megabytes", "bf16"),
    [
        ("NVIDIA H200", 4800, 50, 989.4),
        ("NVIDIA H100 PCIe", 2039, 50, 756),
        ("NVIDIA A100-SXM4-80GB", 2039, 40, 312),
        ("Tesla V100-SXM2-32GB", 900, 6, None),
        ("NVIDIA GeForce RTX 2080 Ti", 616, 5.5, None),
        ("AMD Instinct MI300X", 5300, 256, 1307.4),
        ("unknown", None, None, None),
    ],
)
def test_peaks(name: str, bandwidth: float | None, megabytes: float | None, bf16: float | None) -> None:
    peaks = find_peaks(name)
    assert peaks.bandwidth == bandwidth
    assert peaks.cache == (None if megabytes is None else megabytes * 1e6)
    assert peaks.tflops("bf16") == bf16


# Trace, operator, sizes of its first inputs, their types, a word of the kernel's name, bytes and FLOPs by hand.
GPT2, RESNET = "gpt2_train_modules_flops", "resnet18_pinned_workers"

BY_HAND: list[tuple[str, str, list[Any], list[str], str, int, int]] = [
    (GPT2, "aten::mul", [[8, 256, 1536]] * 2, [F, F], "elementwise", 37_748_736, 0),
    (GPT2, "aten::copy_", [[8, 256, 8192]] * 2, [F, H], "elementwise", 100_663_296, 0),
    (GPT2, "aten::sum", [[2048, 384]], [H], "reduce", 1_573_632, 0),
    (GPT2, "aten::_log_softmax", [[2048, 8192]], [F], "SoftMax", 134_217_728, 0),
    (GPT2, "aten::native_layer_norm", [[8, 256, 384]], [F], "layer_norm", 6_291_456, 0),
    (GPT2, "aten::mm", [[8192, 2048], [2048, 384]], [H, H], "nvjet", 41_418_752, 12_884_901_888),
    ("attention_math", "aten::bmm", [[64, 2048, 64], [64, 64, 2048]], [F, F], "gemm", 1_140_850_688, 34_359_738_368),
    ("attention_math", "aten::add_", [[4, 16, 2048, 2048], [2048, 2048]], [F, F], "elementwise", 2_164_260_864, 0),
    ("attention_math", "aten::isneginf", [[4, 16, 2048, 2048]], [F], "elementwise", 1_342_177_280, 0),
    ("attention_math", "aten::_softmax", [[4, 16, 2048, 2048]], [F], "softmax", 2_147_483_648, 0),
    ("attention_math", "aten::all", [[4, 16, 2048, 2048]], ["bool"], "reduce", 268_566_528, 0),
    (
        RESNET,
        "aten::cudnn_convolution",
        [[32, 64, 40, 40], [64, 64, 3, 3]],
        [F, F],
        "xmma",
        26_361_856,
        3_774_873_600,
    ),
    (
        RESNET,
        "aten::cudnn_batch_norm_backward",
        [[32, 64, 80, 80]] * 2,
        [F, F],
        "bn_bw",
        157_286_400,
        0,
    ),
    (
        RESNET,
        "aten::threshold_backward",
        [[32, 64, 40, 40]] * 2,
        [F, F],
        "elementwise",
        39_321_600,
        0,
    ),
]


@pytest.mark.parametrize(("name", "op", "dims", "types", "word", "moved", "flops"), keep_some(BY_HAND, 2))
def test_real_kernels_have_the_rates_counted_by_hand(
    name: str, op: str, dims: list[Any], types: list[str], word: str, moved: int, flops: int
) -> None:
    """Kernels are joined to operators by `External id` here, by correlation and nesting in the program."""
    tables, duration = _tables(name), 0.0
    durations = [
        kernel["dur"]
        for kernel, entry in _kernels_with_ops(name)
        if entry["name"] == op
        and entry["args"]["Input Dims"][: len(dims)] == dims
        and entry["args"]["Input type"][: len(types)] == types
        and word in kernel["name"]
    ]
    assert durations
    roofline, work = tables.roofline, tables.work
    found_bytes = found_flops = 0.0
    count = 0
    for group, first in enumerate(roofline.first.tolist()):
        inputs = roofline.inputs(group)
        row = int(tables.gpu_pieces.op[first])
        if inputs is None or tables.name(row) != op or word not in tables.name(int(work.events.row[first])):
            continue
        if inputs.dims[: len(dims)] == dims and inputs.types[: len(types)] == types:
            duration += float(roofline.sampled_time[group])
            found_bytes += float(roofline.bytes[group])
            found_flops += float(roofline.flops[group])
            count += 1
    assert count
    assert found_bytes / duration == pytest.approx(moved * len(durations) / sum(durations) / 1e3, rel=1e-3)
    assert found_flops / duration == pytest.approx(flops * len(durations) / sum(durations) / 1e3, rel=1e-3)


def test_decoding_without_shapes_says_so() -> None:
    roofline = _tables("llama_decode_eager").roofline
    assert (roofline.missing, measure_coverage(roofline)) == (NO_SHAPES, 0)


@pytest.mark.long
@pytest.mark.skipif(not SHARED_TRACES.exists(), reason="the shared traces are not available")
@pytest.mark.parametrize("are_all", [False, pytest.param(True, marks=pytest.mark.long)])
def test_no_real_trace_exceeds_a_peak_or_counts_negative_bytes(are_all: bool) -> None:
    paths = find_shared_traces()
    for path in paths if are_all else [path for path in paths if not is_long(path)][::10]:
        try:
            tables = TraceTables(load_trace(str(path), cache=False))
        except TraceError:
            continue
        roofline = tables.roofline
        assert (roofline.bytes >= 0).all(), path.name
        assert (roofline.flops >= 0).all(), path.name
        assert (np.nan_to_num(roofline.memory_share) <= 1.05).all(), path.name
        assert (np.nan_to_num(roofline.compute_share) <= 1.05).all(), path.name
        assert (roofline.sampled_time <= roofline.time + 0.5).all(), path.name
        assert 0 <= measure_coverage(roofline) <= 1


def _roofline(folder: Path, entries: list[dict[str, Any]], device: dict[str, Any] = H200) -> Roofline:
    return TraceTables(load_entries(folder, entries, device)).roofline


@lru_cache(maxsize=1)
def _tables(name: str) -> TraceTables:
    return TraceTables(load_trace(str(_shared(name)), cache=False))


@lru_cache(maxsize=1)
def _entries(name: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(gzip.decompress(_shared(name).read_bytes()))["traceEvents"]
    return entries


def _kernels_with_ops(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    entries = _entries(name)
    ops = {entry["args"]["External id"]: entry for entry in entries if entry.get("cat") == "cpu_op"}
    for entry in entries:
        op = ops.get(entry["args"].get("External id")) if entry.get("cat") == "kernel" else None
        if op is not None and "Input Dims" in op["args"]:
            yield entry, op


def _shared(name: str) -> Path:
    path = SHARED_TRACES / f"{name}.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("the shared traces are not available")
    return path


def attribute(*pieces: tuple[int, int, int, int, bool]) -> list[float]:
    """Fractions of pieces (operator, variant, kernel name, duration, is a product)."""
    columns = list(zip(*pieces, strict=True)) or [()] * 5
    op, variant, name, duration, product = (np.array(column, np.int64) for column in columns)
    fractions = attribute_work(op, variant, name.astype(np.int32), duration, product.astype(np.bool_))
    return [float(fraction) for fraction in fractions]


def test_the_only_kernel_does_all() -> None:
    assert attribute((1, 0, 7, 10, False), (2, 0, 7, 30, False)) == [1, 1]


def test_launches_of_one_kernel_share_by_time() -> None:
    assert attribute((1, 0, 7, 10, False), (1, 0, 7, 30, False)) == [0.25, 0.75]


def test_of_several_kernels_that_of_the_product_does_it() -> None:
    assert attribute((1, 0, 7, 80, True), (1, 0, 8, 20, True)) == [1, 0]
    assert attribute((1, 0, 7, 80, False), (1, 0, 8, 20, False)) == [0, 0]
    assert attribute((1, 0, 7, 50, True), (1, 0, 8, 50, True)) == [0, 0]


def test_the_two_gradients_are_separate_work() -> None:
    assert attribute((1, 1, 7, 50, True), (1, 2, 8, 50, True)) == [1, 1]


def test_nothing_to_attribute() -> None:
    assert attribute() == []


_PIECES = st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 3), st.integers(0, 1000), st.booleans())


@given(st.lists(_PIECES, max_size=30))
def test_no_work_is_attributed_twice(pieces: list[tuple[int, int, int, int, bool]]) -> None:
    total: dict[tuple[int, int], float] = {}
    for (op, variant, *_), fraction in zip(pieces, attribute(*pieces), strict=True):
        assert 0 <= fraction <= 1
        total[op, variant] = total.get((op, variant), 0) + fraction
    assert all(fraction <= 1 + 1e-9 for fraction in total.values())
