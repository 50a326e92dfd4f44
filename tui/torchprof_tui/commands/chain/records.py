"""The records of `chain --json`."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, UnsetType, field

from torchprof_tui.analysis.dispatch.chain import HopRole, JoinMethod
from torchprof_tui.analysis.graphs.captured_ops import OpSource
from torchprof_tui.commands.common.json_document import Document, Record, about
from torchprof_tui.commands.common.partial_input import ProblemRecord


class HopRecord(Record, frozen=True, kw_only=True):
    """One event of a chain."""

    role: Annotated[HopRole, about("what it is in the chain")]
    name: Annotated[str, about("as recorded")]
    start_ns: Annotated[int, about("from the trace's first event")]
    duration_ns: Annotated[int, about("with what it calls")]
    self_ns: Annotated[int, about("without what it calls")]


class LineSourceRecord(Record, frozen=True, kw_only=True):
    """What names the code behind an event: a Python frame, or the annotation or module that is known instead."""

    kind: Annotated[str, about("frame, annotation or module")]
    text: Annotated[str, about("to show: train.py(42): forward")]
    function: Annotated[str, about("function, annotation or module")]
    from_forward: Annotated[bool, about("it belongs to the forward op of a backward event")]
    library: Annotated[str | None, about("innermost frame of an installed package on the way to the event")]


class HeaviestWorkRecord(Record, frozen=True, kw_only=True):
    """One piece of GPU work that the event launched."""

    name: Annotated[str, about("as recorded")]
    duration_ns: Annotated[int, about("on the GPU")]
    share: Annotated[float, about("of all GPU time that the event launched")]


class GpuWorkRecord(Record, frozen=True, kw_only=True):
    """All GPU work that the event and what it calls launched."""

    count: Annotated[int, about("kernels, copies and fills")]
    total_ns: Annotated[int, about("sum of their durations; work that overlaps counts twice")]
    heaviest: Annotated[list[HeaviestWorkRecord], about("the longest, at most 20")]


class BlockLimitsRecord(Record, frozen=True, kw_only=True):
    """Blocks that fit on one multiprocessor by each resource; null if unknown."""

    warps: Annotated[int | None, about("by the number of warps")]
    registers: Annotated[int | None, about("by registers")]
    shared_memory: Annotated[int | None, about("by shared memory", "blocks")]
    blocks: Annotated[int | None, about("by the number of blocks")]


class LaunchChangeRecord(Record, frozen=True, kw_only=True):
    """The nearest change of one launch parameter that raises the occupancy."""

    change: Annotated[str, about("registers (per thread), shared_memory (bytes per block) or block (threads)")]
    before: Annotated[int, about("value now")] = field(name="from")
    to: Annotated[int, about("value that is needed")]
    active_blocks_per_sm: Annotated[int, about("blocks per multiprocessor with it")]
    theoretical_occupancy: Annotated[float, about("with it", "%")]


class DecodedNameRecord(Record, frozen=True, kw_only=True):
    """What the kernel's name says; null or empty where it says nothing."""

    kernel_class: Annotated[str, about("kind of work: gemm, attention, elementwise, …")]
    known: Annotated[bool, about("the form of the name is known")]
    family: Annotated[str, about("generator of names of this form")]
    library: Annotated[str | None, about("library that has the kernel")]
    arch: Annotated[str | None, about("architecture that it was built for: sm_80, gfx942")]
    dtypes: Annotated[list[str], about("data types, inputs first")]
    tensor_core: Annotated[bool | None, about("it uses tensor cores (on AMD: matrix cores)")]
    tile: Annotated[list[int] | None, about("M, N and perhaps K of one block")]
    stages: Annotated[int | None, about("of the shared memory pipeline")]
    layout: Annotated[str | None, about("of A and B, or of a tensor: tn, nhwc")]
    fused: Annotated[list[str], about("operations of a fused kernel")]
    epilogue: Annotated[str | None, about("what follows the matrix product in the same kernel")]
    direction: Annotated[str | None, about("forward or backward; for copies: host to device, …")]
    display: Annotated[str, about("a few characters for a bar")]
    summary: Annotated[str, about("one sentence")]
    details: Annotated[dict[str, str], about("what has no field of its own: label → value")]


class FootprintRecord(Record, frozen=True, kw_only=True):
    """What one kernel takes of a multiprocessor (SM), and what limits its occupancy; null where unknown."""

    grid: Annotated[list[int] | None, about("blocks in x, y, z")]
    block: Annotated[list[int] | None, about("threads of a block in x, y, z")]
    threads_per_block: Annotated[int | None, about("threads of a block")]
    registers_per_thread: Annotated[int | None, about("registers of a thread")]
    shared_memory_bytes: Annotated[int | None, about("of a block, static and dynamic")]
    dynamic_shared_memory_bytes: Annotated[int | None, about("of a block, where the trace has only this part (ROCm)")]
    blocks_per_sm_limit: Annotated[BlockLimitsRecord, about("blocks per SM that each resource allows")]
    active_blocks_per_sm: Annotated[int | None, about("the least of these limits")]
    active_warps_per_sm: Annotated[int | None, about("warps of these blocks")]
    theoretical_occupancy: Annotated[float | None, about("active warps of those that an SM can hold", "%")]
    limited_by: Annotated[list[str], about("resources with the least limit, all that tie")]
    reported_occupancy: Annotated[float | None, about("as the profiler wrote it (est. achieved occupancy)", "%")]
    reported_active_blocks_per_sm: Annotated[int | None, about("as the profiler wrote it")]
    waves: Annotated[float | None, about("grid / (SMs × active blocks)")]
    tail_waste: Annotated[float | None, about("block slots of all started waves that stay empty", "share")]
    last_wave_fill: Annotated[float | None, about("block slots of the last wave that are used", "share")]
    idle_sms: Annotated[int | None, about("SMs that get no block")]
    concurrent_share: Annotated[float, about("of its duration, in which another kernel runs on the device")]
    launch_is_fixed: Annotated[bool, about("the library chooses the launch; the program cannot change it")]
    what_if: Annotated[list[LaunchChangeRecord], about("changes that raise the occupancy, smallest first")]
    kernel_class: Annotated[str, about("kind of work: gemm, attention, elementwise, …")]
    decoded: Annotated[DecodedNameRecord, about("what the name says")]
    notes: Annotated[list[str], about("what limits these numbers")]


