"""Make the sketch of one rank's trace: in this process, in a process of a pool, or on a worker of a cluster."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from torchprof_fleet.analysis.rank_sketch import (
    UNKNOWN_BYTES,
    WHOLE_TRACE,
    DurationQuantiles,
    RankSketch,
    SketchCollectives,
    SketchSteps,
    encode_sketches,
)
from torchprof_fleet.analysis.sketch_task import SketchResult
from torchprof_fleet.analysis.waits import find_bounds
from torchprof_tui.analysis.collectives.communication_records import ELEMENT_BYTES
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import classify_names
from torchprof_tui.analysis.patterns.engine.check_scope import Scope, step_scope, whole_trace_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.host_code_time import find_main_thread
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.verdict.time_tree import build_time_tree
from torchprof_tui.analysis.patterns.verdict.verdict import Regime, decide_regime
from torchprof_tui.analysis.time.gpu_time import work_mask
from torchprof_tui.analysis.time.intervals import NO_INTERVALS, union
from torchprof_tui.trace.core.arrays import I32, I64, sorted_unique
from torchprof_tui.trace.core.errors import format_error, is_expected
from torchprof_tui.trace.loading.decode_and_store import decode_and_store
from torchprof_tui.trace.loading.open_or_build import BuildResult, OpeningState, open_or_build
from torchprof_tui.trace.loading.progress import LoadError, ignore_progress
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.ranks.collective_matching import Collectives, read_collectives
from torchprof_tui.trace.specs.rank_files import rank_of
from torchprof_tui.trace.storage.disk_cache import CacheEntry

MAX_COLLECTIVES = 192  # collectives kept of a step: some 8 bytes each, compressed
MAX_OPS = 24  # ops kept of a step, those with most time of their own
MAX_GROUP_TEXT = 48  # characters of a process group's name and description; its ranks follow as a digest
MAX_GROUPS = 32  # process groups of a rank that are kept; a job with five kinds of parallelism has some ten

_HOST_IN_NAME = re.compile(r"(?:.*/)?([A-Za-z0-9][A-Za-z0-9.-]*)_[0-9]+\.[0-9]{10,}\.(?:rank[_-]?[0-9]+\.)?pt\.trace")
"""File name of torch.profiler.tensorboard_trace_handler: HOST_PID.TIME.pt.trace.json."""

_RANK_WORD = re.compile(r"(?:rank|worker)[_-]?[0-9]*", re.IGNORECASE)


def sketch_trace(trace: Trace) -> RankSketch:
    """Make the sketch of a trace of one process. Raises OSError, LookupError where its text cannot be read."""
    steps = trace.profiler_steps or trace.steps
    scopes = [(step.number, step_scope(step)) for step in steps] or [(WHOLE_TRACE, whole_trace_scope(trace))]
    starts = np.array([scope.t0 for _, scope in scopes], np.int64)
    checker = Checker(trace)
    collectives, counts = _sketch_collectives(trace, read_collectives(trace), starts)
    regime, causes = _divide_time(checker)
    rank = rank_of(trace.rank, trace.label)
    devices = [device.name for device in trace.metadata.devices]
    memory = trace.memory
    ops = np.flatnonzero(np.asarray(trace.kind) == Kind.OP)
    op_step, own_time = _assign_steps(np.asarray(trace.start[ops]), starts), np.asarray(trace.self_duration[ops])
    return RankSketch(
        file=trace.label,
        rank=-1 if rank is None else rank,
        world_size=trace.world_size or 0,
        host=_find_host(trace),
        device=max(devices, key=devices.count, default=""),
        device_count=len(devices),
        torch_version=trace.metadata.torch_version,
        time_zero=trace.metadata.base_time + trace.origin,
        memory_peak=UNKNOWN_BYTES if memory is None or not len(memory.allocated) else int(memory.allocated.max()),
        regime=regime.value,
        causes=causes,
        groups=_read_groups(trace, rank),
        problems=tuple(dict.fromkeys(problem.kind for problem in trace.problems)),
        steps=_sketch_steps(checker, scopes, counts),
        collectives=collectives,
        kernels=_sketch_kernels(trace, starts),
        ops=_summarize(op_step, np.asarray(trace.name[ops]), own_time, trace.names, MAX_OPS),
    )


def _sketch_kernels(trace: Trace, starts: I64) -> DurationQuantiles:
    """Sketch the durations of kernels and copies by class, without collectives, whose durations are waits."""
    kind = np.asarray(trace.kind)
    rows = np.flatnonzero(work_mask(kind) & (kind != Kind.COLLECTIVE))
    name = np.asarray(trace.name[rows])
    used = sorted_unique(name)
    class_of_name = np.zeros(len(trace.names) + 1, np.int32)
    class_of_name[used] = classify_names([trace.names[number] for number in used.tolist()])
    labels = [each.label for each in KernelClass]
    step = _assign_steps(np.asarray(trace.start[rows]), starts)
    return _summarize(step, class_of_name[name], np.asarray(trace.duration[rows]), labels, len(labels))


def _divide_time(checker: Checker) -> tuple[Regime, tuple[tuple[str, int], ...]]:
    """Return the verdict's regime and the parts of its time, (cause, ns), without the sentence, which takes longest."""
    view = checker.view(checker.default_scope)
    if view.missing_window_reason():
        verdict = checker.decide_verdict()
        tree = verdict.tree
        return verdict.regime, () if tree is None else tuple((part.id, part.time) for part in tree.parts)
    parts = build_time_tree(view).parts
    return decide_regime(view.shares), tuple((part.id, part.time) for part in parts)


