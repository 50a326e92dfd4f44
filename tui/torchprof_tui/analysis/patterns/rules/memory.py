"""The patterns of memory: what holds the peak, what grows, and what the allocator pays.

What is found is that of the `memory` command (`analysis.memory.findings`), for the whole recording: a peak is one.
In a smaller scope a pattern fires where its evidence lies.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.memory.device_memory import DeviceMemory
from torchprof_tui.analysis.memory.findings import allocator_findings
from torchprof_tui.analysis.memory.findings.lifetime_findings import MIN_STEPS, list_memory_findings
from torchprof_tui.analysis.memory.findings.memory_finding import MemoryFinding, format_number, format_size
from torchprof_tui.analysis.memory.memory_history import DeviceHistory, MemoryHistory, build_memory_history
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_notice, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_ADDRESSES, NO_MEMORY
from torchprof_tui.trace.core.arrays import I64, sorted_unique
from torchprof_tui.trace.core.records import record

MAX_EVIDENCE = 1000  # events of a pattern that stand for its allocations: those of the largest


@record
class MemoryChecks:
    """The memory of a trace as the patterns judge it: of its GPUs, or of the CPU where no GPU was recorded.

    `found`: finding id -> (device, finding), of the device on which it saves most. `history` None: nothing recorded.
    """

    history: MemoryHistory | None
    devices: tuple[DeviceHistory, ...]
    found: dict[str, tuple[DeviceHistory, MemoryFinding]]


def check_memory(tables: TraceTables) -> MemoryChecks:
    """List the findings about a trace's memory; call it through `TraceTables.compute_once`."""
    history = build_memory_history(tables.trace)
    every = () if history is None else history.devices
    devices = tuple(device for device in every if not device.memory.is_cpu) or every
    found: dict[str, tuple[DeviceHistory, MemoryFinding]] = {}
    for device in devices:
        for finding in list_memory_findings(device):
            if finding.id not in found or finding.saved > found[finding.id][1].saved:
                found[finding.id] = device, finding
    return MemoryChecks(history, devices, found)


def _answer_from_finding(view: ScopeView, pattern_id: str) -> Answer:
    """Answer by the finding of this id; its evidence are the ops that allocated, or that run at the peak."""
    checks = view.tables.compute_once(check_memory)
    if checks.history is None:
        return Answer.cannot_tell(NO_MEMORY)
    if all(device.memory.lifetimes is None for device in checks.devices):
        return Answer.cannot_tell(NO_ADDRESSES)
    if pattern_id not in checks.found:
        return Answer.absent()
    device, finding = checks.found[pattern_id]
    rows = device.op[finding.lifetimes[:MAX_EVIDENCE]]
    rows = rows[rows >= 0] if (rows >= 0).any() else _find_events_at(device, np.array([device.memory.peak], np.int64))
    return _fire(view, device.memory, finding, rows, len(checks.devices) > 1)


def _fire(view: ScopeView, memory: DeviceMemory, finding: MemoryFinding, rows: I64, is_named: bool) -> Answer:
    events = view.select_in_scope(view.tables.event_table(sorted_unique(rows))).row
    if not len(events):
        events = view.representative_events() if view.scope.is_whole_trace else events
    if not len(events):
        return Answer.absent("not in this range")
    seen = f"{memory.label}: {finding.seen}" if is_named else finding.seen
    if finding.saved:
        seen += f"; at the peak up to {format_size(finding.saved)} less"
    return Answer.fired(seen, events, remedy=Remedy(finding.action, finding.code))


def _find_events_at(device: DeviceHistory, positions: I64) -> I64:
    """Find the innermost events around records of a device: rows of the trace."""
    owners = device.producers.owner[device.memory.records[positions]]
    return owners[owners >= 0].astype(np.int64)


