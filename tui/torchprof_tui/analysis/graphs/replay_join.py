"""Join each replay with the capture that it was made from. Equal replays are matched once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from math import gcd

import numpy as np

from torchprof_tui.analysis.graphs.capture_sequences import (
    CaptureSequence,
    list_captures,
    list_eager_runs,
    node_types,
)
from torchprof_tui.analysis.graphs.node_matching import (
    Doubt,
    NameCodes,
    NodeMatch,
    ReplayedSequence,
    match_by_alignment,
    match_by_order,
    match_exactly,
)
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

_GRAPH_LAUNCH = compile_later(r"GraphLaunch")
_SPLIT_CALL = compile_later(r"enqueueCommand|memcpy|memset", re.IGNORECASE)
"""Calls that may cause several pieces of GPU work without a graph."""


@record
class Replays:
    """L replays and the W pieces of GPU work in them.

    `launch` int32[L]: the runtime call of each replay, by time. `work` int32[W]: events of GPU work, replay by replay,
    each in the order of capture as far as it is known: by graph node id where all of a replay's work has one, else by
    stream, then start. `first` int64[L + 1]: bounds of each replay in `work`. `stream` int64[W].
    `has_node_ids` bool[L].
    """

    launch: I32
    work: I32
    first: I64
    stream: I64
    has_node_ids: Bool

    def __len__(self) -> int:
        return len(self.launch)

    @property
    def sizes(self) -> I64:
        """Pieces of work of each replay: int64[L]."""
        sizes: I64 = np.diff(self.first)
        return sizes


def find_replays(trace: Trace) -> Replays:
    """Find the replays of a trace and order their work. Costs one pass over the launches and a sort of the work."""
    launch = find_graph_launches(trace)
    work_first = trace.links.work_first
    size = (work_first[launch + 1] - work_first[launch]).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    offset = np.arange(first[-1]) - np.repeat(first[:-1], size)
    work = trace.links.work_order[np.repeat(work_first[launch].astype(np.int64), size) + offset]
    replay = np.repeat(np.arange(len(launch)), size)
    node = trace.numbers_at("graph_node", work, 0)
    has_node_ids = np.ones(len(launch), np.bool_)
    has_node_ids[replay[node <= 0]] = False
    stream = trace.numbers_at("stream", work)
    start = trace.start[work]
    rank = np.where(has_node_ids[replay], node, _stream_starts(replay, stream, start))
    order = np.lexsort((start, rank, replay))
    return Replays(launch, work[order].astype(np.int32), first, stream[order], has_node_ids)


def find_graph_launches(trace: Trace) -> I32:
    """Find the runtime calls that launched graphs, by time: int32[L].

    By name; else a launch with several pieces of work, of which copies and queue commands are no sign of a graph.
    """
    work_first = trace.links.work_first
    count = np.diff(work_first)
    calls = np.flatnonzero((count > 0) & (trace.kind == Kind.RUNTIME))
    names, inverse = np.unique(trace.name[calls], return_inverse=True)
    texts = [trace.names[name] for name in names.tolist()]
    is_named = np.array([_GRAPH_LAUNCH.search(text) is not None for text in texts], np.bool_)
    is_split = np.array([_SPLIT_CALL.search(text) is not None for text in texts], np.bool_)
    chosen = calls[is_named[inverse] | (~is_split[inverse] & (count[calls] > 1))]
    return chosen[np.argsort(trace.start[chosen], kind="stable")].astype(np.int32)


def _stream_starts(replay: I64, stream: I64, start: I64) -> I64:
    """Return the first start of each piece's stream within its replay: int64[W], so that streams sort by it."""
    order = np.lexsort((start, stream, replay))
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (np.diff(replay[order]) != 0) | (np.diff(stream[order]) != 0)
    group_start = start[order][is_first]
    rank = np.empty(len(order), np.int64)
    rank[order] = group_start[np.cumsum(is_first) - 1]
    return rank


MAX_COMPARED = 6  # captures that are aligned with one replay, those that share most names; the others are left out
MAX_ALIGNED = 500
"""Different replays without an equal capture that are aligned with captures, each for some milliseconds."""

_BATCH_OF_STEP = re.compile(r"generation_(\d+)|\bbs=(\d+)")
"""Batch size in the step annotations of vLLM (`execute_32_context_0(…)_generation_32(…)`) and SGLang."""


