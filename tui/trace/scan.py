"""Follows strings and brackets through JSON text, vectorised: where values end, without parsing them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tui.trace.arrays import I64


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan met: the commas between values and the bracket that closes them (-1 for none), as offsets.

    `depth` and `quoted` are how it stood at the end, to go on from there.
    """

    commas: I64
    close: int
    depth: int
    quoted: bool


_ESCAPE = re.compile(rb"\\.", re.DOTALL)

_STEP = np.zeros(256, np.int8)
_STEP[list(b"{[")] = 1
_STEP[list(b"}]")] = -1


def scan(text: bytes, depth: int = 0, quoted: bool = False) -> Scan:
    """Follow strings and depth through text that begins inside an array or object, before a value or a key.

    The text must not end in the middle of an escape. Damaged text gives some answer; only a parser can trust it.
    """
    if not text:
        return Scan(np.empty(0, np.int64), -1, depth, quoted)
    if b"\\" in text:
        text = _ESCAPE.sub(b"__", text)
    data = np.frombuffer(text, np.uint8)
    inside = np.bitwise_xor.accumulate(data == ord('"'))
    if quoted:
        np.logical_not(inside, out=inside)
    step = _STEP[data]
    step[inside] = 0
    level = np.cumsum(step, dtype=np.int32)
    level += depth
    below = np.flatnonzero(level < 0)
    close = int(below[0]) if len(below) else -1
    commas = np.flatnonzero((data == ord(",")) & (level == 0) & ~inside)
    if close >= 0:
        commas = commas[: np.searchsorted(commas, close)]
    return Scan(commas, close, int(level[-1]), bool(inside[-1]))
