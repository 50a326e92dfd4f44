"""The roofline of a trace: the rate of each group of like launches beside what its device reaches at most."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.throughput.device_peaks import DTYPES, DevicePeaks
from torchprof_tui.analysis.throughput.roofline import Limit
from torchprof_tui.answers.record import Record, about
from torchprof_tui.trace.model.trace import Trace

NO_GPU_WORK, NO_RATES = "there is no GPU work in it", "of no kernel are FLOPs or bytes known"


class TypePeak(Record, frozen=True, kw_only=True):
    """The highest rate for a data type."""

    dtype: Annotated[str, about("bf16, tf32, …")]
    tflops: Annotated[float, about("by the data sheet, without sparsity")]


class DeviceRoof(Record, frozen=True, kw_only=True):
    """What a device reaches at most."""

    device: Annotated[str, about("its name, as recorded")]
    gb_s: Annotated[float | None, about("bandwidth of its memory; null if unknown")]
    peaks: Annotated[list[TypePeak], about("by data type, of those that occur; [] if unknown")]


class RooflineGroup(Record, frozen=True, kw_only=True):
    """Launches of one kernel on one grid by one op."""

    kernel: Annotated[str, about("short name; as recorded where it has none")]
    op: Annotated[str, about("op that launched it; empty if unknown")]
    dtype: Annotated[str, about("data type of its inputs; empty if unknown")]
    calls: Annotated[int, about("number of launches")]
    time_us: Annotated[float, about("sum of their durations")]
    share: Annotated[float, about("of the time of all GPU work", "share")]
    intensity: Annotated[float | None, about("FLOPs for each byte; null if either is unknown", "FLOP/byte")]
    tflops: Annotated[float | None, about("null where no FLOPs are counted")]
    gb_s: Annotated[float | None, about("of the bytes that it must move at least; null if unknown")]
    memory_share: Annotated[float | None, about("of the memory's bandwidth; null if unknown, or from the cache")]
    compute_share: Annotated[float | None, about("of the peak for its data type; null if unknown")]
    limit: Annotated[Literal["memory", "compute", "neither", "unknown"], about("what limits it")]
    is_cached: Annotated[bool, about("its bytes may come from a cache, so no share of the memory's bandwidth is known")]
    event: Annotated[int, about("number of the first of them in the trace, from 0")]

    @property
    def peak_share(self) -> float | None:
        """The share of the nearer peak."""
        return max((share for share in (self.memory_share, self.compute_share) if share is not None), default=None)

    def format_rate(self) -> str:
        """Format the rate in TFLOP/s, without FLOPs in GB/s; "" where neither is known."""
        rate, unit = (self.gb_s, "GB/s") if self.tflops is None else (self.tflops, "TFLOP/s")
        return "" if rate is None else f"{rate:,.{0 if rate >= 100 else 3}{'f' if rate >= 100 else 'g'}} {unit}"


class Roofline(Record, frozen=True, kw_only=True):
    """The roofline of a trace: Williams, Waterman, Patterson (2009)."""

    trace: Annotated[str, about("name of the trace")]
    roofs: Annotated[list[DeviceRoof], about("one for each kind of device, most GPU time first")]
    groups: Annotated[list[RooflineGroup], about("most time first")]
    known_share: Annotated[float, about("of the time of all GPU work, whose FLOPs or bytes are known", "share")]
    cannot_tell: Annotated[str | None, about("why no rate is known; null if one is")]

    def list_points(self) -> list[RooflineGroup]:
        """List the groups with FLOPs and bytes, most time first."""
        return [group for group in self.groups if group.intensity and group.tflops]

    def list_known(self) -> list[RooflineGroup]:
        """List the groups with a rate, most time first."""
        return [group for group in self.groups if group.tflops is not None or group.gb_s is not None]


def build_roofline(trace: Trace) -> Roofline:
    """Build the roofline of a trace of one rank."""
    tables = Checker(trace).tables
    found, pieces = tables.roofline, tables.gpu_pieces
    total = float(found.time.sum())
    calls = np.bincount(found.group, minlength=len(found.time))
    groups = []
    for group in np.argsort(-found.time, kind="stable").tolist():
        first = int(found.first[group])
        name, op = tables.trace.names[int(pieces.name[first])], int(pieces.op[first])
        has_both = found.bytes[group] > 0 and not np.isnan(found.tflops[group])
        groups.append(
            RooflineGroup(
                kernel=decode_kernel_name(name).display or name,
                op=tables.name(op) if op >= 0 else "",
                dtype=DTYPES[int(found.dtype[group])],
                calls=int(calls[group]),
                time_us=float(found.time[group]) / 1000,
                share=float(found.time[group]) / total if total else 0.0,
                intensity=float(found.flops[group] / found.bytes[group]) if has_both else None,
                tflops=_none_if_unknown(found.tflops[group]),
                gb_s=_none_if_unknown(found.gb_s[group]),
                memory_share=_none_if_unknown(found.memory_share[group]),
                compute_share=_none_if_unknown(found.compute_share[group]),
                limit=Limit(int(found.limit[group])).name.lower(),  # type: ignore[arg-type]
                is_cached=bool(found.is_cached[group]),
                event=int(tables.work.events.row[first]),
            )
        )
    used = [each.dtype for each in groups if each.tflops is not None]
    by_device = np.bincount(np.maximum(pieces.device, 0), weights=pieces.duration) if len(pieces) else np.empty(0)
    numbers = [number for number in np.argsort(-by_device, kind="stable").tolist() if by_device[number]]
    found_peaks = [tables.find_device_peaks(number) for number in numbers]
    known = float(found.time[found.sampled_time > 0].sum())
    return Roofline(
        trace=trace.label,
        roofs=[_build_roof(each, used) for each in dict.fromkeys(peaks for peaks in found_peaks if peaks is not None)],
        groups=groups,
        known_share=known / total if total else 0.0,
        cannot_tell=None
        if known
        else found.missing or (NO_GPU_WORK if not groups else "no shape tells FLOPs or bytes"),
    )


def _build_roof(peaks: DevicePeaks, dtypes: list[str]) -> DeviceRoof:
    rates = [(dtype, peaks.tflops(dtype)) for dtype in DTYPES if dtype in dtypes]
    return DeviceRoof(
        device=peaks.name,
        gb_s=peaks.bandwidth,
        peaks=[TypePeak(dtype=dtype, tflops=rate) for dtype, rate in rates if rate is not None],
    )


def _none_if_unknown(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
