"""Patterns of several GPUs: communication that no computation hides, and ranks that arrive late.

Decided by the callers of each launch and, for kernels of one purpose such as DeepEP's, by the kernel itself. What none
of these says has no owner, and nobody is told how to change it.
"""

from __future__ import annotations

import re
from enum import Enum

import numpy as np

from torchprof_tui.analysis.collectives.communication_records import CommunicationRecords
from torchprof_tui.analysis.collectives.communication_waiting import Arrivals
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import RankContext
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_GPU
from torchprof_tui.analysis.patterns.rules import communication
from torchprof_tui.analysis.time.intervals import unite
from torchprof_tui.trace.core.arrays import I64, Bool, find_median, is_in, sorted_unique
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.communication_kernels import Operation
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace


class Owner(str, Enum):
    """What a collective belongs to."""

    DDP = "DistributedDataParallel"
    FSDP2 = "fully_shard"
    FSDP1 = "FullyShardedDataParallel"
    TENSOR_PARALLEL = "tensor parallel"
    INFERENCE_TENSOR_PARALLEL = "tensor parallel inference"
    EXPERT_PARALLEL = "expert parallel"
    DEEP_EP = "DeepEP"


_FSDP1 = compile_later(r"FullyShardedDataParallel")
_FSDP2 = compile_later(r"FSDP::|fsdp::|FSDPState|fully_shard")
_DDP = compile_later(r"AccumulateGrad|DistributedDataParallel|distributed[.:]+(ddp[.:]+)?reducer")
_TENSOR_PARALLEL = compile_later(
    r"Redistribute|DTensor|_c10d_functional|ModelParallelRegion|tensor_parallel", re.IGNORECASE
)
_EMBEDDINGS = compile_later(r"KJT|All2All_|sparse_data_dist|all2all_data|embedding", re.IGNORECASE)
_ALL_TO_ALL = compile_later(r"all_?to_?all", re.IGNORECASE)
_BACKWARD = compile_later(r"autograd::engine|Backward\d*$")

_SERVING_LIBRARIES = frozenset(
    {"vLLM", "SGLang", "TensorRT-LLM", "FlashInfer", "AITER", "quick all-reduce", "custom all-reduce"}
)
_EXPERT_LIBRARIES = frozenset({"DeepEP", "MORI"})

_MAX_CALLERS = 64  # callers looked at above a launch; autograd's nodes and modules lie within a dozen


def find_owner(trace: Trace, records: CommunicationRecords, weight: I64) -> Owner | None:
    """Find what most of some communication belongs to, by weight (int64[k], ns); None if that is unknown."""
    weights: dict[Owner | None, int] = {}
    undecided = weight > 0
    for owner, chosen in _classify(trace, records):
        weights[owner] = weights.get(owner, 0) + int(weight[chosen & undecided].sum())
        undecided &= ~chosen
    weights[None] = weights.get(None, 0) + int(weight[undecided].sum())
    owner, most = max(weights.items(), key=lambda item: item[1])
    return owner if most else None


