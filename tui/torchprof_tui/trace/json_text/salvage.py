"""Split damaged text into entries and keep all that can be read or repaired.

An entry ends where the next one begins (`, {"ph":`), never by quotes and brackets alone, because damage affects those.
The same text may occur inside an entry, so a candidate is accepted only if the text before it can be read or repaired
as entries, or if an entry follows. The result depends on the text alone, so that a stored chunk that is read again
yields the same entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import orjson

from torchprof_tui.trace.core.bounded_json import is_nested_too_deeply, limit_nesting
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.problems import REPAIRED_COMMA
from torchprof_tui.trace.json_text.repair import RepairKinds, is_truncated, parse_values, repair_piece, scan_structure

_MAX_MERGED_PIECES = 16
"""Pieces merged, at most, into one damaged entry whose text contains what looks like beginnings of entries."""

_MAX_CROSSED_STARTS = 2  # of these, how many may begin exactly as the entries of this text do

_SCAN_BYTES = (16 * 1024, 256 * 1024)
"""Bytes scanned for the end of a valid entry that contains what looks like beginnings of entries."""

_MAX_SPACE_BYTES = 64  # white space allowed between an entry and the comma after it, in bytes
_MAX_CLOSINGS = 64  # brackets tried, at most, as the end of the list after an entry that cannot be repaired


@dataclass(slots=True)
class SalvageResult:
    """Entries found in damaged text; all offsets are into that text.

    `values`: what could be read, in order. `repairs`: (kind, offset of the entry), one for each kind of repair of an
    entry. `unreadable`: (start, stop) of text that cannot be repaired. `close_offset`: the bracket that closes the list
    of entries, -1 if the text ends before it; text after it is not examined.
    """

    values: list[Any] = field(default_factory=list)
    repairs: list[tuple[str, int]] = field(default_factory=list)
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    close_offset: int = -1


def salvage(text: bytes) -> SalvageResult:
    """Read all entries that can be read from text that begins at an entry."""
    return _Salvager(text).run()


_ENTRY_LEAD = compile_later(rb'\s?\{"[^"\\\n]{1,64}"|\s*\{\s*"')
_FIRST_KEY = compile_later(rb'\s*\{\s*"([^"\\\n]{1,64})"\s*:')
_USUAL_FIRST_KEYS = frozenset((b"ph", b"name", b"cat", b"pid", b"tid", b"ts"))


def match_entry_lead(text: bytes, offset: int = 0) -> bytes:
    """Return the text at `offset` up to an entry's first key: white space, a brace, a quote; empty if there is none.

    In compact text with that key, because objects in args also begin with a brace and a quote.
    """
    match = _ENTRY_LEAD.match(text, offset)
    return match.group() if match else b""


def find_last_separator(text: bytes) -> int:
    """Return the offset of the last comma that probably separates entries, -1 for none."""
    separators = _find_separators(text)
    return separators[-1] if separators else -1


def _find_separators(text: bytes) -> list[int]:
    """Find the commas before text that begins like an entry; one quote around its first key may be missing."""
    first = _FIRST_KEY.match(text)
    keys = _USUAL_FIRST_KEYS | {first[1]} if first else _USUAL_FIRST_KEYS
    either = b"|".join(re.escape(key) for key in sorted(keys))
    return [match.start() for match in re.finditer(rb',\s*\{\s*(?:"(?:%b)"?|(?:%b)")\s*:' % (either, either), text)]


def _look_like_entries(values: list[Any]) -> bool:
    """Tell whether these may be entries, not parts of one: any entry drawn on a lane has `ph` and `name` or `pid`."""
    objects = [value for value in values if type(value) is dict]
    return bool(objects) and all("ph" in value and ("name" in value or "pid" in value) for value in objects)


_MIN_RUN_BYTES, _MAX_RUN_BYTES = 64 * 1024, 4 << 20
"""Text without a beginning of an entry is parsed in runs from this size on, and up to this size at once; bytes."""

_MAX_SCANNED_SHARE = 128
"""Most bytes scanned for the ends of entries, in bytes of text: text of beginnings only has an end nowhere."""

_SEPARATOR_SPACE = compile_later(rb"[\s,]*")
_CLOSING_CANDIDATE = compile_later(rb'\}\s*(?:,\s*)?(\])(?=\s*(?:(?:\}\s*)?\Z|,\s*"[^"\\\n]*"\s*:))')


class _Salvager:
    """One pass through the text. `_bounds`: the commas where a piece may end, then the end of the text."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._bounds = [*_find_separators(text), len(text)]
        self._result = SalvageResult()
        self._offset = 0
        self._bound_index = 0
        self._scan_budget = _MAX_SCANNED_SHARE * len(text)  # bytes
        first = _FIRST_KEY.match(text)
        self._usual_start = compile_later(rb',\s*\{\s*"%b"\s*:' % re.escape(first[1] if first else b"ph"))

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

    def _advance(self, comma: int) -> None:
        """Continue after the comma at this offset."""
        self._offset = comma + 1
        while self._bound_index < len(self._bounds) - 1 and self._bounds[self._bound_index] <= comma:
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
        """Repair the text up to a bound, or up to a bracket before it that closes the list, as one damaged entry."""
        stop = self._bounds[k]
        repaired = _repair_entries(self._text[self._offset : stop])
        if repaired is None:
            for close in self._find_closings(self._offset, stop):
                repaired = _repair_entries(self._text[self._offset : close])
                if repaired is not None:
                    self._result.close_offset = close
                    break
        if repaired is None:
            return False
        values, kinds = repaired
        self._result.values.extend(values)
        self._result.repairs.extend((kind, self._offset) for kind in kinds)
        self._advance(stop)
        return True

    def _parse_whole_entry(self) -> bool:
        """Parse an entry that contains what looks like beginnings of entries; or the last one with its bracket."""
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
        """Parse as many values as possible at once from a long text without a beginning of an entry.

        Parsed one by one, each value would cost a parse of all text after it.
        """
        match = _SEPARATOR_SPACE.match(self._text, self._offset)
        self._offset = match.end() if match else self._offset
        text = self._text[self._offset : min(self._offset + _MAX_RUN_BYTES, self._bounds[self._bound_index])].rstrip(
            b"\\"
        )
        commas = scan_structure(text).commas.tolist()
        longest, low, high = None, 0, len(commas)
        while low < high:  # text that parses up to one comma also parses up to each comma before it
            middle = (low + high) // 2
            values = parse_values(text[: commas[middle]])
            if values is None:
                high = middle
            else:
                longest, low = (values, commas[middle]), middle + 1
        if longest is not None:
            self._result.values.extend(longest[0])
            self._advance(self._offset + longest[1])

    def _scan_whole_entry(self, start: int, bound: int) -> tuple[list[Any] | None, int]:
        """Parse the values up to the next comma or bracket at depth 0; returns (values or None, its offset or -1).

        Only if the text is valid up to the bound: a scan of damaged text is slow and proves nothing.
        """
        if bound < len(self._text) and not is_truncated(self._text[start:bound]):
            return None, -1
        for size in _SCAN_BYTES:
            text = self._text[start : start + size].rstrip(b"\\")
            self._scan_budget -= len(text)
            if self._scan_budget < 0:
                break
            scan = scan_structure(text)
            end = int(scan.commas[0]) if len(scan.commas) else scan.close_offset
            if end >= 0:
                return parse_values(text[:end]) if text[end] in b",]" else None, start + end
        return None, -1

    def _repair_merged_pieces(self) -> bool:
        """Repair a damaged entry that spans several pieces, up to a bound that an entry follows."""
        crossed = 0
        for k in range(self._bound_index + 1, min(self._bound_index + _MAX_MERGED_PIECES, len(self._bounds))):
            crossed += self._begins_as_usual(self._bounds[k - 1])
            if crossed > _MAX_CROSSED_STARTS or self._has_entry_between(k - 1, k):
                return False
            if self._repair_to_bound(k):
                return True
        return False

    def _has_entry_between(self, k: int, after: int) -> bool:
        """Tell whether the text between two bounds can be read or repaired as entries."""
        piece = self._text[self._bounds[k] + 1 : self._bounds[after]]
        values = parse_values(piece)
        if values is None:
            values, _ = self._scan_whole_entry(self._bounds[k] + 1, self._bounds[after])
        return _look_like_entries(values) if values is not None else _repair_entries(piece) is not None

    def _skip_unreadable(self) -> None:
        """Record text as unreadable, up to a bound that an entry or the beginning of a usual entry follows."""
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
        """Tell whether an entry ends before this comma and the text after begins with the first entry's first key."""
        preceding = self._text[max(comma - _MAX_SPACE_BYTES, 0) : comma].rstrip()
        return preceding.endswith(b"}") and self._usual_start.match(self._text, comma) is not None

    def _find_closings(self, start: int, stop: int) -> Iterator[int]:
        """Yield the brackets after which the text continues like a document after its list of entries."""
        for match in islice(_CLOSING_CANDIDATE.finditer(self._text, start, stop), _MAX_CLOSINGS):
            rest = self._text[match.end() :].strip()
            document = b'{"":0%b' % rest
            if not rest or parse_values(document) is not None or is_truncated(document):
                yield match.start(1)