class TransferRecord(Record, frozen=True, kw_only=True):
    """A copy or fill; null where unknown."""

    source: Annotated[str | None, about("host, device or peer device; null for a fill")]
    target: Annotated[str | None, about("host, device or peer device")]
    bytes: Annotated[int | None, about("moved")]
    bandwidth_gb_s: Annotated[float | None, about("bytes / duration; 10⁹ bytes per second")]
    reported_bandwidth_gb_s: Annotated[float | None, about("as the profiler wrote it")]
    pinned: Annotated[bool | None, about("the host memory is pinned; null if none is involved")]
    peak_gb_s: Annotated[float | None, about("what the link or the memory offers")]
    peak_of: Annotated[str | None, about("what that is the peak of")]
    share_of_peak: Annotated[float | None, about("bandwidth of the peak; a copy inside a device counts twice", "share")]


class CapturedRecord(Record, frozen=True, kw_only=True):
    """The op of a replayed kernel when its graph was captured; times from the capture's first event."""

    source: Annotated[OpSource, about("what the op comes from; none: see reason")]
    reason: Annotated[str | UnsetType, about("why the op is unknown; left out where it is known")] = UNSET
    trace: Annotated[str | None, about("trace of the capture; null for the trace itself or none")] = None
    op: Annotated[str | None, about("op that launched the kernel")] = None
    annotation: Annotated[str | None, about("of the graph's node")] = None
    input_shapes: Annotated[list[Any], about("of the op; [] if not recorded")] = []
    input_types: Annotated[list[Any], about("of the op; [] if not recorded")] = []
    note: Annotated[str, about("why the replay may have had other shapes; empty for no doubt")] = ""
    chain: Annotated[list[HopRecord], about("calls around the launch in the capture, outermost first")] = []
    line: Annotated[str | None, about("file:lineno of the captured code; null if not recorded")] = None
    line_source: Annotated[LineSourceRecord | None, about("what names that code")] = None


class GraphEdgesRecord(Record, frozen=True, kw_only=True):
    """Edges of a replayed graph at the chain's GPU work, within the same replay, on whatever streams."""

    waits_for: Annotated[list[HopRecord], about("GPU work that must end before it starts")]
    waited_for_by: Annotated[list[HopRecord], about("GPU work that starts only when it has ended")]


class ChainDocument(Document, frozen=True, kw_only=True, tag="torchprof-tui/chain/1"):
    """The dispatch chain through one event: the calls around it, its launch, the GPU work that it leads to."""

    event: Annotated[str, about("name that was asked for")]
    nth: Annotated[int, about("which event of that name in time, from 0")]
    of: Annotated[int, about("events of that name")]
    rank: Annotated[int | UnsetType, about("rank of the trace; only with several")] = UNSET
    cannot_tell: Annotated[
        str | UnsetType, about("why the launch or the GPU work is not known; left out where it is")
    ] = UNSET
    chain: Annotated[list[HopRecord], about("outermost first, ending in the longest GPU work that it leads to")]
    joined_by: Annotated[JoinMethod, about("how the GPU work was joined to its launch")]
    note: Annotated[str, about("what is missing in the chain; empty for nothing")]
    launch_latency_ns: Annotated[int | None, about("from the start of the launching call to the start on the GPU")]
    queue_delay_ns: Annotated[
        int | None, about("from the end of that call to the start on the GPU; negative if it started before")
    ]
    held_up_ns: Annotated[int, about("part of the queue delay in which earlier work ran on the stream")]
    held_up_by: Annotated[str | None, about("the last of that work")]
    backward_of: Annotated[str | None, about("forward op that this is the backward of")]
    backward: Annotated[str | None, about("first backward node of this op")]
    line: Annotated[str | None, about("file:lineno of the code behind it; null if not recorded")]
    line_source: Annotated[LineSourceRecord | None, about("what names that code")]
    gpu_work: Annotated[GpuWorkRecord, about("all GPU work that the event leads to")]
    captured: Annotated[CapturedRecord | None, about("op of a replayed kernel; null for work of no graph")]
    graph_edges: Annotated[
        GraphEdgesRecord | None, about("edges of its graph; null where none were recorded, and for work of no graph")
    ]
    footprint: Annotated[FootprintRecord | None, about("of the kernel at the end of the chain; null for none")]
    transfer: Annotated[TransferRecord | None, about("the copy or fill at the end of the chain; null for none")]
    partial: Annotated[list[ProblemRecord], about("what was lost of the trace; [] for nothing")]
