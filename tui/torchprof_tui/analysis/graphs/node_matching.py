"""Match the kernels of one replay with the launches of one capture, by order and name within each stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from torchprof_tui.analysis.alignment.sequence_alignment import align_sequences
from torchprof_tui.analysis.graphs.capture_sequences import CaptureSequence, NodeType
from torchprof_tui.analysis.graphs.stream_order import FORBIDDEN, match_two_streams, score_calls
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool

MIN_SHARE = 0.5
"""Smallest share of a replay's kernels whose names a capture must have, in order, to be taken as its capture."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class NodeMatch:
    """`position` int32[n]: the launch of each piece in the capture's sequence, -1 for none.

    `same_names`: pairs of the same name; `same_grids`: pairs of the same grid. `doubt` uint8[n]: a `Doubt` of each
    pair. `is_ambiguous`: the capture has no
    names, and the pieces without a launch ran on one of several streams. `size`: launches of the sequence.
    """

    position: I32
    doubt: U8
    same_names: int
    same_grids: int
    size: int
    is_ambiguous: bool = False

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """Sort key: the larger, the better the match."""
        matched = int(np.count_nonzero(self.position >= 0))
        return (self.same_names, matched, self.same_grids, -self.size)


class NameCodes:
    """Number the names of kernels over several traces; each number has a class, which renamed kernels share."""

    def __init__(self) -> None:
        self._code: dict[str, int] = {}
        self._text: list[str] = []
        self._label: list[int] = []
        self._number_of_label: dict[object, int] = {}

    def encode(self, names: Sequence[str]) -> I64:
        """Return the number of each name: int64[k]; -1 for ""."""
        return np.fromiter((self._encode(name) for name in names), np.int64, len(names))

    def text(self, code: int) -> str:
        """Return the name with a number, "" for a negative one."""
        return self._text[code] if code >= 0 else ""

    def labels(self, codes: I64, node_type: U8) -> I64:
        """Return a label for the class of each kernel, and one each for copies and fills: int64[k]."""
        table = np.array([*self._label, -1], np.int64)  # the last is that of code -1
        return np.where(node_type == NodeType.KERNEL, table[codes], -1 - node_type.astype(np.int64))

    def _encode(self, name: str) -> int:
        if not name:
            return -1
        code = self._code.get(name)
        if code is None:
            code = self._code[name] = len(self._code)
            decoded = decode_kernel_name(name)
            key = (decoded.kernel_class, decoded.family) if decoded.known else name
            self._text.append(name)
            self._label.append(self._number_of_label.setdefault(key, len(self._number_of_label)))
        return code


def match_nodes(replay: ReplayedSequence, capture: CaptureSequence, codes: NameCodes) -> NodeMatch | None:
    """Match a replay with a capture; None where they have too little in common."""
    if not capture.has_names:
        return _match_by_order(replay, capture, codes)
    return _match_by_name(replay, capture, codes)


def _match_by_order(replay: ReplayedSequence, capture: CaptureSequence, codes: NameCodes) -> NodeMatch | None:
    """Match with a capture that has no kernel names: as many kernels, copies and fills, in the same order.

    Where the replay ran on several streams the order of capture is found as `stream_order` describes.
    """
    size = len(replay)
    if size != len(capture) or (_count_types(replay.node_type) != _count_types(capture.node_type)).any():
        return None
    streams = np.unique(replay.stream)
    if replay.is_ordered or len(streams) == 1:
        if (replay.node_type != capture.node_type).any():
            return None
        return NodeMatch(np.arange(size, dtype=np.int32), np.zeros(size, np.uint8), 0, 0, size)
    position = np.full(size, -1, np.int32)
    if len(streams) == 2:
        groups = [np.flatnonzero(replay.stream == stream) for stream in streams]
        scores, row = _score_launches(replay, capture, codes)
        for group, calls in zip(groups, match_two_streams(row[groups[0]], row[groups[1]], scores), strict=True):
            position[group] = calls
    return NodeMatch(position, np.zeros(size, np.uint8), 0, 0, size, is_ambiguous=True)


