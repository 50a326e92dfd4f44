"""The top level of a trace file: what kind of file it is, where its list of entries begins, what else stands there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import CUT_SHORT, TEXT_AFTER_END, UNREADABLE_HEADER, ProblemTally, excerpt
from torchprof_tui.trace.decode.chunker import TextWindow
from torchprof_tui.trace.json_text.repair import parse_values, repair_piece
from torchprof_tui.trace.json_text.scan import scan_structure
from torchprof_tui.trace.text.large_values import LargeValueWriter

MAX_HEADER_VALUE_BYTES = 64 * 1024
"""A header value of less text is held; of larger ones (stack tables, samples) is known where they lie."""

_LOOKAHEAD_BYTES = 16 * 1024
"""How much is looked at to say what a file is, and to find a key."""

MAX_KEYS = 4096
"""Top-level keys that are read one by one; real files have some thirty. Behind those only traceEvents is looked for."""

_MAX_LISTED_KEYS = 8
"""Of an object that is no trace, so many keys are named."""

_SCAN_SIZES = (1024, 16 * 1024, 256 * 1024)
"""Bytes of a value that are scanned at a time: most end within the first, few need more."""

_SEPARATORS = re.compile(rb"[\s,]*")
_KEY = re.compile(rb'"((?:[^"\\]|\\.){0,4096})"\s*:\s*', re.DOTALL)
_TRUNCATED_KEY = re.compile(rb'"(?:[^"\\]|\\.)*\\?(?:"\s*)?', re.DOTALL)
_TRACE_EVENTS_KEY = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_TRACE_EVENTS_OVERLAP = 64  # that much of a block's end may belong to a match in the next one


class JsonDocument:
    """Walks the top level of the text in `window`; `name` is what the user called it.

    `bare`: the file is the list itself, without an object around it. `json_like`: it begins as a trace does, or nothing
    of it could be read. `header`: other keys and their values.
    Those too large to be held go to `large`.
    """

    def __init__(self, window: TextWindow, name: str, tally: ProblemTally, large: LargeValueWriter) -> None:
        self.is_bare_list = False
        self.json_like = False
        self.header: dict[str, Any] = {}
        self._large_keys = large
        self._window = window
        self._name = name
        self._tally = tally
        self._list_count = 0
        self._listed_keys: list[str] = []
        self._key_count = 0  # how many keys there were

    def not_a_trace_error(self, description: str) -> TraceError:
        return TraceError(f"{self._name}: not a trace, but {description}")

    def seek_lists(self) -> Iterator[None]:
        """Stops wherever the window stands behind the bracket that opens a list of entries: whoever asked reads it,
        and then asks again. One list, in all but strange files. Raises TraceError where there is none.
        """
        first = self._find_first_byte()
        self.json_like = first in (b"{", b"[", b"")
        if first == b"[":
            self.is_bare_list = True
            yield from self._enter_list()
            self._check_trailing_text()
            return
        if first != b"{":
            raise self.not_a_trace_error(describe_file(self._window.text[self._window.position :]))
        self._window.position += 1
        while (key := self._read_key()) is not None:
            if key == "traceEvents" and self._peek_byte() == b"[":
                yield from self._enter_list()
            elif self._key_count > MAX_KEYS:
                if not self._skip_to_events():
                    break
                yield from self._yield_list()
            elif self._read_value(key):
                yield from self._yield_list()
        if not self._list_count:
            if not self._listed_keys:
                raise self.not_a_trace_error("an empty object")
            if "traceEvents" in self._listed_keys:
                raise self.not_a_trace_error("a JSON object whose traceEvents is no list")
            raise self.not_a_trace_error(
                f"a JSON object without traceEvents (keys: {excerpt(', '.join(self._listed_keys))})"
            )

    def _peek_byte(self) -> bytes:
        self._window.fill(1)
        return self._window.text[self._window.position : self._window.position + 1]

    def _find_first_byte(self) -> bytes:
        window = self._window
        window.fill(_LOOKAHEAD_BYTES)
        if window.text.startswith(b"\xef\xbb\xbf"):
            window.position = 3
        self._skip_space()
        return self._peek_byte()

    def _skip_space(self) -> None:
        window = self._window
        while True:
            window.fill(_LOOKAHEAD_BYTES)
            found = _SEPARATORS.match(window.text, window.position)
            window.position = found.end() if found else window.position
            if window.position < len(window.text) or window.ended:
                return

    def _enter_list(self) -> Iterator[None]:
        self._window.position += 1
        yield from self._yield_list()

    def _yield_list(self) -> Iterator[None]:
        self._list_count += 1
        yield

    def _read_key(self) -> str | None:
        """The next key, the window before its value; None where there are no more."""
        window = self._window
        self._skip_space()
        if window.position >= len(window.text):
            if not self._tally.count(CUT_SHORT):
                self._tally.add(CUT_SHORT, f"the file ends at byte {window.offset}, before its closing brace")
            return None
        if window.text.startswith(b"}", window.position):
            window.position += 1
            self._check_trailing_text()
            return None
        found = _KEY.match(window.text, window.position)
        if found:
            window.position = found.end()
            self._key_count += 1
            text = parse_values(b'"%b"' % found[1])
            key = str(text[0]) if text else found[1].decode("utf-8", "backslashreplace")
            if len(self._listed_keys) < _MAX_LISTED_KEYS:
                self._listed_keys.append(key)
            return key
        if self._list_count and window.ended and _TRUNCATED_KEY.fullmatch(window.text, window.position):
            self._tally.add(CUT_SHORT, f"the file ends at byte {window.base + len(window.text)}, inside a key")
            window.position = len(window.text)
            return None
        where = f"at byte {window.offset}: {excerpt(window.text[window.position : window.position + 400])}"
        if not self._list_count:
            if window.ended and _TRUNCATED_KEY.fullmatch(window.text, window.position):
                raise TraceError(
                    f"{self._name}: cut short after {window.base + len(window.text):,} bytes of text, "
                    "before its first event"
                )
            if window.position <= 16 and not _TRACE_EVENTS_KEY.search(window.text):
                raise self.not_a_trace_error(describe_file(window.text))
            self._tally.add(UNREADABLE_HEADER, where)
            return ""  # the value of no key: what follows, up to traceEvents
        self._tally.add(UNREADABLE_HEADER, where)
        self._drain()
        return None

    def _skip_to_events(self) -> bool:
        """The window behind the bracket of traceEvents, wherever that comes; at the end of the file where it does not.

        True where it was found.
        """
        window = self._window
        if self._list_count:
            self._tally.add(UNREADABLE_HEADER, f"more than {MAX_KEYS} keys: those behind byte {window.offset} are lost")
            self._drain()
            return False
        self._tally.add(UNREADABLE_HEADER, f"more than {MAX_KEYS} keys: from byte {window.offset} on only traceEvents")
        while True:
            window.fill(_SCAN_SIZES[-1])
            found = _TRACE_EVENTS_KEY.search(window.text, window.position)
            if found:
                window.position = found.end()
                return True
            if window.ended:
                window.position = len(window.text)
                return False
            window.position = max(len(window.text) - _TRACE_EVENTS_OVERLAP, window.position)

    def _read_value(self, key: str) -> bool:
        """Take in the value of a key. True where a list of entries turned up inside: the window then stands in it.

        That happens where damage hides the end of the value, and in files that hold a trace within something else.
        """
        window = self._window
        kept: list[bytes] = []
        tail = b""
        size = step = depth = 0
        quoted = ended = False
        while not ended:
            window.fill(_SCAN_SIZES[step] + 1)
            text = window.text[window.position : window.position + _SCAN_SIZES[step]]
            step = min(step + 1, len(_SCAN_SIZES) - 1)
            if not text:
                break
            if text.endswith(b"\\"):
                text = text.rstrip(b"\\") or text
            found = scan_structure(text, depth, quoted)
            depth, quoted = found.depth, found.in_string
            end = int(found.commas[0]) if len(found.commas) else found.close_offset
            ended = end >= 0
            text = text[:end] if ended else text
            if not self._list_count:
                hidden = _TRACE_EVENTS_KEY.search(tail + text)
                if hidden:
                    window.position += hidden.end() - len(tail)
                    if size >= MAX_HEADER_VALUE_BYTES and key:
                        self._large_keys.discard_value()
                    self._tally.add(
                        UNREADABLE_HEADER, f"traceEvents stands inside the value of {excerpt(key) or 'no key'}"
                    )
                    return True
                tail = (tail + text)[-_TRACE_EVENTS_OVERLAP:]
            if size < MAX_HEADER_VALUE_BYTES:
                kept.append(text)
            size += len(text)
            if size >= MAX_HEADER_VALUE_BYTES and key:
                if kept:
                    self._large_keys.begin_value()
                for piece in kept or [text]:
                    self._large_keys.write(piece)
                kept.clear()
            window.position += len(text)
        if ended and not key and not size:
            window.position += 1  # a stray bracket
        if not ended:
            self._tally.add(CUT_SHORT, f"the file ends at byte {window.offset}, inside the value of {excerpt(key)}")
        elif size < MAX_HEADER_VALUE_BYTES:
            self._store_value(key, b"".join(kept))
        elif key:
            self.header.pop(key, None)
            self._large_keys.commit_value(key, window.offset - size)
        if not ended and size >= MAX_HEADER_VALUE_BYTES and key:
            self._large_keys.discard_value()
        return False

    def _store_value(self, key: str, text: bytes) -> None:
        values = parse_values(text)
        if values is None:
            mended = repair_piece(text)
            values, kinds = mended or ([], {})
            for kind in kinds:
                self._tally.add(kind, f"in the value of {excerpt(key)}: {excerpt(text)}")
        if len(values) == 1:
            self._large_keys.remove_key(key)
            self.header[key] = values[0]
        elif key:
            self._tally.add(UNREADABLE_HEADER, f"the value of {excerpt(key)}: {excerpt(text)}")

    def _check_trailing_text(self) -> None:
        window = self._window
        self._skip_space()
        if window.position < len(window.text):
            what = excerpt(window.text[window.position : window.position + 400])
            self._tally.add(TEXT_AFTER_END, f"from byte {window.offset}: {what}")
            self._drain()

    def _drain(self) -> None:
        """Read on to the end, so that what is wrong with the stream is known, and its size."""
        window = self._window
        while not window.ended or window.position < len(window.text):
            window.position = len(window.text)
            window.fill(1)


_KNOWN_FORMATS = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"BZh": "bzip2 data; unpack it first",
    b"\x1f\x8b": "gzip data packed twice; unpack it once",
    b"SQLite format 3": "an SQLite database, such as Nsight Systems exports",
    b"\x80\x04": "a Python pickle, such as a memory snapshot",
    b"\x80\x05": "a Python pickle, such as a memory snapshot",
    b"\xff\xfe": "UTF-16 text; a trace is UTF-8",
    b"\xfe\xff": "UTF-16 text; a trace is UTF-8",
    b"<": "a page of HTML or XML",
}


def describe_file(head: bytes) -> str:
    """What a file is that begins like this and is no JSON object or list, in a few words."""
    if not head.strip():
        return "an empty file"
    for magic, words in _KNOWN_FORMATS.items():
        if head.startswith(magic):
            return words
    if b"\0" in head[:4] and head[:4].count(b"\0") == 2:
        return "UTF-16 text; a trace is UTF-8"
    controls = sum(byte < 32 and byte not in b"\t\n\f\r\x1b" for byte in head[:1024])
    if b"\0" in head[:1024] or controls > max(1, len(head[:1024]) // 32):
        return "binary data"
    values = parse_values(head)
    if values is not None and len(values) == 1:
        return f"the JSON value {excerpt(head)}"
    return f"text that begins with: {excerpt(head[:400])}"