@register_pattern(
    "Each step holds more memory",
    meaning="what is allocated at the same place of each step is not freed when the next one is over: the program "
    "runs out of memory after enough steps",
    action="keep numbers instead of tensors: a loss that is added to a total or a list keeps its whole graph alive",
    code="total += loss.item()  # or loss.detach()",
    decided=f"At least {MIN_STEPS} steps, and after each but the first and the last at least 64 KiB more are "
    "allocated than before; an op allocates in each of them what is never freed.",
)
def memory_growth(view: ScopeView) -> Answer:
    answer = _answer_from_finding(view, "memory-growth")
    steps = view.tables.trace.profiler_steps
    if view.tables.compute_once(check_memory).history is not None and len(steps) < MIN_STEPS:
        return Answer.cannot_tell(
            f"growth is told from {MIN_STEPS} steps or more: call prof.step(), active={MIN_STEPS}"
        )
    return answer


@register_notice(
    "Reserved memory is in pieces",
    meaning="the allocator holds enough free memory, but no free block is large enough (or it belongs to another "
    "stream or to a CUDA graph): it gets more from the driver, and fails earlier",
    action="let segments grow, so that free blocks of different sizes do not lie between blocks in use",
    code=allocator_findings.EXPANDABLE,
    decided="Reserved memory grows for an allocation above 1 MiB although as much, at least 256 MiB and a fifth of "
    "what is reserved, was reserved and free. Memory that is reserved and not in use proves nothing alone.",
)
def fragmentation(view: ScopeView) -> Answer:
    checks = view.tables.compute_once(check_memory)
    if checks.history is None:
        return Answer.cannot_tell(NO_MEMORY)
    if "fragmentation" in checks.found:
        device, finding = checks.found["fragmentation"]
        growth = allocator_findings.find_scattered_growth(device.memory)
        position = device.memory.find_position(growth.time) if growth else device.memory.peak
        rows = _find_events_at(device, np.array([position], np.int64))
        return _fire(view, device.memory, finding, rows, len(checks.devices) > 1)
    for device in checks.devices:
        if not device.memory.is_cpu and (unused := allocator_findings.measure_unused(device.memory)):
            return Answer.cannot_tell(
                f"at the peak {format_size(unused[0])} of {format_size(unused[1])} reserved are not in use; whether "
                "they are in pieces, or were needed before the recording, a snapshot shows: --memory-snapshot"
            )
    return Answer.absent()


@register_notice(
    "Where in the step memory peaks",
    meaning="the phase of training with most memory allocated: late in forward and early in backward activations "
    "decide the peak, in the optimizer's step its states and temporaries",
    action="see what is alive at the peak, and lower that: the rest of the step has memory to spare",
    code="torchprof-tui memory TRACE --by category",
    decided="A backward pass was recorded, and the peak has 16 MiB or more.",
)
def peak_phase(view: ScopeView) -> Answer:
    return _answer_from_finding(view, "peak-phase")


@register_notice(
    "Activations hold the peak",
    meaning="what the forward pass keeps for the backward pass is a large part of the peak; it grows with the batch",
    action="do not keep the activations of each layer: compute them again in the backward pass",
    code="x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)",
    decided="Activations are 30 % of the peak or more, without them the peak would be 16 MiB and 10 % lower, and "
    "nothing is checkpointed. The cost is the time of a forward pass.",
)
def activation_memory(view: ScopeView) -> Answer:
    return _answer_from_finding(view, "activation-memory")


@register_notice(
    "A temporary makes the peak",
    meaning="results of one op that are needed for a short time make the peak: scores of attention, logits, sorted "
    "copies",
    action="compute in chunks, in place, or in a fused op that needs no such tensor",
    decided="Temporaries of one op at the peak, alive for a twentieth of a step (of the recording, without steps) or "
    "less, without which the peak would be 16 MiB and 10 % lower.",
)
def temporary_spike(view: ScopeView) -> Answer:
    return _answer_from_finding(view, "temporary-spike")


