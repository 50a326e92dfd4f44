"""The top level of a trace file: what kind of file it is, where its list of entries begins, what else stands there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import CUT_SHORT, TEXT_AFTER_END, UNREADABLE_HEADER, Tally, excerpt
from torchprof_tui.trace.decode.chunker import Window
from torchprof_tui.trace.json_text.repair import readable, repaired
from torchprof_tui.trace.json_text.scan import scan
from torchprof_tui.trace.text.large_values import LargeKeyWriter

KEPT_BYTES = 64 * 1024
"""A header value of less text is held; of larger ones (stack tables, samples) is known where they lie."""

_LOOK = 16 * 1024
"""How much is looked at to say what a file is, and to find a key."""

MOST_KEYS = 4096
"""Top-level keys that are read one by one; real files have some thirty. Behind those only traceEvents is looked for."""

_NAMED_KEYS = 8
"""Of an object that is no trace, so many keys are named."""

_STEPS = (1024, 16 * 1024, 256 * 1024)
"""Bytes of a value that are scanned at a time: most end within the first, few need more."""

_SPACE = re.compile(rb"[\s,]*")
_KEY = re.compile(rb'"((?:[^"\\]|\\.){0,4096})"\s*:\s*', re.DOTALL)
_CUT_KEY = re.compile(rb'"(?:[^"\\]|\\.)*\\?(?:"\s*)?', re.DOTALL)
_EVENTS = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_EVENTS_BYTES = 64  # that much of a block's end may belong to a match in the next one


class Document:
    """Walks the top level of the text in `window`; `name` is what the user called it.

    `bare`: the file is the list itself, without an object around it. `json_like`: it begins as a trace does, or nothing
    of it could be read. `header`: other keys and their values.
    Those too large to be held go to `large`.
    """

    def __init__(self, window: Window, name: str, tally: Tally, large: LargeKeyWriter) -> None:
        self.bare = False
        self.json_like = False
        self.header: dict[str, Any] = {}
        self._large = large
        self._window = window
        self._name = name
        self._tally = tally
        self._lists = 0
        self._keys: list[str] = []
        self._met = 0  # how many keys there were

    def refused(self, what: str) -> TraceError:
        return TraceError(f"{self._name}: not a trace, but {what}")

    def lists(self) -> Iterator[None]:
        """Stops wherever the window stands behind the bracket that opens a list of entries: whoever asked reads it,
        and then asks again. One list, in all but strange files. Raises TraceError where there is none.
        """
        first = self._first()
        self.json_like = first in (b"{", b"[", b"")
        if first == b"[":
            self.bare = True
            yield from self._list()
            self._end()
            return
        if first != b"{":
            raise self.refused(described(self._window.text[self._window.at :]))
        self._window.at += 1
        while (key := self._key()) is not None:
            if key == "traceEvents" and self._next() == b"[":
                yield from self._list()
            elif self._met > MOST_KEYS:
                if not self._skip_to_events():
                    break
                yield from self._found()
            elif self._value(key):
                yield from self._found()
        if not self._lists:
            if not self._keys:
                raise self.refused("an empty object")
            if "traceEvents" in self._keys:
                raise self.refused("a JSON object whose traceEvents is no list")
            raise self.refused(f"a JSON object without traceEvents (keys: {excerpt(', '.join(self._keys))})")

    def _next(self) -> bytes:
        self._window.fill(1)
        return self._window.text[self._window.at : self._window.at + 1]

    def _first(self) -> bytes:
        window = self._window
        window.fill(_LOOK)
        if window.text.startswith(b"\xef\xbb\xbf"):
            window.at = 3
        self._skip_space()
        return self._next()

    def _skip_space(self) -> None:
        window = self._window
        while True:
            window.fill(_LOOK)
            found = _SPACE.match(window.text, window.at)
            window.at = found.end() if found else window.at
            if window.at < len(window.text) or window.ended:
                return

    def _list(self) -> Iterator[None]:
        self._window.at += 1
        yield from self._found()

    def _found(self) -> Iterator[None]:
        self._lists += 1
        yield

    def _key(self) -> str | None:
        """The next key, the window before its value; None where there are no more."""
        window = self._window
        self._skip_space()
        if window.at >= len(window.text):
            if not self._tally.count(CUT_SHORT):
                self._tally.add(CUT_SHORT, f"the file ends at byte {window.offset}, before its closing brace")
            return None
        if window.text.startswith(b"}", window.at):
            window.at += 1
            self._end()
            return None
        found = _KEY.match(window.text, window.at)
        if found:
            window.at = found.end()
            self._met += 1
            text = readable(b'"%b"' % found[1])
            key = str(text[0]) if text else found[1].decode("utf-8", "backslashreplace")
            if len(self._keys) < _NAMED_KEYS:
                self._keys.append(key)
            return key
        if self._lists and window.ended and _CUT_KEY.fullmatch(window.text, window.at):
            self._tally.add(CUT_SHORT, f"the file ends at byte {window.base + len(window.text)}, inside a key")
            window.at = len(window.text)
            return None
        where = f"at byte {window.offset}: {excerpt(window.text[window.at : window.at + 400])}"
        if not self._lists:
            if window.ended and _CUT_KEY.fullmatch(window.text, window.at):
                raise TraceError(
                    f"{self._name}: cut short after {window.base + len(window.text):,} bytes of text, "
                    "before its first event"
                )
            if window.at <= 16 and not _EVENTS.search(window.text):
                raise self.refused(described(window.text))
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
        if self._lists:
            self._tally.add(
                UNREADABLE_HEADER, f"more than {MOST_KEYS} keys: those behind byte {window.offset} are lost"
            )
            self._drain()
            return False
        self._tally.add(UNREADABLE_HEADER, f"more than {MOST_KEYS} keys: from byte {window.offset} on only traceEvents")
        while True:
            window.fill(_STEPS[-1])
            found = _EVENTS.search(window.text, window.at)
            if found:
                window.at = found.end()
                return True
            if window.ended:
                window.at = len(window.text)
                return False
            window.at = max(len(window.text) - _EVENTS_BYTES, window.at)

    def _value(self, key: str) -> bool:
        """Take in the value of a key. True where a list of entries turned up inside: the window then stands in it.

        That happens where damage hides the end of the value, and in files that hold a trace within something else.
        """
        window = self._window
        kept: list[bytes] = []
        tail = b""
        size = step = depth = 0
        quoted = ended = False
        while not ended:
            window.fill(_STEPS[step] + 1)
            text = window.text[window.at : window.at + _STEPS[step]]
            step = min(step + 1, len(_STEPS) - 1)
            if not text:
                break
            if text.endswith(b"\\"):
                text = text.rstrip(b"\\") or text
            found = scan(text, depth, quoted)
            depth, quoted = found.depth, found.quoted
            end = int(found.commas[0]) if len(found.commas) else found.close
            ended = end >= 0
            text = text[:end] if ended else text
            if not self._lists:
                hidden = _EVENTS.search(tail + text)
                if hidden:
                    window.at += hidden.end() - len(tail)
                    if size >= KEPT_BYTES and key:
                        self._large.drop()
                    self._tally.add(
                        UNREADABLE_HEADER, f"traceEvents stands inside the value of {excerpt(key) or 'no key'}"
                    )
                    return True
                tail = (tail + text)[-_EVENTS_BYTES:]
            if size < KEPT_BYTES:
                kept.append(text)
            size += len(text)
            if size >= KEPT_BYTES and key:
                if kept:
                    self._large.begin()
                for piece in kept or [text]:
                    self._large.put(piece)
                kept.clear()
            window.at += len(text)
        if ended and not key and not size:
            window.at += 1  # a stray bracket
        if not ended:
            self._tally.add(CUT_SHORT, f"the file ends at byte {window.offset}, inside the value of {excerpt(key)}")
        elif size < KEPT_BYTES:
            self._keep(key, b"".join(kept))
        elif key:
            self.header.pop(key, None)
            self._large.keep(key, window.offset - size)
        if not ended and size >= KEPT_BYTES and key:
            self._large.drop()
        return False

    def _keep(self, key: str, text: bytes) -> None:
        values = readable(text)
        if values is None:
            mended = repaired(text)
            values, kinds = mended or ([], {})
            for kind in kinds:
                self._tally.add(kind, f"in the value of {excerpt(key)}: {excerpt(text)}")
        if len(values) == 1:
            self._large.forget(key)
            self.header[key] = values[0]
        elif key:
            self._tally.add(UNREADABLE_HEADER, f"the value of {excerpt(key)}: {excerpt(text)}")

    def _end(self) -> None:
        window = self._window
        self._skip_space()
        if window.at < len(window.text):
            what = excerpt(window.text[window.at : window.at + 400])
            self._tally.add(TEXT_AFTER_END, f"from byte {window.offset}: {what}")
            self._drain()

    def _drain(self) -> None:
        """Read on to the end, so that what is wrong with the stream is known, and its size."""
        window = self._window
        while not window.ended or window.at < len(window.text):
            window.at = len(window.text)
            window.fill(1)


_KNOWN = {
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


def described(head: bytes) -> str:
    """What a file is that begins like this and is no JSON object or list, in a few words."""
    if not head.strip():
        return "an empty file"
    for magic, words in _KNOWN.items():
        if head.startswith(magic):
            return words
    if b"\0" in head[:4] and head[:4].count(b"\0") == 2:
        return "UTF-16 text; a trace is UTF-8"
    controls = sum(byte < 32 and byte not in b"\t\n\f\r\x1b" for byte in head[:1024])
    if b"\0" in head[:1024] or controls > max(1, len(head[:1024]) // 32):
        return "binary data"
    values = readable(head)
    if values is not None and len(values) == 1:
        return f"the JSON value {excerpt(head)}"
    return f"text that begins with: {excerpt(head[:400])}"