def _find_host(trace: Trace) -> str:
    """Find the host in the name of the file, or in the name that it had when it was recorded; "" for none."""
    for name in (trace.label, trace.header.get("traceName")):
        match = _HOST_IN_NAME.match(name) if isinstance(name, str) else None
        if match is not None and not _RANK_WORD.fullmatch(match[1]):
            return match[1]
    return ""


def _read_groups(trace: Trace, rank: int | None) -> tuple[tuple[str, int, int], ...]:
    """Read the process groups of a rank from `distributedInfo.pg_config`: (name, position, size)."""
    info = trace.header.get("distributedInfo")
    listed = info.get("pg_config") if isinstance(info, dict) else None
    groups = []
    for entry in listed[:MAX_GROUPS] if isinstance(listed, list) else []:
        ranks = entry.get("ranks") if isinstance(entry, dict) else None
        if isinstance(ranks, list) and rank in ranks:
            name = str(entry.get("pg_desc") or entry.get("pg_name") or "")[:MAX_GROUP_TEXT]
            groups.append((name, ranks.index(rank), len(ranks)))
    return tuple(groups)


def _sketch_steps(checker: Checker, scopes: Sequence[tuple[int, Scope]], collective_counts: I64) -> SketchSteps:
    tables = checker.tables
    times = np.zeros((len(scopes), 5), np.int64)
    idle = np.zeros((len(scopes), len(IdleCause)), np.int64)
    for index, (_, scope) in enumerate(scopes):
        view = checker.view(scope)
        main = find_main_thread(view)
        if main is not None:  # what of the scope its main thread does not wait for the GPU
            waiting = NO_INTERVALS
            for table in (view.gap_finder.sync_calls, view.gap_finder.blocking_copies):
                table = table.select((table.row >= main.first) & (table.row < main.last))
                waiting = waiting | union(table.start, table.end)
            times[index, 4] = scope.length - waiting.measure_between(scope.t0, scope.t1)
        for device in tables.devices:
            times[index, 0] += tables.busy_intervals[device].clip(scope.t0, scope.t1).total
            times[index, 1] += tables.compute_intervals[device].clip(scope.t0, scope.t1).total
            times[index, 2] += tables.collective_intervals[device].clip(scope.t0, scope.t1).total
        if not tables.devices or view.missing_window_reason():
            continue
        times[index, 3] = sum(part.total for part in view.exposed_intervals.values())
        for cause, time in view.gaps.time_by_cause().items():
            idle[index, cause] = time
    return SketchSteps(
        number=np.array([number for number, _ in scopes], np.int64),
        start=np.array([scope.t0 for _, scope in scopes], np.int64),
        end=np.array([scope.t1 for _, scope in scopes], np.int64),
        busy=times[:, 0],
        compute=times[:, 1],
        communication=times[:, 2],
        exposed=times[:, 3],
        cpu=times[:, 4],
        idle=idle,
        collective_count=collective_counts,
    )


def _assign_steps(times: I64, starts: I64) -> I32:
    """Assign each time to the last step that has begun, before all of them to the first: int32[k]."""
    return np.maximum(np.searchsorted(starts, times, side="right") - 1, 0).astype(np.int32)


