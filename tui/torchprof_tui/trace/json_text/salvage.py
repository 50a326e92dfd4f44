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
from torchprof_tui.trace.json_text.repair import RepairKinds, is_truncated, parse_values, repair_piece
from torchprof_tui.trace.json_text.scan import scan_structure

_MAX_MERGED_PIECES = 16
"""How many pieces are tried as one damaged entry, where text inside of it looks like the beginning of an entry."""

_MAX_CROSSED_STARTS = 2
"""How many of these may begin exactly as entries do, in this text."""

_SCAN_BYTES = (16 * 1024, 256 * 1024)
"""Bytes that are scanned for the end of an entry which is healthy, but full of what looks like beginnings."""

_MAX_SPACE_BYTES = 64
"""Bytes of white space that may stand between an entry and the comma behind it."""

_MAX_CLOSINGS = 64
"""How many brackets are tried as the one that closes the list, behind an entry that nothing mends."""


@dataclass(slots=True)
class SalvageResult:
    """What damaged text held. Places are offsets in that text.

    `values`: what could be read, in order. `repairs`: (kind, where its entry begins), once for each kind that an
    entry needed. `unreadable`: (start, stop) of what no repair helps. `close`: the bracket that closes the list of
    entries; what follows it has not been looked at. -1 where the text does not reach that far.
    """

    values: list[Any] = field(default_factory=list)
    repairs: list[tuple[str, int]] = field(default_factory=list)
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    close_offset: int = -1


def salvage(text: bytes) -> SalvageResult:
    """Everything that can be read of text that begins where an entry begins."""
    return _Salvager(text).run()


_ENTRY_LEAD = re.compile(rb'\s*\{\s*"')
_FIRST_KEY = re.compile(rb'\s*\{\s*"([^"\\\n]{1,64})"\s*:')
_USUAL_FIRST_KEYS = frozenset((b"ph", b"name", b"cat", b"pid", b"tid", b"ts"))


def match_entry_lead(text: bytes, offset: int = 0) -> bytes:
    """What stands between a comma and the first key of the entry that follows: white space, a brace, a quote."""
    found = _ENTRY_LEAD.match(text, offset)
    return found.group() if found else b""


def find_last_separator(text: bytes) -> int:
    """Where the last comma stands that is probably one between entries; -1 for none."""
    cuts = _find_separators(text)
    return cuts[-1] if cuts else -1


def _find_separators(text: bytes) -> list[int]:
    """The commas before what begins as entries do; one of the quotes around the key may be missing."""
    first = _FIRST_KEY.match(text)
    keys = _USUAL_FIRST_KEYS | {first[1]} if first else _USUAL_FIRST_KEYS
    either = b"|".join(re.escape(key) for key in sorted(keys))
    return [found.start() for found in re.finditer(rb',\s*\{\s*(?:"(?:%b)"?|(?:%b)")\s*:' % (either, either), text)]


def _look_like_entries(values: list[Any]) -> bool:
    """Whether these can be entries, and no pieces of one: everything that has a place on a lane has one of these."""
    objects = [value for value in values if type(value) is dict]
    return bool(objects) and all("ph" in value and ("name" in value or "pid" in value) for value in objects)


_MIN_RUN_BYTES, _MAX_RUN_BYTES = 64 * 1024, 4 << 20
"""Bytes without a beginning from which on many values are taken at once, and how many bytes of them."""

_SEPARATOR_SPACE = re.compile(rb"[\s,]*")
_CLOSING_CANDIDATE = re.compile(rb'\}\s*,?\s*(\])(?=\s*(?:\}?\s*\Z|,\s*"[^"\\\n]*"\s*:))')