def _repair_entries(piece: bytes) -> tuple[list[Any], RepairKinds] | None:
    repaired = repair_piece(piece)
    return repaired if repaired is not None and _look_like_entries(repaired[0]) else None


def parse_chunk(text: bytes) -> list[dict[str, Any]]:
    """Parse the entries of a stored chunk, in order of their ordinals: the same that the decoder read.

    Where some are nested too deeply, of all only the first levels (`core/bounded_json.py`).
    """
    values = parse_values(text)
    if values is None:
        values = salvage(text).values
    entries = [value for value in values if type(value) is dict]
    return [limit_nesting(entry) for entry in entries] if is_nested_too_deeply(entries) else entries


_SEPARATOR = b"\n  },\n  {"
"""Between two entries in Kineto's layout. Inside a JSON string a line break is written as an escape."""

_MAX_SHARE = 4  # above one entry in so many, parsing the whole chunk costs about as much


def parse_chosen_entries(text: bytes, count: int, chosen: Sequence[int]) -> list[dict[str, Any]] | None:
    """Parse the entries of a chunk of `count` entries at the indices `chosen`.

    None where the chunk has another layout, or where too many are chosen: then parse the whole chunk.
    """
    if len(chosen) * _MAX_SHARE > count:
        return None
    pieces = text.split(_SEPARATOR)
    if len(pieces) != count:
        return None
    entries = []
    for index in chosen:
        begin, end = b"" if index == 0 else b"{", b"" if index == count - 1 else b"}"
        try:
            entry = orjson.loads(begin + pieces[index] + end)
        except orjson.JSONDecodeError:
            return None
        if type(entry) is not dict:
            return None
        entries.append(limit_nesting(entry) if is_nested_too_deeply([entry]) else entry)
    return entries