class Reason(IntEnum):
    """Why a piece of replayed work has no op."""

    MATCHED = 0
    NO_CAPTURE = 1
    OTHER_KERNELS = 2
    NOT_IN_CAPTURE = 3
    SEVERAL_STREAMS = 4
    SEVERAL_CAPTURES = 5
    TOO_MANY = 6
    NO_OPS_OF_THREAD = 7


@record
class Join:
    """For each of W pieces of replayed work: the source trace and the call in it, or the reason why there is none.

    `capture` int32[W]: index of the trace; `launch` int32[W]: row of the call there; both -1 for none. `reason`
    uint8[W]. `is_eager` bool[W]: the call started work in an eager run. `doubt` uint8[W]: a `Doubt` about its shapes.
    """

    capture: I32
    launch: I32
    reason: U8
    is_eager: Bool
    doubt: U8


@record
class _Candidate:
    trace_index: int
    sequence: CaptureSequence
    names: frozenset[int]


def join_replays(trace: Trace, replays: Replays, sources: Sequence[Trace], own_index: int) -> Join:
    """Join all replays with the captures in `sources`; of `sources[own_index]`, the trace itself, eager work is no
    source."""
    size = len(replays.work)
    join = Join(
        np.full(size, -1, np.int32),
        np.full(size, -1, np.int32),
        np.full(size, Reason.NO_CAPTURE, np.uint8),
        np.zeros(size, np.bool_),
        np.zeros(size, np.uint8),
    )
    if not size:
        return join
    codes = NameCodes()
    candidates = _list_candidates(sources, own_index, codes)
    if not candidates:
        return join
    names, inverse = np.unique(trace.name[replays.work], return_inverse=True)
    code = codes.encode([trace.names[name] for name in names.tolist()])[inverse]
    grids = trace.numbers_at("grid", replays.work, shape=(3,))
    types = node_types(trace, replays.work)
    aligned = 0
    for members in _group_equal_replays(replays, code, grids).values():
        part = slice(*replays.first[members[0] : members[0] + 2].tolist())
        is_ordered = bool(replays.has_node_ids[members[0]])
        sequence = ReplayedSequence(code[part], types[part], replays.stream[part], grids[part], is_ordered)
        batch = _find_step_batch(trace, int(replays.launch[members[0]]))
        own_names = frozenset(sequence.name.tolist())
        named = [each for each in candidates if each.sequence.has_names and own_names <= each.names]
        matches = _select_best(_match_all(match_exactly, sequence, named, codes))
        is_compared = bool(matches) or aligned < MAX_ALIGNED
        if not matches and is_compared:
            aligned += 1
            matches = _find_similar_captures(sequence, candidates, codes)
        work = (replays.first[members][:, None] + np.arange(len(sequence))).astype(np.int64)
        if matches:
            _store_choice(join, work, matches, batch)
        else:
            join.reason[work.ravel()] = Reason.OTHER_KERNELS if is_compared else Reason.TOO_MANY
    return join


def _group_equal_replays(replays: Replays, code: I64, grids: I64) -> dict[bytes, I64]:
    """Group the replays with the same kernels, grids and changes of stream: key → replays int64[k], ascending."""
    change = np.diff(replays.stream, prepend=-1) != 0
    change[replays.first[:-1][replays.sizes > 0]] = False
    key = np.column_stack([code * 2 + change, grids])
    groups: dict[bytes, list[int]] = {}
    for replay, (begin, end) in enumerate(zip(replays.first[:-1].tolist(), replays.first[1:].tolist(), strict=True)):
        groups.setdefault(key[begin:end].tobytes(), []).append(replay)
    return {digest: np.array(members, np.int64) for digest, members in groups.items()}


def _list_candidates(sources: Sequence[Trace], own_index: int, codes: NameCodes) -> list[_Candidate]:
    """List the captures of all traces whose files can be read, and the eager runs of those that have no capture."""
    candidates = []
    for index, source in enumerate(sources):
        try:
            sequences = list_captures(source)
        except (OSError, LookupError):
            continue
        if not sequences and index != own_index:
            sequences = list_eager_runs(source)
        candidates += [
            _Candidate(index, sequence, frozenset(codes.encode_capture(sequence).tolist())) for sequence in sequences
        ]
    return candidates


_Match = tuple[_Candidate, NodeMatch]