def _sketch_collectives(trace: Trace, records: Collectives, starts: I64) -> tuple[SketchCollectives, I64]:
    """Sketch the collectives; also returns how many each step has, int64[s]."""
    events = records.events
    launch = np.asarray(trace.links.launch_of[events])
    issued = np.asarray(trace.start[np.where(launch >= 0, launch, events)])
    step = _assign_steps(issued, starts)
    counts = np.bincount(step, minlength=len(starts)).astype(np.int64)
    texts = [_shorten_group(text) for text in records.texts]
    order = np.lexsort((np.arange(len(events)), records.group, step))
    step, group = step[order], records.group[order]
    bounds = find_bounds(np.stack([step, group]))
    position = (np.arange(len(step)) - np.repeat(bounds[:-1], np.diff(bounds))).astype(np.int32)
    stride = -(-counts // MAX_COLLECTIVES)
    kept = position % np.maximum(stride[step], 1) == 0 if len(step) else np.zeros(0, np.bool_)
    order, step, group, position = order[kept], step[kept], group[kept], position[kept]
    width = np.array([ELEMENT_BYTES.get(text, 0) for text in records.texts] or [0], np.int64)
    start = np.asarray(trace.start[events[order]])
    return (
        SketchCollectives(
            step=step,
            group=group,
            operation=records.operation[order],
            order=position,
            start=start,
            end=start + trace.duration[events[order]],
            bytes=np.maximum(records.received, records.sent)[order] * width[records.dtype[order]],
            texts=tuple(texts),
        ),
        counts,
    )


def _shorten_group(text: str) -> str:
    """Replace the list of ranks in a group's text by a digest: a group of a thousand ranks lists a thousand numbers."""
    name, bracket, ranks = text.partition("[")
    if not bracket:
        return text[:MAX_GROUP_TEXT]
    digest = hashlib.blake2b(ranks.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{name.strip()[:MAX_GROUP_TEXT]} #{digest}"


def _summarize(step: I32, name: I32, duration: I64, names: Sequence[str], limit: int) -> DurationQuantiles:
    """Summarise durations by step and name; of each step the `limit` names with most time."""
    order = np.lexsort((duration, name, step))
    step, name, duration = step[order], name[order], duration[order].astype(np.int64)
    bounds = find_bounds(np.stack([step, name]))
    first, count = bounds[:-1], np.diff(bounds)
    total = np.add.reduceat(duration, first) if len(first) else np.zeros(0, np.int64)
    by_time = np.lexsort((name[first], -total, step[first]))
    sorted_step = step[first][by_time]
    place = np.arange(len(first)) - np.searchsorted(sorted_step, sorted_step)
    kept = np.sort(by_time[place < limit])
    first, count, total = first[kept], count[kept], total[kept]
    used, index = np.unique(name[first], return_inverse=True)
    return DurationQuantiles(
        step=step[first],
        name=index.astype(np.int32),
        count=count,
        total=total,
        median=duration[first + (count - 1) // 2],
        p90=duration[first + (count - 1) * 9 // 10],
        longest=duration[first + count - 1],
        names=tuple(names[number] for number in used.tolist()),
    )


def sketch_file(spec: str, identity: str | None = None) -> SketchResult:
    """Open a trace and make its sketch; an error of the file is the result.

    The columns come from the cache where they are there. Else they are decoded and not kept: a thousand traces would
    remove all others from the cache. `identity`: the key of a remote trace, where it is known.
    """
    try:
        return SketchResult(spec, encode_sketches([_sketch_spec(spec, identity)]))
    except Exception as error:
        if not (is_expected(error) or isinstance(error, (LoadError, LookupError))):
            return SketchResult(spec, reason=f"{spec}: {format_error(error)}")
        reason = format_error(error) if is_expected(error) else " ".join(str(error).split())
        return SketchResult(spec, reason=reason)


def _sketch_spec(spec: str, identity: str | None) -> RankSketch:
    state = OpeningState(spec, cache=True, identity=identity)
    if not state.cached:
        state.close()
        state = OpeningState(spec, cache=False)

    def build(entry: CacheEntry) -> BuildResult:
        return decode_and_store(spec, entry.folder, ignore_progress, process_count=1, defer_blocks=True)

    opened = open_or_build(state, build)
    try:
        return sketch_trace(opened.trace)
    finally:
        if opened.cache_entry is not None:
            opened.cache_entry.close()
