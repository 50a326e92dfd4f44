"""Find memory whose lifetime is wrong: what grows from step to step, short spikes, duplicates, a graph that is kept;
list all findings of a device.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.memory.categories import Category, find_host_copies
from torchprof_tui.analysis.memory.findings.allocator_findings import find_fragmentation, find_retries
from torchprof_tui.analysis.memory.findings.memory_finding import (
    MIN_SAVED,
    MIN_SHARE,
    MemoryFinding,
    build_finding,
    compute_saving,
    format_number,
    format_size,
    is_worth_it,
)
from torchprof_tui.analysis.memory.memory_history import DeviceHistory, GroupBy
from torchprof_tui.analysis.memory.producers import Phase
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import I64, Bool, is_in, sorted_unique, sum_by_index
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

MIN_STEPS = 5
"""Steps that growth must be seen over: the first allocates, and of the last it is not known what outlives it."""

MIN_GROWTH = 64 << 10  # bytes of a step below which growth is not told from counters and logs
SPIKE_SHARE = 0.05  # share of a step up to which a temporary that makes the peak is a spike

CAST_OP = "aten::_to_copy"
CAT_OP = "aten::cat"


def find_growth(device: DeviceHistory) -> list[MemoryFinding]:
    """Find memory that more is held of after each step: a leak, named by the line or the op that allocates it.

    Each step after the first must leave more behind, allocated at the same place, and alive when the next step is over.
    """
    steps = device.producers.trace.profiler_steps
    if len(steps) < MIN_STEPS:
        return []
    bounds = np.array([step.start for step in steps] + [steps[-1].start + steps[-1].duration], np.int64)
    held, _ = device.memory.read_curve(bounds[1:])
    growth = np.diff(held)[:-1]  # of the last step too little is known
    if growth.min() < MIN_GROWTH:
        return []
    times = device.producers.memory.time
    rows = np.flatnonzero((device.lifetimes.allocated_by >= 0) & ~device.lifetimes.is_freed)
    step = np.searchsorted(bounds, times[device.lifetimes.allocated_by[rows]], side="right") - 1
    count = len(steps) - 2
    inside = (step >= 1) & (step <= count)
    rows, step = rows[inside], step[inside]
    op, names = device.label_lifetimes(rows, GroupBy.OP)
    seen = np.zeros((len(names), count + 1), np.bool_)
    seen[op, step] = True
    rows = rows[(seen.sum(axis=1) >= count)[op]]  # of ops that allocate such memory in each step
    leaked: I64 = rows[np.argsort(-device.lifetimes.bytes[rows], kind="stable")]
    total = int(device.lifetimes.bytes[leaked].sum())
    if total < MIN_GROWTH * count:
        return []
    return build_finding(
        device,
        "memory-growth",
        f"each of {count} steps holds {format_size(total // count)} more, {format_size(total)} in all, that nothing "
        "frees",
        compute_saving(device, leaked),
        "keep numbers instead of tensors: a loss that is added to a total or a list keeps its whole graph alive",
        "total += loss.item()  # or loss.detach()",
        leaked,
    )


def find_spikes(device: DeviceHistory) -> list[MemoryFinding]:
    """Find the temporary at the peak without which the peak would be lower, and which is alive for a short time only.

    In inference all results are temporary; those that live on, as keys and values do, make no spike.
    """
    state = device.find_peak()
    temporary = _select_short(device, state.alive[device.category[state.alive] == Category.TEMPORARY])
    if not len(temporary):
        return []
    op, names = device.label_lifetimes(temporary, GroupBy.OP)
    heaviest = int(sum_by_index(op, device.lifetimes.bytes[temporary], len(names)).argmax())
    what, largest = names[heaviest], temporary[op == heaviest]
    total = int(device.lifetimes.bytes[largest].sum())
    short = _select_short(device, np.flatnonzero(device.category == Category.TEMPORARY))
    saved = min(compute_saving(device, _select_of_op(device, short, what)), total)
    if not what or not is_worth_it(device, saved):
        return []
    return build_finding(
        device,
        "temporary-spike",
        f"temporaries of {what} are {format_size(total)} of the peak's {format_size(state.allocated)}, and freed "
        "before the phase is over",
        saved,
        "compute in chunks, in place, or in a fused op that needs no such tensor; del what is no longer needed before",
        "",
        largest,
    )


def _select_short(device: DeviceHistory, lifetimes: I64) -> I64:
    """Select the lifetimes (rows int64[k]) that take a small share of a step; of the recording, without steps."""
    times = device.producers.memory.time
    steps = device.producers.trace.profiler_steps
    usual = float(np.median([step.duration for step in steps])) if steps else float(times[-1] - times[0])
    allocated_by, freed_by = device.lifetimes.allocated_by[lifetimes], device.lifetimes.freed_by[lifetimes]
    known = (allocated_by >= 0) & (freed_by >= 0)
    short: I64 = lifetimes[known & (times[freed_by] - times[allocated_by] <= SPIKE_SHARE * usual)]
    return short


def find_duplicates(device: DeviceHistory) -> list[MemoryFinding]:
    """Find copies in another precision that are alive at the peak beside what they were made of.

    They are casts inside the passes, without parameters, inputs and copies from the host.
    """
    if device.memory.is_cpu:
        return []
    state = device.find_peak()
    casts = _select_of_op(device, np.arange(len(device.lifetimes)), CAST_OP)
    is_inside = is_in(device.phase[casts], (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER))
    casts = casts[is_inside & ~is_in(device.category[casts], (Category.PARAMETER, Category.INPUT))]
    casts = casts[~find_host_copies(device.producers.trace)[device.op[casts]]]
    named = state.alive[is_in(state.alive, casts)]
    total = int(device.lifetimes.bytes[named].sum())
    saved = min(compute_saving(device, casts), total)
    if not is_worth_it(device, saved):
        return []
    return build_finding(
        device,
        "duplicate-copies",
        f"{format_number(len(named), 'cast')}, {format_size(total)} of the peak's {format_size(state.allocated)}, hold "
        "the same values in another precision",
        saved,
        "hold the tensors in the precision that they are used in: cast inputs once, before the model; a model in "
        "bfloat16 needs no autocast",
        "model = model.to(torch.bfloat16)",
        named,
    )


def find_kept_graph(device: DeviceHistory) -> list[MemoryFinding]:
    """Find forward passes that record a graph for a backward pass that never comes.

    With gradients each op that records a node has a sequence number of its own; without them all have the same.
    """
    producers = device.producers
    trace, passes = producers.trace, producers.passes
    numbers = trace.args.get("sequence")
    if numbers is None or passes.has(Phase.BACKWARD) or passes.has(Phase.OPTIMIZER):
        return []
    state = device.find_peak()
    alive = state.alive[(device.op[state.alive] >= 0) & (device.phase[state.alive] == Phase.FORWARD)]
    values = np.asarray(numbers.values_at(device.op[alive]), np.int64)
    alive, values = alive[values >= 0], values[values >= 0]
    if len(sorted_unique(values)) < 2:
        return []
    saved = compute_saving(device, alive)
    if not is_worth_it(device, saved):
        return []
    total = int(device.lifetimes.bytes[alive].sum())
    return build_finding(
        device,
        "graph-in-inference",
        f"no backward pass was recorded, but the ops record a graph, which keeps {format_size(total)} of the peak's "
        f"{format_size(state.allocated)}",
        saved,
        "run inference without gradients, so that each result is freed when the next layer has used it",
        "with torch.inference_mode():",
        alive,
    )


def find_kv_cache(device: DeviceHistory) -> list[MemoryFinding]:
    """Find results of `cat` that are appended to, in a model that attends: a cache of keys and values.

    While one is alive another begins that is as large or larger, as `torch.cat` makes it from the old cache.
    """
    passes, state = device.producers.passes, device.find_peak()
    if passes.has(Phase.BACKWARD) or passes.has(Phase.OPTIMIZER):
        return []
    cached = _select_of_op(device, state.alive, CAT_OP)
    cached = cached[_is_appended_to(device, cached)]
    if len(cached) < 2 or not any("attention" in name for name in device.producers.trace.names):
        return []
    total = int(device.lifetimes.bytes[cached].sum())
    if total < MIN_SHARE * state.allocated or not is_worth_it(device, total):
        return []
    return build_finding(
        device,
        "kv-cache",
        f"{format_number(len(cached), 'result')} of cat, a cache that grows with each token, hold {format_size(total)} "
        f"of the peak's {format_size(state.allocated)}",
        int(device.lifetimes.bytes[cached].min()),  # each append holds one tensor of the cache twice
        "allocate the cache once for the longest text, and write the new keys and values into it",
        'model.generate(..., cache_implementation="static")',
        cached,
    )


def _is_appended_to(device: DeviceHistory, cached: I64) -> Bool:
    """Test which lifetimes (rows int64[k]) of `cat` are copied into one, or from one, a little longer: bool[k].

    The two overlap, and the longer has at most twice the bytes.
    """
    every = device.lifetimes.select(_select_of_op(device, np.arange(len(device.lifetimes)), CAT_OP))
    begin, end, size = every.begin, every.end, every.bytes
    appended = np.zeros(len(cached), np.bool_)
    for row, lifetime in enumerate(cached.tolist()):
        own_begin, own_end = int(device.lifetimes.begin[lifetime]), int(device.lifetimes.end[lifetime])
        own_size = int(device.lifetimes.bytes[lifetime])
        after = (begin > own_begin) & (begin < own_end) & (end > own_end) & (size >= own_size) & (size <= 2 * own_size)
        before = (begin < own_begin) & (end > own_begin) & (end < own_end) & (size <= own_size) & (2 * size >= own_size)
        appended[row] = bool((after | before).any())
    return appended


def _select_of_op(device: DeviceHistory, lifetimes: I64, name: str) -> I64:
    """Select the lifetimes that an op of this name allocated: int64[s]."""
    trace, op = device.producers.trace, device.op[lifetimes]
    is_named = match_names(trace, name.__eq__) & (trace.kind == Kind.OP)
    selected: I64 = lifetimes[(op >= 0) & is_named[np.maximum(op, 0)]] if len(trace) else lifetimes[:0]
    return selected


MIN_ACTIVATION_SHARE = 0.3  # share of the peak from which activations are worth computing twice

MIN_STATE_SHARE = 0.25
"""Share of the peak from which the optimizer's states are worth a smaller form: Adam's own share is a half."""

_STATE_SAVED = 0.75  # what 8 instead of 32 bits for each value save of the states

_CHECKPOINT_NAMES = ("torch/utils/checkpoint", "CheckpointFunction")


def find_peak_phase(device: DeviceHistory) -> list[MemoryFinding]:
    """Tell in which phase of training the peak is: at the end of forward, activations are what matters."""
    passes = device.producers.passes
    state = device.find_peak()
    if not passes.has(Phase.BACKWARD) or not len(state.alive) or state.allocated < MIN_SAVED:
        return []
    current = int(np.searchsorted(passes.start, state.time, side="right")) - 1
    if current < 0:
        return []
    phase = Phase(int(passes.phase[current]))
    where = "in the optimizer's step" if phase is Phase.OPTIMIZER else f"in the {phase.label} pass"
    if state.time > passes.end[current]:
        where = f"after the {phase.label} pass"
    action = "what is alive here decides the largest batch: see `memory --by category`"
    if phase is Phase.OPTIMIZER:
        action = "smaller optimizer states and a foreach=False step lower this peak; smaller batches do not"
    return [MemoryFinding("peak-phase", f"the peak of {format_size(state.allocated)} is {where}", 0, action)]


def find_checkpointing(device: DeviceHistory) -> list[MemoryFinding]:
    """Find activations that checkpointing would save, and the forward time that it would cost again."""
    passes, state = device.producers.passes, device.find_peak()
    names = device.producers.trace.names
    if not passes.has(Phase.BACKWARD) or any(part in name for name in names for part in _CHECKPOINT_NAMES):
        return []
    held = state.alive[device.category[state.alive] == Category.ACTIVATION]
    total = int(device.lifetimes.bytes[held].sum())
    if total < max(MIN_SAVED, MIN_ACTIVATION_SHARE * state.allocated):
        return []
    everywhere = np.flatnonzero(device.category == Category.ACTIVATION)  # of the other steps as well
    saved = min(compute_saving(device, everywhere), total)
    if not is_worth_it(device, saved):
        return []
    cost = measure_forward_time(device, state.time)
    again = "" if cost is None else f"; computing them again takes {format_duration(cost)} a step"
    return build_finding(
        device,
        "activation-memory",
        f"{format_number(len(held), 'activation')}, {format_size(total)} of the peak's "
        f"{format_size(state.allocated)}{again}",
        saved,
        "do not keep the activations of each layer: compute them again in the backward pass",
        "x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)",
        held,
        cost,
    )


def measure_forward_time(device: DeviceHistory, time: int) -> int | None:
    """Measure the time of the last forward pass that starts before a time, ns: on the GPU where it launched work.

    None without a forward pass before it.
    """
    trace, passes = device.producers.trace, device.producers.passes
    number = int(passes.find_pass(np.array([time], np.int64), Phase.FORWARD)[0])
    if number < 0:
        return None
    start, end = int(passes.start[number]), int(passes.end[number])
    work = np.flatnonzero(is_in(trace.kind, (Kind.KERNEL, Kind.COPY, Kind.MEMSET)))
    launch = trace.links.launch_of[work]
    work, launch = work[launch >= 0], launch[launch >= 0]
    work = work[(trace.start[launch] >= start) & (trace.start[launch] < end)]
    if not len(work):
        return end - start
    return int(union(trace.start[work], trace.start[work] + trace.duration[work]).total)


def find_optimizer_states(device: DeviceHistory) -> list[MemoryFinding]:
    """Find optimizer states that are a large part of the peak."""
    state = device.find_peak()
    if not device.producers.passes.has(Phase.OPTIMIZER):
        return []
    held = state.alive[device.category[state.alive] == Category.OPTIMIZER_STATE]
    older = sum(part.bytes for part in state.older.parts if part.category is Category.OPTIMIZER_STATE)
    total = int(device.lifetimes.bytes[held].sum()) + older
    saved = int(_STATE_SAVED * total)
    if total < MIN_STATE_SHARE * state.allocated or not is_worth_it(device, saved):
        return []
    return [
        MemoryFinding(
            "optimizer-states",
            f"the optimizer's states are {format_size(total)} of the peak's {format_size(state.allocated)}",
            saved,
            "keep them in 8 bits, which saves three quarters of 32; or shard them over the GPUs, which saves all but "
            "one share",
            "torch.distributed.optim.ZeroRedundancyOptimizer(params, torch.optim.AdamW)  # or torchao's AdamW8bit",
            None,
            held,
        )
    ]


_OF_CURVE = (find_fragmentation, find_retries)
_OF_LIFETIMES = (
    *(find_growth, find_checkpointing, find_optimizer_states, find_spikes, find_duplicates),
    *(find_kept_graph, find_kv_cache, find_peak_phase),
)


def list_memory_findings(device: DeviceHistory) -> list[MemoryFinding]:
    """List what holds on one device, what saves most at the peak first; [] where nothing does.

    Where no addresses were recorded, only findings about the curve and the driver's calls are made.
    """
    rules = _OF_CURVE if device.memory.lifetimes is None else (*_OF_CURVE, *_OF_LIFETIMES)
    findings = [finding for rule in rules for finding in rule(device)]
    return sorted(findings, key=lambda finding: -finding.saved)
