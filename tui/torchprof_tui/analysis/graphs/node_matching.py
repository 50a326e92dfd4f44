"""Match the kernels of one replay with the launches of one capture, by order and name within each stream.

CUDA records the calls of a capture without kernel names, and the executor of a graph spreads its branches over streams,
so that time is not the order of capture. But each stream keeps that order: the calls are an interleaving of both
streams. The interleaving is chosen in which most kernels have a name that suits their op (`cos_kernel`, `aten::cos`),
by dynamic programming; a kernel that other interleavings of that score place elsewhere gets no launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from functools import lru_cache

import numpy as np

from torchprof_tui.analysis.alignment.sequence_alignment import align_sequences
from torchprof_tui.analysis.graphs.capture_sequences import CaptureSequence, NodeType
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool, sorted_unique
from torchprof_tui.trace.core.records import record

MAX_CELLS = 4_000_000
"""Cells of the table (kernels of one stream times those of the other): 32 MB for each of four tables."""

FORBIDDEN = -(1 << 20)  # score of a kernel with a call that cannot have launched it: a copy, a fill

_OPS_OF_CLASS = {
    KernelClass.GEMM: ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "gemm"),
    KernelClass.REDUCTION: ("sum", "mean", "max", "min", "amax", "amin", "any", "all", "prod", "argmax", "norm"),
    KernelClass.COPY: ("copy", "clone", "contiguous", "cat", "stack", "to"),
    KernelClass.GATHER: ("index", "index_select", "embedding", "gather", "scatter"),
}
_ALIASES = {"zero": "fill", "zeros": "fill", "ones": "fill"}
_MIN_WORD = 3  # letters of a word of an op's name that is looked for in names of kernels


def match_two_streams(first: I64, second: I64, scores: I64) -> tuple[I32, I32]:
    """Assign the calls 0..n+m-1 to the kernels of two streams: int32[n], int32[m], -1 for those that may be others.

    `first` int64[n], `second` int64[m]: rows of `scores` int64[kinds, n + m], the score of each call for each kind of
    kernel. Returns -1 for all where the streams are too long.
    """
    n, m = len(first), len(second)
    unknown = np.full(n, -1, np.int32), np.full(m, -1, np.int32)
    if (n + 1) * (m + 1) > MAX_CELLS:
        return unknown
    forward = _best_scores(first, second, scores)
    backward = _best_scores(first[::-1], second[::-1], scores[:, ::-1])[::-1, ::-1]
    best = int(forward[n, m])
    if best <= FORBIDDEN // 2:
        return unknown
    i, j = np.arange(n)[:, None], np.arange(m + 1)[None, :]
    through_first = forward[:-1] + scores[first[:, None], i + j] + backward[1:] == best
    i, j = np.arange(n + 1)[:, None], np.arange(m)[None, :]
    through_second = forward[:, :-1] + scores[second[None, :], i + j] + backward[:, 1:] == best
    return _single(through_first), _single(through_second.T)


def score_calls(kernels: Sequence[str], ops: Sequence[str]) -> I64:
    """Score how well the name of each kernel suits the op of each call: int64[kernels, calls], 0 to 2."""
    distinct = list(dict.fromkeys(ops))
    table = np.array([[_score(kernel, op) for op in distinct] for kernel in kernels], np.int64)
    index = {op: number for number, op in enumerate(distinct)}
    return table.reshape(len(kernels), len(distinct))[:, [index[op] for op in ops]]


@lru_cache(maxsize=1 << 16)
def _score(kernel: str, op: str) -> int:
    base = op.rsplit("::", 1)[-1].lower().strip("_")
    base = _ALIASES.get(base, base)
    if not base:
        return 0
    name = kernel.lower()
    if base in name or base in _OPS_OF_CLASS.get(decode_kernel_name(kernel).kernel_class, ()):
        return 2
    return int(any(len(word) >= _MIN_WORD and word in name for word in base.split("_")))


def _best_scores(first: I64, second: I64, scores: I64) -> I64:
    """Return the best score of the first i kernels of one stream and the first j of the other: int64[n + 1, m + 1]."""
    n, m = len(first), len(second)
    best = np.empty((n + 1, m + 1), np.int64)
    columns = np.arange(m)
    for i in range(n + 1):
        along = np.concatenate([[0], np.cumsum(scores[second, i + columns])])
        if i == 0:
            best[0] = along
        else:
            down = best[i - 1] + scores[first[i - 1], i - 1 + np.arange(m + 1)]
            best[i] = along + np.maximum.accumulate(down - along)
    return best


def _single(is_best: np.ndarray) -> I32:
    """Return the call of each kernel that is on a best path at one place only: int32[k], else -1."""
    place = np.argmax(is_best, axis=1)
    call = np.arange(len(is_best)) + place
    return np.where(is_best.sum(axis=1) == 1, call, -1).astype(np.int32)


MAX_OCCURRENCES = 1024  # places in an eager run at which the kernels of a replay are compared with it, the last ones
MIN_SHARE = 0.5
"""Smallest share of a replay's kernels whose names a capture must have, in order, to be taken as its capture."""