def _classify(trace: Trace, records: CommunicationRecords) -> list[tuple[Owner | None, Bool]]:
    """Select the kernels of each owner, bool[k]; the first that selects a kernel owns it."""
    launch = np.asarray(trace.links.launch_of[records.events]).astype(np.int64)
    used_names = sorted_unique(trace.name).tolist()

    def has_name(pattern: re.Pattern[str]) -> bool:
        return any(pattern.search(trace.names[number]) for number in used_names)

    def called_by(pattern: re.Pattern[str]) -> Bool:
        named = [number for number in used_names if pattern.search(trace.names[number])]
        return _select_called(trace, launch, named)

    def of_libraries(libraries: frozenset[str]) -> Bool:
        return is_in(records.library, [k for k, name in enumerate(records.libraries) if name in libraries])

    all_reduces = records.operation_mask(Operation.ALL_REDUCE)
    shards = records.operation_mask(Operation.ALL_GATHER, Operation.REDUCE_SCATTER)
    exchanges = records.operation_mask(Operation.ALL_TO_ALL, Operation.DISPATCH, Operation.COMBINE)
    exchanges |= records.operation_mask(Operation.SEND_RECEIVE) & called_by(_ALL_TO_ALL)
    has_fsdp1, has_backward = has_name(_FSDP1), has_name(_BACKWARD)
    is_tensor_parallel = called_by(_TENSOR_PARALLEL)
    groups: list[tuple[Owner | None, Bool]] = [
        (Owner.DEEP_EP, of_libraries(frozenset({"DeepEP"}))),
        (Owner.EXPERT_PARALLEL, of_libraries(_EXPERT_LIBRARIES) | records.operation_mask(Operation.DISPATCH)),
        (Owner.FSDP1, called_by(_FSDP1) & shards),
        (Owner.FSDP2, called_by(_FSDP2)),
        (
            Owner.TENSOR_PARALLEL if has_backward else Owner.INFERENCE_TENSOR_PARALLEL,
            is_tensor_parallel & (all_reduces | shards),
        ),
        (Owner.DDP, called_by(_DDP) & all_reduces),
        (None, called_by(_EMBEDDINGS) & exchanges),
        (Owner.EXPERT_PARALLEL, exchanges),
    ]
    if has_fsdp1 or has_name(_FSDP2):
        groups.append((Owner.FSDP1 if has_fsdp1 else Owner.FSDP2, shards))
    groups.append((Owner.INFERENCE_TENSOR_PARALLEL, of_libraries(_SERVING_LIBRARIES) & all_reduces))
    if not has_backward and (launch >= 0).any():
        groups.append((Owner.INFERENCE_TENSOR_PARALLEL, all_reduces))
    return groups


def _select_called(trace: Trace, launch: I64, named: list[int]) -> Bool:
    """Select the launches, int64[k], -1 for none, that have a caller with one of these names (numbers): bool[k]."""
    found, mark = np.zeros(len(launch), np.bool_), np.zeros(len(trace.names), np.bool_)
    mark[named] = True
    current = launch
    for _ in range(_MAX_CALLERS if named else 0):
        valid = current >= 0
        if not valid.any():
            break
        row = np.maximum(current, 0)
        found |= valid & mark[trace.name[row]]
        current = np.where(valid, trace.parent[row], -1)
    return found


