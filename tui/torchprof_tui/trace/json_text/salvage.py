"""Takes damaged text apart, entry by entry, and keeps all that can be read.

Where one entry ends is told by how the next one begins, `, {"ph":`, never by quotes and brackets alone: those are
what damage upsets. The same may stand inside an entry, so a place is believed only if the text before it can be read
or mended as entries, or if an entry follows. All of this depends on the text alone, so that a stored chunk, read
again, yields the same entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from torchprof_tui.trace.core.problems import REPAIRED_COMMA
from torchprof_tui.trace.json_text.repair import Kinds, breaks_off, readable, repaired
from torchprof_tui.trace.json_text.scan import scan

_MOST_MERGED = 16
"""How many pieces are tried as one damaged entry, where text inside of it looks like the beginning of an entry."""

_MOST_CROSSED = 2
"""How many of these may begin exactly as entries do, in this text."""

_SCANNED = (16 * 1024, 256 * 1024)
"""Bytes that are scanned for the end of an entry which is healthy, but full of what looks like beginnings."""

_MOST_SPACE = 64
"""Bytes of white space that may stand between an entry and the comma behind it."""

_MOST_CLOSINGS = 64
"""How many brackets are tried as the one that closes the list, behind an entry that nothing mends."""


@dataclass(slots=True)
class Salvage:
    """What damaged text held. Places are offsets in that text.

    `values`: what could be read, in order. `repairs`: (kind, where its entry begins), once for each kind that an
    entry needed. `unreadable`: (start, stop) of what no repair helps. `close`: the bracket that closes the list of
    entries; what follows it has not been looked at. -1 where the text does not reach that far.
    """

    values: list[Any] = field(default_factory=list)
    repairs: list[tuple[str, int]] = field(default_factory=list)
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    close: int = -1


def salvage(text: bytes) -> Salvage:
    """Everything that can be read of text that begins where an entry begins."""
    return _Salvager(text).run()


_LEAD = re.compile(rb'\s*\{\s*"')
_FIRST_KEY = re.compile(rb'\s*\{\s*"([^"\\\n]{1,64})"\s*:')
_USUAL_FIRST_KEYS = frozenset((b"ph", b"name", b"cat", b"pid", b"tid", b"ts"))


def lead_of(text: bytes, at: int = 0) -> bytes:
    """What stands between a comma and the first key of the entry that follows: white space, a brace, a quote."""
    found = _LEAD.match(text, at)
    return found.group() if found else b""


def cut_after(text: bytes) -> int:
    """Where the last comma stands that is probably one between entries; -1 for none."""
    cuts = _beginnings(text)
    return cuts[-1] if cuts else -1


def _beginnings(text: bytes) -> list[int]:
    """The commas before what begins as entries do; one of the quotes around the key may be missing."""
    first = _FIRST_KEY.match(text)
    keys = _USUAL_FIRST_KEYS | {first[1]} if first else _USUAL_FIRST_KEYS
    either = b"|".join(re.escape(key) for key in sorted(keys))
    return [found.start() for found in re.finditer(rb',\s*\{\s*(?:"(?:%b)"?|(?:%b)")\s*:' % (either, either), text)]


def _plausible(values: list[Any]) -> bool:
    """Whether these can be entries, and no pieces of one: everything that has a place on a lane has one of these."""
    objects = [value for value in values if type(value) is dict]
    return bool(objects) and all("ph" in value and ("name" in value or "pid" in value) for value in objects)


_MANY, _RUN = 64 * 1024, 4 << 20
"""Bytes without a beginning from which on many values are taken at once, and how many bytes of them."""

_SEPARATORS = re.compile(rb"[\s,]*")
_MAY_CLOSE = re.compile(rb'\}\s*,?\s*(\])(?=\s*(?:\}?\s*\Z|,\s*"[^"\\\n]*"\s*:))')


class _Salvager:
    """One walk through the text: `_bounds[k]` are the commas where pieces may end, the end of the text the last."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._bounds = [*_beginnings(text), len(text)]
        self._found = Salvage()
        self._start = 0
        self._k = 0
        first = _FIRST_KEY.match(text)
        self._as_ever = re.compile(rb',\s*\{\s*"%b"\s*:' % re.escape(first[1] if first else b"ph"))

    def run(self) -> Salvage:
        while self._start < len(self._text) and self._found.close < 0:
            if not self._text[self._start : self._bounds[self._k]].strip():
                self._go_on(self._bounds[self._k])
                continue
            if not (self._plain() or self._mended(self._k) or self._healthy() or self._merged()):
                self._lost()
        return self._found

    def _go_on(self, at: int) -> None:
        """Stand behind the comma at `at`."""
        self._start = at + 1
        while self._k < len(self._bounds) - 1 and self._bounds[self._k] <= at:
            self._k += 1

    def _plain(self) -> bool:
        stop = self._bounds[self._k]
        values = readable(self._text[self._start : stop])
        if values is None:
            return False
        self._found.values.extend(values)
        self._go_on(stop)
        return True

    def _mended(self, k: int) -> bool:
        """The text up to a bound, or up to a bracket before it that closes the list, as one damaged entry."""
        stop = self._bounds[k]
        mended = _mended(self._text[self._start : stop])
        if mended is None:
            for close in self._closings(self._start, stop):
                mended = _mended(self._text[self._start : close])
                if mended is not None:
                    self._found.close = close
                    break
        if mended is None:
            return False
        values, kinds = mended
        self._found.values.extend(values)
        self._found.repairs.extend((kind, self._start) for kind in kinds)
        self._go_on(stop)
        return True

    def _healthy(self) -> bool:
        """An entry that is whole, whatever looks like a beginning inside of it; or the last one, and the bracket."""
        values, end = self._whole(self._start, self._bounds[self._k])
        if values is None:
            return False
        if self._text.startswith(b"]", end):
            self._found.close = end
            if self._found.values and not values:
                self._found.repairs.append((REPAIRED_COMMA, self._start))
        self._found.values.extend(values)
        self._go_on(end)
        if self._found.close < 0 and self._bounds[self._k] - end > _MANY:
            self._run_on()
        return True

    def _run_on(self) -> None:
        """Take all that can be read from here on at once: there is much, and nothing in it looks like a beginning.

        Value by value, the rest of the text would be parsed for each of them.
        """
        gap = _SEPARATORS.match(self._text, self._start)
        self._start = gap.end() if gap else self._start
        text = self._text[self._start : min(self._start + _RUN, self._bounds[self._k])].rstrip(b"\\")
        commas = scan(text).commas.tolist()
        taken, low, high = None, 0, len(commas)
        while low < high:  # what parses up to a comma, parses up to those before it
            middle = (low + high) // 2
            values = readable(text[: commas[middle]])
            if values is None:
                high = middle
            else:
                taken, low = (values, commas[middle]), middle + 1
        if taken is not None:
            self._found.values.extend(taken[0])
            self._go_on(self._start + taken[1])

    def _whole(self, start: int, bound: int) -> tuple[list[Any] | None, int]:
        """What stands up to the next comma or bracket that strings and brackets tell to be the end, and that place.

        Only where the text is without fault up to the bound: a scan of what is damaged tells nothing, and costs.
        """
        if bound < len(self._text) and not breaks_off(self._text[start:bound]):
            return None, -1
        for size in _SCANNED:
            text = self._text[start : start + size].rstrip(b"\\")
            ends = scan(text)
            end = int(ends.commas[0]) if len(ends.commas) else ends.close
            if end >= 0:
                return readable(text[:end]) if text[end] in b",]" else None, start + end
        return None, -1

    def _merged(self) -> bool:
        """A damaged entry that runs over several pieces, up to where an entry surely follows."""
        crossed = 0
        for k in range(self._k + 1, min(self._k + _MOST_MERGED, len(self._bounds))):
            crossed += self._begins_as_ever(self._bounds[k - 1])
            if crossed > _MOST_CROSSED or self._entry_between(k - 1, k):
                return False
            if self._mended(k):
                return True
        return False

    def _entry_between(self, k: int, after: int) -> bool:
        piece = self._text[self._bounds[k] + 1 : self._bounds[after]]
        values = readable(piece)
        if values is None:
            values, _ = self._whole(self._bounds[k] + 1, self._bounds[after])
        return _plausible(values) if values is not None else _mended(piece) is not None

    def _lost(self) -> None:
        """The text is given up to where an entry follows, or begins just as the first one of the text did."""
        start = self._start
        if breaks_off(self._text[start : self._bounds[self._k]]) and breaks_off(self._text[start:]):
            self._found.unreadable.append((start, len(self._text)))
            self._go_on(len(self._text))
            return
        for k in range(self._k, len(self._bounds)):
            stop = self._bounds[k]
            for close in self._closings(start if k == self._k else self._bounds[k - 1], stop):
                self._found.unreadable.append((start, close))
                self._found.close = close
                return
            if k + 1 == len(self._bounds) or self._begins_as_ever(stop) or self._entry_between(k, k + 1):
                self._found.unreadable.append((start, stop))
                self._go_on(stop)
                return

    def _begins_as_ever(self, comma: int) -> bool:
        before = self._text[max(comma - _MOST_SPACE, 0) : comma].rstrip()
        return before.endswith(b"}") and self._as_ever.match(self._text, comma) is not None

    def _closings(self, start: int, stop: int) -> Iterator[int]:
        """The brackets behind which the text goes on as a document does behind its list of entries."""
        for found in islice(_MAY_CLOSE.finditer(self._text, start, stop), _MOST_CLOSINGS):
            rest = self._text[found.end() :].strip()
            after = b'{"":0%b' % rest
            if not rest or readable(after) is not None or breaks_off(after):
                yield found.start(1)


def _mended(piece: bytes) -> tuple[list[Any], Kinds] | None:
    mended = repaired(piece)
    return mended if mended is not None and _plausible(mended[0]) else None


def parse_chunk(text: bytes) -> list[dict[str, Any]]:
    """The entries of a stored chunk, in the order of their ordinals: what `read` made columns of."""
    values = readable(text)
    if values is None:
        values = salvage(text).values
    return [value for value in values if type(value) is dict]