@record
class ReplayedSequence:
    """n pieces of work of one replay in canonical order: names as codes int64[n], types uint8[n], streams int64[n],
    grids int64[n, 3] (-1 where not recorded). `is_ordered`: in the order of capture, whatever the streams."""

    name: I64
    node_type: U8
    stream: I64
    grid: I64
    is_ordered: bool

    def __len__(self) -> int:
        return len(self.name)


class Doubt(IntEnum):
    """Why the shapes of a matched kernel may be others than those of its capture."""

    NONE = 0
    OTHER_GRID = 1  # the same kernel with another grid
    OTHER_NAME = 2  # matched by class and place: another kernel was chosen for other shapes
    OTHER_CAPTURE = 3  # another capture with the same ops fits as well
    OTHER_CALL = 4  # the same kernels occur several times there, and which of them it is, is unknown


@record
class NodeMatch:
    """`position` int32[n]: the launch of each piece in the capture's sequence, -1 for none.

    `doubt` uint8[n]: a `Doubt` of each pair. `same_names`: pairs of the same name; `affinity`: how well the names suit
    the ops, where the capture has none; `same_grids`: pairs of the same grid. `size`: launches of the sequence.
    `is_ambiguous`: the capture has no names, and the pieces without a launch ran on one of several streams. `shifts`
    int64[s]: what to add to `position` for other places that fit as well, ascending, the last one 0.
    """

    position: I32
    doubt: U8
    same_names: int
    same_grids: int
    size: int
    affinity: int = 0
    is_ambiguous: bool = False
    shifts: tuple[int, ...] = (0,)

    @property
    def rank(self) -> tuple[int, int, int, int, int]:
        """Sort key: the larger, the better the match."""
        matched = int(np.count_nonzero(self.position >= 0))
        return (self.same_names, matched, self.affinity, self.same_grids, -self.size)


class NameCodes:
    """Number the names of kernels over several traces; each number has a class, which renamed kernels share."""

    def __init__(self) -> None:
        self._code: dict[str, int] = {}
        self._captures: dict[int, I64] = {}
        self._text: list[str] = []
        self._label: list[int] = []
        self._number_of_label: dict[object, int] = {}

    def encode(self, names: Sequence[str]) -> I64:
        """Return the number of each name: int64[k]; -1 for ""."""
        for name in names:
            if name and name not in self._code:
                self._code[name] = len(self._code)
                decoded = decode_kernel_name(name)
                key = (decoded.kernel_class, decoded.family) if decoded.known else name
                self._text.append(name)
                self._label.append(self._number_of_label.setdefault(key, len(self._number_of_label)))
        return np.fromiter((self._code.get(name, -1) for name in names), np.int64, len(names))

    def encode_capture(self, capture: CaptureSequence) -> I64:
        """Return the numbers of a capture's names: int64[k]; computed once, as long as the capture is kept."""
        known = self._captures.get(id(capture))
        if known is None:
            known = self._captures[id(capture)] = self.encode(capture.names)
        return known

    def text(self, code: int) -> str:
        """Return the name with a number, "" for a negative one."""
        return self._text[code] if code >= 0 else ""

    def labels(self, codes: I64, node_type: U8) -> I64:
        """Return a label for the class of each kernel, and one each for copies and fills: int64[k]."""
        table = np.array([*self._label, -1], np.int64)  # the last is that of code -1
        return np.where(node_type == NodeType.KERNEL, table[codes], -1 - node_type.astype(np.int64))


def match_by_order(replay: ReplayedSequence, capture: CaptureSequence, codes: NameCodes) -> NodeMatch | None:
    """Match with a capture that has no kernel names: as many kernels, copies and fills, in the same order.

    Where the replay ran on several streams the order of capture is found as `stream_order` describes.
    """
    size = len(replay)
    if size != len(capture) or (np.sort(replay.node_type) != np.sort(capture.node_type)).any():
        return None
    streams = sorted_unique(replay.stream)
    kinds, first, row = np.unique(_node_keys(replay.name, replay.node_type), return_index=True, return_inverse=True)
    scores = score_calls([codes.text(code) for code in kinds.tolist()], capture.op_names)
    differs = replay.node_type[first][:, None] != capture.node_type[None, :]
    scores = np.where(differs, FORBIDDEN, scores)
    no_doubt = np.zeros(size, np.uint8)
    if replay.is_ordered or len(streams) == 1:
        if (replay.node_type != capture.node_type).any():
            return None
        affinity = int(scores[row, np.arange(size)].sum())
        return NodeMatch(np.arange(size, dtype=np.int32), no_doubt, 0, 0, size, affinity)
    position = np.full(size, -1, np.int32)
    if len(streams) == 2:
        groups = [np.flatnonzero(replay.stream == stream) for stream in streams]
        for group, calls in zip(groups, match_two_streams(row[groups[0]], row[groups[1]], scores), strict=True):
            position[group] = calls
    found = np.flatnonzero(position >= 0)
    affinity = int(scores[row[found], position[found]].sum())
    return NodeMatch(position, no_doubt, 0, 0, size, affinity, is_ambiguous=True)