class _Salvager:
    """One walk through the text: `_bounds[k]` are the commas where pieces may end, the end of the text the last."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._bounds = [*_find_separators(text), len(text)]
        self._result = SalvageResult()
        self._offset = 0
        self._bound_index = 0
        first = _FIRST_KEY.match(text)
        self._usual_start = re.compile(rb',\s*\{\s*"%b"\s*:' % re.escape(first[1] if first else b"ph"))

    def run(self) -> SalvageResult:
        while self._offset < len(self._text) and self._result.close_offset < 0:
            if not self._text[self._offset : self._bounds[self._bound_index]].strip():
                self._advance(self._bounds[self._bound_index])
                continue
            if not (
                self._parse_plain()
                or self._repair_to_bound(self._bound_index)
                or self._parse_whole_entry()
                or self._repair_merged_pieces()
            ):
                self._skip_unreadable()
        return self._result

    def _advance(self, at: int) -> None:
        """Stand behind the comma at `at`."""
        self._offset = at + 1
        while self._bound_index < len(self._bounds) - 1 and self._bounds[self._bound_index] <= at:
            self._bound_index += 1

    def _parse_plain(self) -> bool:
        stop = self._bounds[self._bound_index]
        values = parse_values(self._text[self._offset : stop])
        if values is None:
            return False
        self._result.values.extend(values)
        self._advance(stop)
        return True

    def _repair_to_bound(self, k: int) -> bool:
        """The text up to a bound, or up to a bracket before it that closes the list, as one damaged entry."""
        stop = self._bounds[k]
        mended = _repair_entries(self._text[self._offset : stop])
        if mended is None:
            for close in self._find_closings(self._offset, stop):
                mended = _repair_entries(self._text[self._offset : close])
                if mended is not None:
                    self._result.close_offset = close
                    break
        if mended is None:
            return False
        values, kinds = mended
        self._result.values.extend(values)
        self._result.repairs.extend((kind, self._offset) for kind in kinds)
        self._advance(stop)
        return True

    def _parse_whole_entry(self) -> bool:
        """An entry that is whole, whatever looks like a beginning inside of it; or the last one, and the bracket."""
        values, end = self._scan_whole_entry(self._offset, self._bounds[self._bound_index])
        if values is None:
            return False
        if self._text.startswith(b"]", end):
            self._result.close_offset = end
            if self._result.values and not values:
                self._result.repairs.append((REPAIRED_COMMA, self._offset))
        self._result.values.extend(values)
        self._advance(end)
        if self._result.close_offset < 0 and self._bounds[self._bound_index] - end > _MIN_RUN_BYTES:
            self._parse_run()
        return True

    def _parse_run(self) -> None:
        """Take all that can be read from here on at once: there is much, and nothing in it looks like a beginning.

        Value by value, the rest of the text would be parsed for each of them.
        """
        gap = _SEPARATOR_SPACE.match(self._text, self._offset)
        self._offset = gap.end() if gap else self._offset
        text = self._text[self._offset : min(self._offset + _MAX_RUN_BYTES, self._bounds[self._bound_index])].rstrip(
            b"\\"
        )
        commas = scan_structure(text).commas.tolist()
        taken, low, high = None, 0, len(commas)
        while low < high:  # what parses up to a comma, parses up to those before it
            middle = (low + high) // 2
            values = parse_values(text[: commas[middle]])
            if values is None:
                high = middle
            else:
                taken, low = (values, commas[middle]), middle + 1
        if taken is not None:
            self._result.values.extend(taken[0])
            self._advance(self._offset + taken[1])

    def _scan_whole_entry(self, start: int, bound: int) -> tuple[list[Any] | None, int]:
        """What stands up to the next comma or bracket that strings and brackets tell to be the end, and that place.

        Only where the text is without fault up to the bound: a scan of what is damaged tells nothing, and costs.
        """
        if bound < len(self._text) and not is_truncated(self._text[start:bound]):
            return None, -1
        for size in _SCAN_BYTES:
            text = self._text[start : start + size].rstrip(b"\\")
            ends = scan_structure(text)
            end = int(ends.commas[0]) if len(ends.commas) else ends.close_offset
            if end >= 0:
                return parse_values(text[:end]) if text[end] in b",]" else None, start + end
        return None, -1

    def _repair_merged_pieces(self) -> bool:
        """A damaged entry that runs over several pieces, up to where an entry surely follows."""
        crossed = 0
        for k in range(self._bound_index + 1, min(self._bound_index + _MAX_MERGED_PIECES, len(self._bounds))):
            crossed += self._begins_as_usual(self._bounds[k - 1])
            if crossed > _MAX_CROSSED_STARTS or self._has_entry_between(k - 1, k):
                return False
            if self._repair_to_bound(k):
                return True
        return False

    def _has_entry_between(self, k: int, after: int) -> bool:
        piece = self._text[self._bounds[k] + 1 : self._bounds[after]]
        values = parse_values(piece)
        if values is None:
            values, _ = self._scan_whole_entry(self._bounds[k] + 1, self._bounds[after])
        return _look_like_entries(values) if values is not None else _repair_entries(piece) is not None

    def _skip_unreadable(self) -> None:
        """The text is given up to where an entry follows, or begins just as the first one of the text did."""
        start = self._offset
        if is_truncated(self._text[start : self._bounds[self._bound_index]]) and is_truncated(self._text[start:]):
            self._result.unreadable.append((start, len(self._text)))
            self._advance(len(self._text))
            return
        for k in range(self._bound_index, len(self._bounds)):
            stop = self._bounds[k]
            for close in self._find_closings(start if k == self._bound_index else self._bounds[k - 1], stop):
                self._result.unreadable.append((start, close))
                self._result.close_offset = close
                return
            if k + 1 == len(self._bounds) or self._begins_as_usual(stop) or self._has_entry_between(k, k + 1):
                self._result.unreadable.append((start, stop))
                self._advance(stop)
                return

    def _begins_as_usual(self, comma: int) -> bool:
        before = self._text[max(comma - _MAX_SPACE_BYTES, 0) : comma].rstrip()
        return before.endswith(b"}") and self._usual_start.match(self._text, comma) is not None

    def _find_closings(self, start: int, stop: int) -> Iterator[int]:
        """The brackets behind which the text goes on as a document does behind its list of entries."""
        for found in islice(_CLOSING_CANDIDATE.finditer(self._text, start, stop), _MAX_CLOSINGS):
            rest = self._text[found.end() :].strip()
            after = b'{"":0%b' % rest
            if not rest or parse_values(after) is not None or is_truncated(after):
                yield found.start(1)


def _repair_entries(piece: bytes) -> tuple[list[Any], RepairKinds] | None:
    mended = repair_piece(piece)
    return mended if mended is not None and _look_like_entries(mended[0]) else None


def parse_chunk(text: bytes) -> list[dict[str, Any]]:
    """The entries of a stored chunk, in the order of their ordinals: what `read` made columns of."""
    values = parse_values(text)
    if values is None:
        values = salvage(text).values
    return [value for value in values if type(value) is dict]
