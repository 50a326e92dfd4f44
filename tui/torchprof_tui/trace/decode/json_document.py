"""Parse the top level of a trace file: where its list of entries begins, its other keys; and describe other files.

Of a file that is no trace, its content tells what it is and which command turns it into one. Only the name tells some
reports of Nsight Systems apart; it is looked at last, and for binary data alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from torchprof_tui.trace.core.bounded_json import is_nested_too_deeply, limit_nesting
from torchprof_tui.trace.core.errors import NOT_A_TRACE, TraceError, quote_file
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.problems import (
    CUT_SHORT,
    NESTED_TOO_DEEPLY,
    TEXT_AFTER_END,
    UNREADABLE_HEADER,
    ProblemTally,
    excerpt,
)
from torchprof_tui.trace.decode.entry_decoder import TextWindow
from torchprof_tui.trace.json_text.repair import parse_values, repair_piece, scan_structure
from torchprof_tui.trace.text.large_values import LargeValueWriter

_PROBED_BYTES, _SIGN_BYTES = 4096, 256  # bytes in which the words of a format are looked for
_SAMPLED_BYTES = 1024  # bytes that tell text from binary data

NSIGHT_REPORT = "a report of Nsight Systems; nsys export --type sqlite FILE writes one that opens"
_NSIGHT_STREAM = (
    "a stream of Nsight Systems that was not imported; QdstrmImporter -i FILE writes a report, and "
    "nsys export --type sqlite a file that opens"
)
_NCU_REPORT = (
    "a report of Nsight Compute, which has metrics of single kernels and no timeline; ncu --import FILE prints it"
)
_XPLANE = (
    "an XPlane protobuf of JAX or TensorFlow; the .trace.json.gz beside it opens, and "
    "jax.profiler.start_trace(…, create_perfetto_trace=True) writes another that does"
)
_MEMORY_SNAPSHOT = (
    "a memory snapshot of torch.cuda.memory; torchprof-tui FILE shows it, torchprof-tui memory FILE prints it, and a "
    "trace recorded with profile_memory=True opens here (M: the memory screen)"
)
_SPEEDSCOPE = "a profile for speedscope.app, which shows it; py-spy record --format chrometrace writes one that opens"
_CHAKRA = (
    "a Chakra execution trace, which has operators without times; prof.export_chrome_trace() writes a trace that opens"
)
_MEMORY_TIMELINE = "a page of export_memory_timeline(); prof.export_chrome_trace() writes a trace that opens"

_MAGIC = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"BZh": "bzip2 data; unpack it first",
    b"\x1f\x8b": "gzip data compressed twice; unpack it once",
    b"SQLite format 3": "an SQLite database, as Nsight Systems exports, which opens as a plain file on this machine",
    b"NVR\0": _NCU_REPORT,
    b"NVP\0": _NCU_REPORT,
    b"\xff\xfe": "UTF-16 text; convert it to UTF-8",
    b"\xfe\xff": "UTF-16 text; convert it to UTF-8",
}

_NSIGHT_SIGN = compile_later(rb"NVIDIA (?:Nsight Systems|Tegra System Profiler)( Stream)?|QuadD")

_PLANE = compile_later(
    rb"\x0a[\x80-\xff]{0,9}[\x00-\x7f]"  # XSpace.planes, and its size
    rb"(?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?"  # XPlane.id, left out where it is 0
    rb"\x12[\x01-\x7f](?:/host:|/device:|#Chip|Task Environment)",  # XPlane.name
    re.DOTALL,
)

_CHAKRA_METADATA = compile_later(rb"[\x04-\x7f]\x0a[\x03-\x20][0-9]+\.[0-9]+\.[0-9]+")
"""The first message of a Chakra protobuf: its size, then the version."""

_PICKLE = compile_later(rb"\x80[\x02-\x05]")
_SNAPSHOT_KEYS = (b"device_traces", b"segments", b"external_annotations")

_REPORT_NAME = compile_later(r"\.(?:nsys-rep|qdrep)$", re.IGNORECASE)


def describe_file(head: bytes, name: str = "") -> str:
    """Describe in a few words a file that begins with `head` and is not a JSON object or list."""
    if not head.strip():
        return "an empty file"
    known = _describe_magic(head[:_PROBED_BYTES])
    if known:
        return known
    if head[:4].count(b"\0") == 2:
        return "UTF-16 text; convert it to UTF-8"
    sample = head[:_SAMPLED_BYTES]
    controls = sum(byte < 32 and byte not in b"\t\n\f\r\x1b" for byte in sample)
    if b"\0" in sample or controls > max(1, len(sample) // 32):
        return NSIGHT_REPORT if _REPORT_NAME.search(name) else "binary data"
    values = parse_values(head)
    if values is not None and len(values) == 1:
        return quote_file(f"the JSON value {excerpt(head)}", "a JSON value")
    return quote_file(f"text that begins with: {excerpt(head[:400])}", "text")


def describe_object(keys: Collection[str], header: Mapping[str, Any]) -> str:
    """Describe a JSON object without traceEvents by its first keys and their values; "" where it is unknown."""
    if "speedscope" in str(header.get("$schema", "")) or {"shared", "profiles"} <= set(keys):
        return _SPEEDSCOPE
    if "chakra" in str(header.get("schema", "")) or {"schema", "nodes"} <= set(keys):
        return _CHAKRA
    if {"segments", "device_traces"} <= set(keys):
        return _MEMORY_SNAPSHOT
    return ""


def _describe_magic(head: bytes) -> str:
    for magic, description in _MAGIC.items():
        if head.startswith(magic):
            return description
    if _PICKLE.match(head):
        is_snapshot = any(key in head for key in _SNAPSHOT_KEYS)
        return _MEMORY_SNAPSHOT if is_snapshot else "a Python pickle, which is not read, as it could run any code"
    if head.startswith(b"<"):
        return _MEMORY_TIMELINE if b"data:image/png;base64" in head else "a page of HTML or XML"
    sign = _NSIGHT_SIGN.search(head[:_SIGN_BYTES]) if b"{" not in head[:2] else None
    if sign is not None:
        return _NSIGHT_STREAM if sign[1] else NSIGHT_REPORT
    if is_xplane(head):
        return _XPLANE
    return _CHAKRA if _CHAKRA_METADATA.match(head) else ""


def is_xplane(head: bytes) -> bool:
    """Tell whether a file begins with a plane of an XPlane protobuf; Perfetto's packets have the same outer field."""
    return _PLANE.match(head) is not None


