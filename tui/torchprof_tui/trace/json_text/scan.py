"""Find where values end in JSON text without parsing them: a vectorised scan of quotes and brackets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I64, U8


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Offsets of the commas between values, and of the bracket that closes them (-1 for none).

    `depth`, `in_string`: state at the end of the text, from which a scan of the text after it continues.
    """

    commas: I64
    close_offset: int
    depth: int
    in_string: bool


_BLOCK_BYTES = 1 << 20
"""Bytes scanned at once; the temporary arrays take about ten times as many."""

_DEPTH_STEP = np.zeros(256, np.int8)
_DEPTH_STEP[list(b"{[")] = 1
_DEPTH_STEP[list(b"}]")] = -1


def scan_structure(text: bytes, depth: int = 0, in_string: bool = False) -> ScanResult:
    """Scan text that begins inside an array or object, before a value or a key.

    The text must not end inside an escape sequence. For damaged text the result is a guess that a parser must verify.
    """
    if not text:
        return ScanResult(np.empty(0, np.int64), -1, depth, in_string)
    if b"\\" in text:
        # Replace pairs of backslashes first; a backslash left before a quote escapes it. Other escapes do not matter.
        text = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    commas: list[I64] = []
    for begin in range(0, len(text), _BLOCK_BYTES):
        data = np.frombuffer(text, np.uint8, min(_BLOCK_BYTES, len(text) - begin), begin)
        block = _scan_block(data, depth, in_string)
        depth, in_string = block.depth, block.in_string
        commas.append(block.commas + begin)
        if block.close_offset >= 0:
            return ScanResult(np.concatenate(commas), begin + block.close_offset, depth, in_string)
    return ScanResult(np.concatenate(commas), -1, depth, in_string)


def _scan_block(data: U8, depth: int, in_string: bool) -> ScanResult:
    quoted = np.bitwise_xor.accumulate(data == ord('"'))
    if in_string:
        np.logical_not(quoted, out=quoted)
    step = _DEPTH_STEP[data]
    step[quoted] = 0
    level = np.cumsum(step, dtype=np.int32)
    level += depth
    closed = np.flatnonzero(level < 0)
    close_offset = int(closed[0]) if len(closed) else -1
    commas = np.flatnonzero((data == ord(",")) & (level == 0) & ~quoted)
    if close_offset >= 0:
        commas = commas[: np.searchsorted(commas, close_offset)]
    return ScanResult(commas, close_offset, int(level[-1]), bool(quoted[-1]))