def match_exactly(replay: ReplayedSequence, capture: CaptureSequence, codes: NameCodes) -> NodeMatch | None:
    """Match with a capture that has the same kernels in the same order somewhere, None where it has not.

    Of several such places those with the most equal grids are taken.
    """
    own, names = _node_keys(replay.name, replay.node_type), _node_keys(codes.encode_capture(capture), capture.node_type)
    offsets = _find_occurrences(own, names)[-MAX_OCCURRENCES:]
    if not len(offsets):
        return None
    calls = offsets[:, None] + np.arange(len(own))
    same = (capture.grid[calls] == replay.grid).all(axis=2) & (replay.grid[:, 0] >= 0)
    same_grids = np.count_nonzero(same, axis=1)
    offsets = offsets[same_grids == same_grids.max()]
    match = _measure(replay, capture, np.arange(len(own), dtype=np.int32) + np.int32(offsets[-1]), codes)
    return replace(match, shifts=tuple((offsets - offsets[-1]).tolist()))


def match_by_alignment(replay: ReplayedSequence, capture: CaptureSequence, codes: NameCodes) -> NodeMatch | None:
    """Match with a capture by aligning the names of each stream; None where they have too little in common."""
    position = np.full(len(replay), -1, np.int32)
    is_free: Bool = np.ones(len(capture), np.bool_)
    code = codes.encode_capture(capture)
    own, names = _node_keys(replay.name, replay.node_type), _node_keys(code, capture.node_type)
    own_label = codes.labels(replay.name, replay.node_type)
    label = codes.labels(code, capture.node_type)
    if replay.is_ordered:
        groups = [np.arange(len(replay))]
    else:
        streams, count = np.unique(replay.stream, return_counts=True)
        groups = [np.flatnonzero(replay.stream == stream) for stream in streams[np.argsort(-count, kind="stable")]]
    for group in groups:
        free = np.flatnonzero(is_free)
        pairs = np.array(align_sequences(own_label[group], label[free], own[group], names[free]), np.int64)
        if len(pairs):
            position[group[pairs[:, 0]]] = free[pairs[:, 1]]
            is_free[free[pairs[:, 1]]] = False
    match = _measure(replay, capture, position, codes)
    kernels = np.count_nonzero(replay.node_type == NodeType.KERNEL)
    helpers = len(replay) - kernels
    return match if match.same_names - helpers >= MIN_SHARE * kernels and match.same_names else None


def _node_keys(names: I64, node_type: U8) -> I64:
    """Return one number for each kernel's name, and one each for copies and fills: int64[k]."""
    return np.where(node_type == NodeType.KERNEL, names, -2 - node_type.astype(np.int64))


def _measure(replay: ReplayedSequence, capture: CaptureSequence, position: I32, codes: NameCodes) -> NodeMatch:
    """Count what is equal in the pairs of a match, and note what is not."""
    own, names = _node_keys(replay.name, replay.node_type), _node_keys(codes.encode_capture(capture), capture.node_type)
    matched = np.flatnonzero(position >= 0)
    paired = position[matched]
    same = own[matched] == names[paired]
    same_grid = (replay.grid[matched] == capture.grid[paired]).all(axis=1)
    has_grid = (replay.grid[matched, 0] >= 0) & (capture.grid[paired, 0] >= 0)
    doubt = np.full(len(replay), Doubt.NONE, np.uint8)
    doubt[matched[has_grid & ~same_grid]] = Doubt.OTHER_GRID
    doubt[matched[~same]] = Doubt.OTHER_NAME
    same_grids = int(np.count_nonzero(same_grid & has_grid))
    return NodeMatch(position, doubt, int(np.count_nonzero(same)), same_grids, len(capture))


def _find_occurrences(wanted: I64, sequence: I64) -> I64:
    """Find the offsets at which `wanted` is a part of `sequence`, without overlaps: int64[k], ascending."""
    size = len(wanted)
    if not size or size > len(sequence):
        return np.empty(0, np.int64)
    candidates = np.flatnonzero(sequence[: len(sequence) - size + 1] == wanted[0])
    stride = max(size // 8, 1)
    for k in sorted(range(1, size), key=lambda k: (k % stride != 0, k)):
        candidates = candidates[sequence[candidates + k] == wanted[k]]
        if not len(candidates):
            break
    if len(candidates) < 2 or (np.diff(candidates) >= size).all():
        return candidates
    kept: list[int] = []
    for offset in candidates[::-1].tolist():
        if not kept or kept[-1] - offset >= size:
            kept.append(offset)
    return np.array(kept[::-1], np.int64)