def _find_similar_captures(replay: ReplayedSequence, candidates: list[_Candidate], codes: NameCodes) -> list[_Match]:
    """Find the captures that fit a replay best: by aligned names, else, where they have none, by order."""
    own_names = frozenset(replay.name.tolist())
    closest = sorted(
        (each for each in candidates if each.sequence.has_names),
        key=lambda each: (-len(own_names & each.names), abs(len(each.sequence) - len(replay))),
    )
    matches = _match_all(match_by_alignment, replay, closest[:MAX_COMPARED], codes)
    if not matches:
        unnamed = [each for each in candidates if not each.sequence.has_names]
        matches = _match_all(match_by_order, replay, unnamed, codes)
    return _select_best(matches)


def _select_best(matches: list[_Match]) -> list[_Match]:
    """Select the best of these matches; of several steps of one eager run the last one."""
    best = max((match.rank for _, match in matches), default=None)
    equal = [(candidate, match) for candidate, match in matches if match.rank == best]
    last_run = {candidate.trace_index: candidate for candidate, _ in equal}
    return [each for each in equal if not each[0].sequence.is_eager or last_run[each[0].trace_index] is each[0]]


def _match_all(
    match_one: Callable[[ReplayedSequence, CaptureSequence, NameCodes], NodeMatch | None],
    replay: ReplayedSequence,
    candidates: list[_Candidate],
    codes: NameCodes,
) -> list[_Match]:
    found = ((candidate, match_one(replay, candidate.sequence, codes)) for candidate in candidates)
    return [(candidate, match) for candidate, match in found if match is not None]


def _store_choice(join: Join, work: I64, matches: list[_Match], batch: int) -> None:
    """Choose among captures that fit alike, and write the match of each of the equal replays: `work` int64[replays, n].

    The smallest batch size that holds a step's batch decides first. What then fits in one trace are repetitions: layers
    with the same kernels, each a graph of its own (vLLM's piecewise mode). They were captured in the order in which
    each step replays them, so the replays are dealt out to them in turn, as far as whole steps were recorded: by the
    greatest common divisor.
    """
    sizes = [candidate.sequence.batch for candidate, _ in matches]
    fitting = [size for size in sizes if size >= batch > 0]
    if fitting:  # else the sizes are unknown
        matches = [each for each, size in zip(matches, sizes, strict=True) if size == min(fitting)]
    groups: dict[tuple[int, int], list[tuple[_Candidate, NodeMatch, int]]] = {}
    for candidate, match in matches:
        group = groups.setdefault((candidate.trace_index, candidate.sequence.batch), [])
        group += [(candidate, match, shift) for shift in match.shifts]
    options = groups[list(groups)[-1]]
    count = gcd(len(options), len(work))
    has_other_ops = len({tuple(candidate.sequence.op_names) for candidate, _ in matches}) > 1
    if has_other_ops and (len(groups) > 1 or count < len(options)):
        join.reason[work.ravel()] = Reason.SEVERAL_CAPTURES
        return
    doubt = Doubt.OTHER_CAPTURE if len(groups) > 1 else Doubt.OTHER_CALL if count < len(options) else Doubt.NONE
    for number, (candidate, match, shift) in enumerate(options[-count:]):
        own = work[number::count]
        found = np.flatnonzero(match.position >= 0)
        paired = match.position[found] + shift
        rows = own[:, found].ravel()
        replay_count = len(own)
        join.reason[own.ravel()] = Reason.SEVERAL_STREAMS if match.is_ambiguous else Reason.NOT_IN_CAPTURE
        join.reason[rows] = Reason.MATCHED
        join.capture[rows] = candidate.trace_index
        join.launch[rows] = np.tile(candidate.sequence.launch[paired], replay_count)
        join.is_eager[rows] = candidate.sequence.is_eager
        join.doubt[rows] = np.tile(np.where(doubt, doubt, match.doubt[found]), replay_count)


def _find_step_batch(trace: Trace, launch: int) -> int:
    """Find the batch size in an annotation that is open while the graph is launched; -1 for none."""
    time = trace.start[launch]
    is_annotation = np.flatnonzero(trace.kind == Kind.ANNOTATION)
    starts = trace.start[is_annotation]
    is_open = (starts <= time) & (time < starts + trace.duration[is_annotation])
    for name in trace.name[is_annotation[is_open]].tolist():
        found = _BATCH_OF_STEP.search(trace.names[name])
        if found:
            return int(found[1] or found[2])
    return -1
