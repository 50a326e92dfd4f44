"""Guess, then look: the kernels that somebody expects in a range, beside those that ran there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tui.analysis.gpu_time import work_mask
from tui.analysis.kernel_names import KernelClass, KernelName, decode
from tui.trace.arrays import I64
from tui.trace.trace import Trace

_PART = re.compile(r"(?:(?P<before>\d+)\s*[x×*]?\s+)?(?P<word>\S.*?)(?:\s+[x×*]?\s*(?P<after>\d+))?")
_LONGEST = 9
"""Digits of a count."""


@dataclass(frozen=True, slots=True)
class Guess:
    """`word`: a class ("gemm") or a part of a kernel's name, in lower case; `count` runs."""

    word: str
    count: int


@dataclass(frozen=True, slots=True)
class Compared:
    """One line: `what` was expected so often, and ran so often; `events` int64[found] in time order."""

    what: str
    expected: int
    found: int
    events: I64

    @property
    def matches(self) -> bool:
        return self.expected == self.found


def parse(text: str) -> list[Guess]:
    """ "3 gemm, softmax, add x2": counts before or after, 1 where there is none. Raises ValueError with a line."""
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _PART.fullmatch(part)
        if match is None or (match["before"] and match["after"]) or match["word"].isdigit():
            raise ValueError(f"not understood: {part} (write: 3 gemm, softmax, add x2)")
        digits = match["before"] or match["after"] or "1"
        if len(digits) > _LONGEST:
            raise ValueError(f"not so many: {part}")
        word = match["word"].lower()
        found[word] = found.get(word, 0) + int(digits)
    if not found:
        raise ValueError("name the kernels that you expect: 3 gemm, softmax, add x2")
    return [Guess(word, count) for word, count in found.items()]


def compare(trace: Trace, t0: int, t1: int, guesses: Sequence[Guess]) -> list[Compared]:
    """Expectation beside reality for the GPU work that starts in t0 up to t1; mismatches first, the largest first.

    Each piece of work counts once: for the first guess that its name holds, else for one of its class. What nobody
    expected gets lines of its own, by its short name.
    """
    rows = np.flatnonzero(work_mask(np.asarray(trace.kind)))
    start = trace.start[rows]
    rows = rows[(start >= t0) & (start < t1)]
    rows = rows[np.argsort(trace.start[rows], kind="stable")]
    names = trace.name[rows]
    claimed: dict[int, str] = {}
    for name in np.unique(names).tolist():
        known = decode(trace.names[name])
        claimed[name] = _claim(known, guesses) or f"\0{known.display or known.name}"
    events: dict[str, list[int]] = {guess.word: [] for guess in guesses}
    for row, name in zip(rows.tolist(), names.tolist(), strict=True):
        events.setdefault(claimed[name], []).append(row)
    expected = Counter({guess.word: guess.count for guess in guesses})
    lines = [
        Compared(word.removeprefix("\0"), expected[word], len(found), np.array(found, dtype=np.int64))
        for word, found in events.items()
    ]
    return sorted(lines, key=lambda line: -abs(line.found - line.expected))


def _claim(known: KernelName, guesses: Sequence[Guess]) -> str:
    """The word of the guess that a kernel answers, "" for none."""
    texts = (known.name.lower(), known.display.lower())
    classes = (known.kernel_class.label, KernelClass(known.kernel_class).name.lower())
    for guess in guesses:
        if guess.word not in _CLASSES and any(guess.word in text for text in texts):
            return guess.word
    for guess in guesses:
        if guess.word in classes:
            return guess.word
    return ""


_CLASSES = {word for one in KernelClass for word in (one.label, one.name.lower())}