def _count_types(node_type: U8) -> I64:
    return np.bincount(node_type, minlength=len(NodeType))


def _score_launches(replay: ReplayedSequence, capture: CaptureSequence, codes: NameCodes) -> tuple[I64, I64]:
    """Return (the score of each call for each distinct kernel, int64[kinds, k]; the kind of each piece, int64[n])."""
    key = np.where(replay.node_type == NodeType.KERNEL, replay.name, -2 - replay.node_type.astype(np.int64))
    kinds, first, row = np.unique(key, return_index=True, return_inverse=True)
    scores = score_calls([codes.text(code) for code in kinds.tolist()], capture.op_names)
    differs = replay.node_type[first][:, None] != capture.node_type[None, :]
    return np.where(differs, FORBIDDEN, scores), row


def _match_by_name(replay: ReplayedSequence, capture: CaptureSequence, codes: NameCodes) -> NodeMatch | None:
    """Match with a capture that names its kernels: exactly, else by aligning the names of each stream."""
    names = codes.encode(capture.names)
    names = np.where(capture.node_type == NodeType.KERNEL, names, -2 - capture.node_type.astype(np.int64))
    own = np.where(replay.node_type == NodeType.KERNEL, replay.name, -2 - replay.node_type.astype(np.int64))
    offset = _find_last_occurrence(own, names)
    if offset >= 0:
        position = np.arange(offset, offset + len(own), dtype=np.int32)
    else:
        position = _align(replay, own, capture, names, codes)
    matched = np.flatnonzero(position >= 0)
    paired = position[matched]
    same = own[matched] == names[paired]
    kernel_count = np.count_nonzero(replay.node_type == NodeType.KERNEL)
    same_kernels = int(np.count_nonzero(same & (replay.node_type[matched] == NodeType.KERNEL)))
    if same_kernels < MIN_SHARE * kernel_count or not len(matched):
        return None
    same_grid = (replay.grid[matched] == capture.grid[paired]).all(axis=1)
    has_grid = (replay.grid[matched, 0] >= 0) & (capture.grid[paired, 0] >= 0)
    doubt = np.full(len(replay), Doubt.NONE, np.uint8)
    doubt[matched[has_grid & ~same_grid]] = Doubt.OTHER_GRID
    doubt[matched[~same]] = Doubt.OTHER_NAME
    same_grids = int(np.count_nonzero(same_grid & has_grid))
    return NodeMatch(position, doubt, int(np.count_nonzero(same)), same_grids, len(capture))


def _find_last_occurrence(wanted: I64, sequence: I64) -> int:
    """Find the last offset at which `wanted` is a part of `sequence`, -1 for none."""
    size = len(wanted)
    if not size or size > len(sequence):
        return -1
    candidates = np.flatnonzero(sequence[: len(sequence) - size + 1] == wanted[0])
    for k in _probe_order(size):
        candidates = candidates[sequence[candidates + k] == wanted[k]]
        if not len(candidates):
            return -1
    return int(candidates[-1])


def _probe_order(size: int) -> list[int]:
    """Return all indices below `size`, spread over it first, so that most candidates fail early."""
    stride = max(size // 8, 1)
    return sorted(range(1, size), key=lambda k: (k % stride != 0, k))


def _align(replay: ReplayedSequence, own: I64, capture: CaptureSequence, names: I64, codes: NameCodes) -> I32:
    """Align each stream of a replay, the busiest first, with the launches that are still free: int32[n]."""
    position = np.full(len(replay), -1, np.int32)
    is_free: Bool = np.ones(len(capture), np.bool_)
    own_label = codes.labels(replay.name, replay.node_type)
    label = codes.labels(codes.encode(capture.names), capture.node_type)
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
    return position