def _find_retries(tables: TraceTables) -> allocator_findings.RetryCalls:
    return allocator_findings.find_retry_calls(tables.trace)


@register_pattern(
    "The allocator ran out and tried again",
    meaning="the driver had no memory left: torch gave its cache back and asked again, which waits for the GPU",
    action="use less memory, or fragment it less: the program is at the limit of the device",
    code=allocator_findings.EXPANDABLE,
    decided="Inside one op cudaMalloc, then cudaFree, then cudaMalloc, and less is reserved after the op than before "
    "it. Convolutions are left out: their libraries do so while they try algorithms.",
    needs=(ScopeView.missing_calls_reason,),
)
def allocator_retries(view: ScopeView) -> Answer:
    tables = view.tables
    candidates = tables.compute_once(_find_retries)
    if not len(candidates.ops):
        return Answer.absent()
    checks = tables.compute_once(check_memory)
    if checks.history is None:
        return Answer.cannot_tell(
            f"{format_number(len(candidates.ops), 'op')} called cudaMalloc, cudaFree and cudaMalloc, which a library "
            "does as well when it loads: profile_memory=True tells"
        )
    if "allocator-retries" not in checks.found:
        return Answer.absent("the driver's calls are those of libraries")
    device, finding = checks.found["allocator-retries"]
    calls = view.select_in_scope(tables.event_table(candidates.calls))
    answer = _fire(view, device.memory, finding, calls.row, len(checks.devices) > 1)
    if not len(answer.events):
        return answer
    spans = calls.intervals
    return Answer.fired(answer.seen, answer.events, view.clip(spans).total, answer.remedy, spans=spans)


@register_notice(
    "Inference keeps a graph for a backward pass",
    meaning="without no_grad each op keeps its inputs for a backward pass that never comes",
    action="run inference without gradients, so that each result is freed when the next layer has used it",
    code="with torch.inference_mode():",
    decided="Neither a backward pass nor an optimizer step was recorded, the ops have sequence numbers of their own, "
    "as with gradients, and without what they keep the peak would be 16 MiB and 10 % lower.",
    fires_on_absence=True,
)
def graph_in_inference(view: ScopeView) -> Answer:
    return _answer_from_finding(view, "graph-in-inference")


@register_notice(
    "The optimizer's states hold the peak",
    meaning="Adam keeps two values for each parameter, as large as the parameters in 32 bits",
    action="keep them in 8 bits, or shard them over the GPUs",
    code="torch.distributed.optim.ZeroRedundancyOptimizer(params, torch.optim.AdamW)  # or torchao's AdamW8bit",
    decided="States are a quarter of the peak or more, and 8 bits would save 16 MiB and 10 % of it.",
)
def optimizer_states(view: ScopeView) -> Answer:
    return _answer_from_finding(view, "optimizer-states")


@register_notice(
    "Tensors are held in two precisions",
    meaning="casts inside the model are alive at the peak: autocast keeps a copy of each weight, a cast input is held "
    "beside the input",
    action="hold the tensors in the precision that they are used in; a model in bfloat16 needs no autocast",
    code="model = model.to(torch.bfloat16)",
    decided="Results of aten::_to_copy inside the passes, no copies between devices, without which the peak would be "
    "16 MiB and 10 % lower.",
)
def duplicate_copies(view: ScopeView) -> Answer:
    return _answer_from_finding(view, "duplicate-copies")


@register_notice(
    "The cache of keys and values holds the peak",
    meaning="keys and values of all tokens are kept, and appending with cat holds one of them twice",
    action="allocate the cache once for the longest text, and write the new keys and values into it",
    code='model.generate(..., cache_implementation="static")',
    decided="In inference with attention: results of cat, 10 % of the peak or more, each alive together with one a "
    "little longer or shorter. Caches that were allocated before the recording are not seen.",
)
def kv_cache(view: ScopeView) -> Answer:
    return _answer_from_finding(view, "kv-cache")