@register_pattern(
    "Communication without overlapping computation",
    meaning="collectives run while the GPU computes nothing, which makes the step longer",
    action="start the collective earlier, so that it overlaps with work that does not need its result",
    decided="For each device, the time of collectives without the time of kernels and fills, during the steps. The "
    "fix depends on what started the collectives (DDP, FSDP, tensor or expert parallelism), by the callers "
    "of the launches; if most of the time is a wait for a late rank, overlap does not help. Small all-reduces, one "
    "per gradient: bucket them.",
    thresholds=(
        thresholds.EXPOSED_SHARE,
        thresholds.REDUCES_PER_GRADIENT,
        thresholds.REDUCES_PER_STEP,
        thresholds.LARGE_MESSAGE,
        thresholds.SMALL_REDUCE_MAX,
    ),
    fires_on_absence=True,
    needs=(ScopeView.missing_work_reason,),
)
def exposed_comm(view: ScopeView) -> Answer:
    tables = view.tables
    if not any(len(intervals) for intervals in tables.collective_intervals.values()):
        world_size = view.trace.world_size
        if world_size is None or world_size < 2:
            return Answer.cannot_tell("one rank only: no collective was recorded")
        if missing := communication.describe_missing_collectives(view):
            return Answer.cannot_tell(missing)
        return Answer.absent("no collective was recorded")
    if not view.window_length:
        return Answer.cannot_tell("no work of the program in this range")
    exposed = view.exposed_intervals
    exposed_time = sum(intervals.total for intervals in exposed.values()) // len(tables.devices)
    share = exposed_time / view.window_length
    if share < thresholds.EXPOSED_SHARE.value:
        return Answer.absent(f"{format_duration(exposed_time)} of communication is exposed, {format_percent(share)}")
    work = view.work
    collectives = work.events.select(work.kind == Kind.COLLECTIVE)
    exposed_per_collective = np.zeros(len(collectives), dtype=np.int64)
    collective_device = work.device[work.kind == Kind.COLLECTIVE]
    for device, intervals in exposed.items():
        on_device = collective_device == device
        start, end = collectives.start[on_device], collectives.end[on_device]
        exposed_per_collective[on_device] = intervals.measure_within(start, end)
    total_time = view.time_in_window(tables.collective_intervals) // len(tables.devices)
    reduces = communication.describe_unbucketed_reduces(view, communication.build_card_of_view(view))
    sections = list(view.compute_once(communication.find_reduce_sections).values()) if reduces else []
    rows, spans = np.sort(collectives.row[exposed_per_collective > 0]), unite(sections) if sections else None
    at_stake = max(exposed_time, sum(section.total for section in sections) // len(tables.devices))
    seen = f"{format_duration(exposed_time)} of {format_duration(total_time)} in collectives is exposed"
    gaps = f", {format_duration(at_stake)} with the gaps between them" if at_stake > exposed_time else ""
    seen += f"{gaps}{_format_waiting(view)}" + (f"; {reduces}" if reduces else "")
    remedy = _choose_remedy(view, collectives.row, exposed_per_collective)
    return Answer.fired(seen, rows, at_stake, remedy, spans)


def _choose_remedy(view: ScopeView, rows: I64, exposed: I64) -> Remedy | None:
    """Choose the remedy for exposed collectives, `exposed` int64[k] ns of each: by the late rank or by their owner."""
    card = communication.build_card_of_view(view)
    if view.tables.rank_context is None and communication.describe_unbucketed_reduces(view, card):
        return communication.BUCKET_REMEDY
    if card.exposed_waiting > thresholds.WAITING_SHARE_OF_EXPOSED.value * card.exposed:
        return LATE_RANK_REMEDY if view.tables.rank_context is None else LATE_RANK_IS_OPEN_REMEDY
    if view.tables.rank_context is None and communication.find_slow_rate(card):
        return SLOW_RATE_REMEDY
    if communication.describe_unbucketed_reduces(view, card):
        return communication.BUCKET_REMEDY
    records = view.tables.communication[0]
    weight = np.zeros(len(records), np.int64)
    weight[np.searchsorted(records.events, rows)] = exposed
    owner = find_owner(view.trace, records, weight)
    return None if owner is None else REMEDIES_BY_OWNER[owner]


LATE_RANK_REMEDY = Remedy(
    "most of it is a wait for a late rank, which overlap does not avoid: open the traces of all ranks together"
)
SLOW_RATE_REMEDY = Remedy(
    "too slow for a link between GPUs: a late rank or a slow network; open the traces of all ranks together"
)
LATE_RANK_IS_OPEN_REMEDY = Remedy(
    "most of it is a wait for a late rank, which overlap does not avoid: check what that rank does before it arrives"
)

REMEDIES_BY_OWNER = {
    Owner.DDP: Remedy(
        "overlap more of the backward pass: try other bucket sizes, turn off find_unused_parameters, and accumulate "
        "with no_sync",
        "DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True)",
    ),
    Owner.FSDP2: Remedy(
        "prefetch the next layer's parameters, and keep them after the forward pass where memory allows",
        "fully_shard(block, reshard_after_forward=False); block.set_modules_to_forward_prefetch([next_block])",
    ),
    Owner.FSDP1: Remedy(
        "prefetch the next layer's parameters, and shard gradients only where memory allows",
        "FullyShardedDataParallel(model, forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE)",
    ),
    Owner.TENSOR_PARALLEL: Remedy(
        "use sequence parallelism, and overlap each matmul with its collective (async tensor parallelism)",
        "torch._inductor.config._micro_pipeline_tp = True  # with torch.compile",
    ),
    Owner.INFERENCE_TENSOR_PARALLEL: Remedy(
        "use fewer GPUs if the weights fit; fuse the all-reduce with the norm after it; overlap two batches"
    ),
    Owner.EXPERT_PARALLEL: Remedy(
        "overlap dispatch and combine with computation: of the shared expert, or of a second micro-batch"
    ),
    Owner.DEEP_EP: Remedy(
        "overlap dispatch and combine with computation: of the shared expert, or of a second micro-batch",
        "buffer.dispatch(x, ..., async_finish=True)  # and event.current_stream_wait() where the result is used",
    ),
}
"""What hides the communication of each owner."""


def exposed_waiting_time(view: ScopeView) -> int:
    """Return the ns of the window in which this rank waited for the last one and computed nothing.

    0 if the other ranks are unknown. Overlap cannot save this time.
    """
    rank_context = view.tables.rank_context
    if rank_context is None:
        return 0
    waiting = rank_context.arrivals.wait_intervals(rank_context.rank_index).clip(*view.window)
    return (waiting - unite(view.tables.compute_intervals.values())).total


def _format_waiting(view: ScopeView) -> str:
    if view.tables.rank_context is None:
        card = communication.build_card_of_view(view)
        if card.waiting_source is None or not card.exposed_waiting:
            return ""
        return f", about {format_duration(card.exposed_waiting // len(card.devices))} of it waiting for other ranks"
    return f", {format_duration(exposed_waiting_time(view))} of it waiting for the last rank"


@register_pattern(
    "One rank arrives late",
    meaning="a collective ends only after the last rank has arrived, so all other ranks wait for it",
    action="check what the late rank does before the collective: its data, its clocks, its code",
    decided="Collectives are matched across ranks by process group, step and order (in one trace of several devices by "
    "name and order). A rank arrives when its kernel starts, and waits until the last rank arrives. Found if ranks "
    "wait for long on average. Shown: the rank that causes most of the waiting, and, if only one rank pauses before an "
    "operator in most steps, that operator. Needs several ranks: open their traces together.",
    thresholds=(thresholds.STRAGGLER_SHARE, thresholds.STRAGGLER_MIN, thresholds.STRAGGLER_SHARE_OF_WAITING),
    applies_to_all_ranks=True,
)
def straggler(view: ScopeView) -> Answer:
    tables = view.tables
    if tables.rank_context is not None:
        return _check_straggler_across_ranks(view, tables.rank_context)
    if not len(tables.work):
        return Answer.cannot_tell(NO_GPU)
    work = tables.work.select(tables.work.kind == Kind.COLLECTIVE)
    devices = sorted_unique(work.device)
    if len(devices) < 2:
        return Answer.cannot_tell("one rank only: the traces of the other ranks are needed")
    work = work.select(np.lexsort((work.events.start, work.device)))
    per_device = [np.flatnonzero(work.device == device) for device in devices]
    if len({work.events.name[on_device].tobytes() for on_device in per_device}) != 1:
        return Answer.cannot_tell("the ranks did not run the same collectives")
    indices = np.stack(per_device)
    start, end = work.events.start[indices], work.events.end[indices]
    last_device = start.argmax(axis=0)
    spread = start.max(axis=0) - start.min(axis=0)
    in_scope = view.overlap_mask(start.min(axis=0), end.max(axis=0))
    is_late = in_scope & (spread >= thresholds.STRAGGLER_MIN.value)
    waiting_time = int(spread[is_late].sum())
    share = waiting_time / view.window_length if view.window_length else 0.0
    if share < thresholds.STRAGGLER_SHARE.value:
        return Answer.absent(
            f"starts differ by {format_duration(int(spread[in_scope].max()))} at most" if in_scope.any() else ""
        )
    waiting_by_device = np.bincount(last_device[is_late], weights=spread[is_late], minlength=len(devices))
    worst = int(devices[int(waiting_by_device.argmax())])
    evidence = view.select_in_scope(work.events.select(np.sort(indices[:, is_late].reshape(-1))))
    seen = (
        f"{format_count(int(is_late.sum()), 'collective')}: device {worst} arrives last most "
        f"often, {format_duration(waiting_time)} of waiting"
    )
    return Answer.fired(seen, np.sort(evidence.row), min(waiting_time, view.scope.length))


def _check_straggler_across_ranks(view: ScopeView, rank_context: RankContext) -> Answer:
    arrivals = rank_context.arrivals
    if not len(arrivals):
        return Answer.cannot_tell("no collective was matched across ranks")
    if not view.window_length:
        return Answer.cannot_tell("no work of the program in this range")
    in_scope = view.overlap_mask(arrivals.first_start, arrivals.last_start)
    is_late = _find_late_arrivals(view, arrivals)
    waiting_by_rank = [
        arrivals.wait_intervals(rank_index, is_late).measure_between(*view.window)
        for rank_index in range(len(arrivals.ranks))
    ]
    rank_count = int(arrivals.present[is_late].any(axis=0).sum())  # a rank whose file was cut short has no waits
    mean_wait = sum(waiting_by_rank) // max(rank_count, 1)
    share = mean_wait / view.window_length
    if share < thresholds.STRAGGLER_SHARE.value:
        longest = format_duration(int(arrivals.spread[in_scope].max())) if in_scope.any() else "nothing"
        return Answer.absent(
            f"ranks wait {format_duration(mean_wait)} for the last one on average, {format_percent(share)}; "
            f"{longest} at most"
        )
    latest, is_main_cause, frequency, delay, longest_delay = _find_latest_rank(arrivals, is_late)
    summary = f"{arrivals.ranks.all[latest].label} arrives last at {frequency}"
    if is_main_cause:
        summary += f", {format_duration(delay)} after the others"
        if longest_delay > TYPICAL_DELAYS * delay:
            summary += f" in the median and {format_duration(longest_delay)} once"
    else:
        summary = f"no single rank: most often {summary}"
    events = arrivals.select_events(is_late, rank_context.rank_index)
    for stall in arrivals.host_stalls[:1]:
        if stall.rank_index == rank_context.rank_index:
            events = np.append(events, view.select_in_scope(view.tables.event_table(np.array([stall.event]))).row)
    seen = f"{summary}; a rank waits {format_duration(mean_wait)} in all, on average"
    return Answer.fired(seen, events, min(mean_wait, view.scope.length))


TYPICAL_DELAYS = 2
"""The longest delay is named where it is more than this many median ones: then the median says little."""


def _find_latest_rank(arrivals: Arrivals, is_late: Bool) -> tuple[int, bool, str, float, int]:
    """Find the rank that most of the waiting in these collectives (bool[m], at least one) is for.

    (Its index; whether at least half of the waiting is for it; the collectives to which it came last, "21 of 21
    collectives"; the median and the largest of ns by which it then came after the rank before it.)
    """
    waiting_by_rank = np.bincount(
        arrivals.last_rank[is_late], weights=arrivals.wait_times[is_late].sum(axis=1), minlength=len(arrivals.ranks)
    )
    rank_index = int(waiting_by_rank.argmax())
    is_last = is_late & (arrivals.last_rank == rank_index)
    frequency_text = f"{int(is_last.sum()):,} of {format_count(int(is_late.sum()), 'collective')}"
    is_main_cause = bool(
        waiting_by_rank[rank_index] >= thresholds.STRAGGLER_SHARE_OF_WAITING.value * waiting_by_rank.sum()
    )
    late_by = arrivals.late_by[is_last]
    return rank_index, is_main_cause, frequency_text, find_median(late_by), int(late_by.max())


def find_late_rank(view: ScopeView) -> tuple[int | None, str]:
    """Find the rank that the others wait for: (its index, None where ranks are late in turn; one line about it).

    The line is "" if the other ranks are unknown or none is late.
    """
    rank_context = view.tables.rank_context
    if rank_context is None or not len(rank_context.arrivals):
        return None, ""
    arrivals = rank_context.arrivals
    is_late = _find_late_arrivals(view, arrivals)
    if not is_late.any():
        return None, ""
    latest, is_main_cause, frequency, _, _ = _find_latest_rank(arrivals, is_late)
    rank_label = arrivals.ranks.all[latest].label
    if not is_main_cause:
        return None, f"different ranks are late, most often {rank_label}, at {frequency}"
    return latest, f"{'this rank' if latest == rank_context.rank_index else rank_label} is late at {frequency}"


def find_latest_collective(view: ScopeView, rank_index: int) -> int:
    """Find the collective to which a rank that is late came last by the most: an event, as in the rank's own trace."""
    assert view.tables.rank_context is not None
    arrivals = view.tables.rank_context.arrivals
    is_last = _find_late_arrivals(view, arrivals) & (arrivals.last_rank == rank_index)
    longest = np.arange(len(arrivals)) == np.where(is_last, arrivals.late_by, -1).argmax()
    return int(arrivals.select_events(longest, rank_index)[0])


def _find_late_arrivals(view: ScopeView, arrivals: Arrivals) -> Bool:
    """Find the collectives of the scope in which a rank waits long for another: bool[m]."""
    in_scope = view.overlap_mask(arrivals.first_start, arrivals.last_start)
    return in_scope & (arrivals.spread >= thresholds.STRAGGLER_MIN.value)