MAX_HEADER_VALUE_BYTES = 64 * 1024
"""Header values of less text are held in memory; of larger ones (stack tables, samples) only the position."""

_LOOKAHEAD_BYTES = 16 * 1024  # bytes that are examined to identify a file, and to find a key

MAX_KEYS = 4096
"""Top-level keys that are parsed; real files have some thirty. After those only traceEvents is searched for."""

_MAX_LISTED_KEYS = 8  # keys that the error names for an object that is not a trace

_SCAN_SIZES = (1024, 16 * 1024, 256 * 1024)
"""Bytes of a value that are scanned at a time: most end within the first, few need more."""

_SEPARATORS = compile_later(rb"[\s,]*")
_KEY = compile_later(rb'"((?:[^"\\]|\\.){0,4096})"\s*:\s*', re.DOTALL)
_TRUNCATED_KEY = compile_later(rb'"(?:[^"\\]|\\.)*\\?(?:"\s*)?', re.DOTALL)
_TRACE_EVENTS_KEY = compile_later(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_TRACE_EVENTS_OVERLAP = 64  # bytes at the end of a block that may belong to a match in the next one


class JsonDocument:
    """Parses the top level of the text in `window`; `name` is the name that the user gave the file.

    `is_bare_list`: the file is the list itself, without an object around it. `json_like`: the file begins as a trace
    does, or nothing of it could be read. `header`: other keys and their values; values too large to hold in memory go
    to `large`.
    """

    def __init__(self, window: TextWindow, name: str, tally: ProblemTally, large: LargeValueWriter) -> None:
        self.is_bare_list = False
        self.json_like = False
        self.header: dict[str, Any] = {}
        self._large_keys = large
        self._window = window
        self._name = name
        self._tally = tally
        self._has_list = False
        self._listed_keys: list[str] = []
        self._key_count = 0

    def not_a_trace_error(self, description: str) -> TraceError:
        return TraceError(f"{self._name}: {NOT_A_TRACE}, but {description}")

    def seek_lists(self) -> Iterator[None]:
        """Yield whenever the window is after the bracket that opens a list of entries.

        The caller decodes the list before it resumes the iterator. All but strange files have one list. Raises
        TraceError where there is none.
        """
        window = self._window
        window.fill(_LOOKAHEAD_BYTES)
        if window.text.startswith(b"\xef\xbb\xbf"):
            window.position = 3
        self._skip_space()
        first = self._peek_byte()
        self.json_like = first in (b"{", b"[", b"")
        if first == b"[":
            self.is_bare_list = True
            self._window.position += 1
            yield
            self._check_trailing_text()
            return
        if first != b"{":
            raise self.not_a_trace_error(describe_file(self._window.text, self._name))
        self._window.position += 1
        while (key := self._read_key()) is not None:
            if key == "traceEvents" and self._peek_byte() == b"[":
                self._window.position += 1
            elif self._key_count > MAX_KEYS:
                if not self._skip_to_events():
                    break
            elif not self._read_value(key):
                continue
            self._has_list = True
            yield
        if not self._has_list:
            if not self._listed_keys:
                raise self.not_a_trace_error("an empty object")
            if "traceEvents" in self._listed_keys:
                raise self.not_a_trace_error("a JSON object whose traceEvents is not a list")
            known = describe_object(self._listed_keys, self.header)
            if known:
                raise self.not_a_trace_error(known)
            keys = quote_file(f" (keys: {excerpt(', '.join(self._listed_keys))})")
            raise self.not_a_trace_error(f"a JSON object without traceEvents{keys}")

    def _peek_byte(self) -> bytes:
        self._window.fill(1)
        return self._window.text[self._window.position : self._window.position + 1]

    def _skip_space(self) -> None:
        window = self._window
        while True:
            window.fill(_LOOKAHEAD_BYTES)
            found = _SEPARATORS.match(window.text, window.position)
            window.position = found.end() if found else window.position
            if window.position < len(window.text) or window.ended:
                return

    def _read_key(self) -> str | None:
        """Read the next key, with the window before its value; None after the last one."""
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
        if self._has_list and window.ended and _TRUNCATED_KEY.fullmatch(window.text, window.position):
            self._tally.add(CUT_SHORT, f"the file ends at byte {window.base + len(window.text)}, inside a key")
            window.position = len(window.text)
            return None
        where = f"at byte {window.offset}"
        if not self._has_list:
            if window.ended and _TRUNCATED_KEY.fullmatch(window.text, window.position):
                raise TraceError(
                    f"{self._name}: cut short after {window.base + len(window.text):,} bytes of text, "
                    "before its first event"
                )
            if window.position <= 16 and not _TRACE_EVENTS_KEY.search(window.text):
                raise self.not_a_trace_error(describe_file(window.text, self._name))
            self._tally.add(UNREADABLE_HEADER, where)
            return ""  # what follows, up to traceEvents, is read as the value of no key
        self._tally.add(UNREADABLE_HEADER, where)
        self._drain()
        return None

    def _skip_to_events(self) -> bool:
        """Move the window after the bracket of the next traceEvents, or to the end of the file where there is none.

        True if it was found.
        """
        window = self._window
        if self._has_list:
            self._tally.add(
                UNREADABLE_HEADER, f"more than {MAX_KEYS} keys: the keys after byte {window.offset} are lost"
            )
            self._drain()
            return False
        self._tally.add(
            UNREADABLE_HEADER, f"more than {MAX_KEYS} keys: after byte {window.offset} only traceEvents was read"
        )
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
        """Read the value of a key. True if a list of entries was found inside: the window is then inside that list.

        That happens where damage hides the end of the value, and in files that hold a trace within something else.
        """
        window = self._window
        value = _ValueBuffer(self._large_keys if key else None)
        tail = b""
        ended = False
        for text, is_last in _scan_value(window):
            if not self._has_list:
                nested = _TRACE_EVENTS_KEY.search(tail + text)
                if nested:
                    window.position += nested.end() - len(tail)
                    value.discard()
                    self._tally.add(UNREADABLE_HEADER, f"traceEvents is inside the value of {excerpt(key) or 'no key'}")
                    return True
                tail = (tail + text)[-_TRACE_EVENTS_OVERLAP:]
            value.append(text)
            window.position += len(text)
            ended = is_last
        if ended and not key and not value.size:
            window.position += 1  # a stray bracket
        if not ended:
            self._tally.add(CUT_SHORT, f"the file ends at byte {window.offset}, inside the value of {excerpt(key)}")
            value.discard()
        elif not value.is_large:
            self._store_value(key, value.text)
        elif key:
            self.header.pop(key, None)
            self._large_keys.commit_value(key, window.offset - value.size)
        return False

    def _store_value(self, key: str, text: bytes) -> None:
        values = parse_values(text)
        if values is None:
            values, kinds = repair_piece(text) or ([], {})
            for kind in kinds:
                self._tally.add(kind, f"in the value of {excerpt(key)}")
        if len(values) == 1:
            self._large_keys.remove_key(key)
            value = values[0]
            if is_nested_too_deeply(value):
                self._tally.add(NESTED_TOO_DEEPLY, f"in the value of {excerpt(key)}")
                value = limit_nesting(value)
            self.header[key] = value
        elif key:
            self._tally.add(UNREADABLE_HEADER, f"the value of {excerpt(key)}")

    def _check_trailing_text(self) -> None:
        window = self._window
        self._skip_space()
        if window.position < len(window.text):
            example = excerpt(window.text[window.position : window.position + 400])
            self._tally.add(TEXT_AFTER_END, f"from byte {window.offset}: {example}")
            self._drain()

    def _drain(self) -> None:
        """Read to the end, to learn the size of the stream and whether it is damaged."""
        window = self._window
        while not window.ended or window.position < len(window.text):
            window.position = len(window.text)
            window.fill(1)


def _scan_value(window: TextWindow) -> Iterator[tuple[bytes, bool]]:
    """Yield the text of the value at the window piece by piece, and whether a piece is its last.

    The caller moves the window past each piece. A value that the file does not finish has no last piece.
    """
    step = depth = 0
    in_string = ended = False
    while not ended:
        window.fill(_SCAN_SIZES[step] + 1)
        text = window.text[window.position : window.position + _SCAN_SIZES[step]]
        step = min(step + 1, len(_SCAN_SIZES) - 1)
        if not text:
            return
        text = text.rstrip(b"\\") or text  # an escape must not be divided between two pieces
        structure = scan_structure(text, depth, in_string)
        depth, in_string = structure.depth, structure.in_string
        end = int(structure.commas[0]) if len(structure.commas) else structure.close_offset
        ended = end >= 0
        yield text[:end] if ended else text, ended


class _ValueBuffer:
    """The text of one header value: in memory while it is small, then in `large`; None: large text is dropped."""

    def __init__(self, large: LargeValueWriter | None) -> None:
        self.size = 0
        self._large = large
        self._pieces: list[bytes] = []

    @property
    def is_large(self) -> bool:
        return self.size >= MAX_HEADER_VALUE_BYTES

    @property
    def text(self) -> bytes:
        """All of a value that is not large."""
        return b"".join(self._pieces)

    def append(self, text: bytes) -> None:
        if not self.is_large:
            self._pieces.append(text)
        self.size += len(text)
        if self.is_large and self._large is not None:
            if self._pieces:
                self._large.begin_value()
            for piece in self._pieces or [text]:
                self._large.write(piece)
            self._pieces.clear()

    def discard(self) -> None:
        """Remove what was written of an unfinished value."""
        if self.is_large and self._large is not None:
            self._large.discard_value()
