"""Find where values end in JSON text, and repair the text of a damaged entry so that it parses as JSON.

Known damage: unescaped backslashes of Windows paths, raw control characters, bytes that are not UTF-8, unescaped
quotes in names, a missing quote around a key, NaN and Infinity, extra commas. Two methods are tried: `repair_tokens`
trusts the quotes and repairs the tokens; `repair_quotes` trusts the structure and finds the quotes again. Neither
closes an open bracket, so that part of an entry never passes for a whole one.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import orjson

from torchprof_tui.trace.core.arrays import I64, U8
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.problems import (
    REPAIRED_BACKSLASH,
    REPAIRED_COMMA,
    REPAIRED_CONTROL,
    REPAIRED_ENCODING,
    REPAIRED_NUMBER,
    REPAIRED_QUOTE,
    REPAIRED_SURROGATE,
)
from torchprof_tui.trace.core.records import record


@record
class ScanResult:
    """Offsets of the commas between values, and of the bracket that closes them (-1 for none).

    `depth`, `in_string`: state at the end of the text, from which a scan of the text after it continues.
    """

    commas: I64
    close_offset: int
    depth: int
    in_string: bool


_BLOCK_BYTES = 1 << 20  # bytes scanned at once; the temporary arrays take about ten times as many

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


MAX_REPAIR_BYTES = 4 << 20  # largest piece to repair: real entries are below a few hundred KB, and repairs are slow
MAX_DEPTH = 1024  # nesting depth up to which orjson parses: deeper text cannot be read after any repair
RepairKinds = dict[str, None]  # kinds of the repairs made: an ordered set


def parse_values(text: bytes) -> list[Any] | None:
    """Parse comma-separated JSON values; returns None if the text does not parse."""
    try:
        values: list[Any] = orjson.loads(b"[%b]" % text)
    except orjson.JSONDecodeError:
        return None
    return values


_NON_ASCII_BYTES = bytes(range(128, 256))


def is_truncated(text: bytes) -> bool:
    """Tell whether the text is the valid beginning of a value."""
    try:
        orjson.loads(text.rstrip(_NON_ASCII_BYTES))  # the end may cut a UTF-8 character
    except orjson.JSONDecodeError as error:
        return error.msg == "unexpected end of data"
    return False


def repair_piece(piece: bytes) -> tuple[list[Any], RepairKinds] | None:
    """Repair a piece of text that does not parse: its values and the kinds of repair, or None if it cannot be read."""
    if len(piece) > MAX_REPAIR_BYTES:
        return None
    text = f"[{piece.decode('utf-8', 'surrogateescape')}]"
    for repair in (repair_tokens, repair_quotes):
        kinds: RepairKinds = {}
        fixed = repair(text, kinds)
        if fixed is None:
            continue
        values = parse_values(escape_invalid_bytes(fixed, kinds).encode()[1:-1])
        if values is not None:
            return values, kinds
    return None


_UNDECODED_BYTE = compile_later(r"[\ud800-\udfff]")


def escape_invalid_bytes(text: str, kinds: RepairKinds) -> str:
    """Replace bytes that are not UTF-8 (decoded as surrogates) by the four characters `\\xNN`, escaped for JSON."""
    if not _UNDECODED_BYTE.search(text):
        return text
    kinds[REPAIRED_ENCODING] = None
    return _UNDECODED_BYTE.sub(lambda match: f"\\\\x{ord(match.group()) & 0xFF:02x}", text)


_VALID_ESCAPES = compile_later(r'[^\\]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^\\]*)*')
_SUSPECT = compile_later(r"[\\\x00-\x1f]")
_CONTROL = compile_later(r"[\x00-\x1f]")
_LONE_SURROGATE = compile_later(
    r"\\\\"  # an escaped backslash: the text after it is literal
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole pair
    r"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def repair_string(body: str, kinds: RepairKinds) -> str:
    """Repair the text between two quotes."""
    if not _SUSPECT.search(body):
        return body
    if not _VALID_ESCAPES.fullmatch(body):
        # One invalid escape shows that the writer did not escape backslashes: `C:\new\x` is a path, although `\n`
        # alone would be a line break. Only `\"` keeps its meaning.
        kinds[REPAIRED_BACKSLASH] = None
        body = re.sub(r'\\(?!")', r"\\\\", body)
    if _CONTROL.search(body):  # line breaks and tabs, too
        kinds[REPAIRED_CONTROL] = None
        body = _CONTROL.sub(lambda match: f"\\u{ord(match.group()):04x}", body)

    # Replace lone halves of surrogate pairs by U+FFFD.
    def replace(match: re.Match[str]) -> str:
        if not match.group(1):
            return match.group()
        kinds[REPAIRED_SURROGATE] = None
        return "\\ufffd"

    return _LONE_SURROGATE.sub(replace, body)


_NOT_FINITE = r"[-+]?(?:nan|inf(?:inity)?|1\.#\w+)(?:\(\w*\))?|-?\d+(?:\.\d+)?e\+?\d{3,}|-?\d{309,}(?:\.\d+)?"
_NOT_FINITE_WORD = compile_later(_NOT_FINITE, re.IGNORECASE)
_TOKEN = compile_later(
    # A string without an end is matched up to the end of the text: tried again at each quote in it, it would cost the
    # square of its length.
    rf'"(?P<string>[^"\\]*(?:\\.[^"\\]*)*)(?P<end>"?)|(?P<number>(?<![\w.])(?:{_NOT_FINITE})(?![\w.]))|(?P<comma>,(?=\s*[,\]}}]))',
    re.DOTALL | re.IGNORECASE,
)


def repair_tokens(text: str, kinds: RepairKinds) -> str:
    """Repair strings, numbers and commas in place, trusting the quotes."""

    def replace(match: re.Match[str]) -> str:
        if match["string"] is not None:
            if not match["end"]:
                return match[0]  # the string has no end, so the text does not parse
            return f'"{repair_string(match["string"], kinds)}"'
        if match["comma"] is not None:
            kinds[REPAIRED_COMMA] = None
            return ""
        kinds[REPAIRED_NUMBER] = None
        return "null"

    return _TOKEN.sub(replace, text)


_SPACE = compile_later(r"\s*")
_WORD = compile_later(r'[^\s,:{}\[\]"]+')
_KEY = compile_later(r'"([^"\\\n]*)"\s*:')
_KEY_MISSING_A_QUOTE = compile_later(r'"?(?P<key>[A-Za-z_][\w .%/()#-]*)(?P<quote>"?)\s*')  # then a colon; see below
_NEXT_KEY = r'(?:"[^"\\\n]*"|[A-Za-z_][\w .%/()#-]*")\s*:'
_ENDS_IN_OBJECT = compile_later(rf'"\s*(?:,+\s*{_NEXT_KEY}|(?:,+\s*)?\}}\s*[,}}\]])')
_ENDS_IN_LIST = compile_later(r'"\s*(?:,+\s*(?:["\[{\d-]|true|false|null|nan|inf)|(?:,+\s*)?\])', re.IGNORECASE)
_KEY_INSIDE_STRING = compile_later(r',\s*"[^"\\\n]*"\s*:')  # a string that contains further keys lost its closing quote
_BARE_QUOTE = compile_later(r'\\.|(")', re.DOTALL)


def repair_quotes(text: str, kinds: RepairKinds) -> str | None:
    """Find the strings again: a quote ends a string only if valid structure follows it.

    So `"aten::"mm"", "pid": 1` holds a name with quotes in it. Returns None if no valid structure is found.
    """
    return _QuoteRepairer(text, kinds).run()


class _QuoteRepairer:
    """One pass through the text. `_open_brackets`: the brackets around the current offset.

    The parsing methods return what is expected next ("value", "only value", "key", "comma" or "end"), or None if the
    structure is invalid.
    """

    def __init__(self, text: str, kinds: RepairKinds) -> None:
        self._text = text
        self._kinds = kinds
        self._offset = 0
        self._open_brackets: list[str] = []
        self._output: list[str] = []

    def run(self) -> str | None:
        expected = "value"
        while self._skip_space():
            if expected == "end":
                return None  # more text after the outermost bracket
            char = self._text[self._offset]
            if expected != "comma":
                following = self._parse_before_value(expected)
            elif char != ",":
                following = self._close_bracket(char)
            else:
                self._emit(",", self._offset + 1)
                following = "key" if self._open_brackets[-1] == "{" else "value"
            if following is None:
                return None
            expected = following
        return "".join(self._output) if expected == "end" else None

    def _skip_space(self) -> bool:
        match = _SPACE.match(self._text, self._offset)
        self._offset = match.end() if match else self._offset
        return self._offset < len(self._text)

    def _emit(self, text: str, end: int) -> None:
        self._output.append(text)
        self._offset = end

    def _close_bracket(self, char: str) -> str | None:
        if not self._open_brackets or char != {"{": "}", "[": "]"}[self._open_brackets[-1]]:
            return None
        if self._output[-1] == ",":
            self._output.pop()
            self._kinds[REPAIRED_COMMA] = None
        self._open_brackets.pop()
        self._emit(char, self._offset + 1)
        return "comma" if self._open_brackets else "end"

    def _parse_before_value(self, expected: str) -> str | None:
        char = self._text[self._offset]
        if expected != "only value":  # as after the colon of a key
            if char == ",":  # an extra comma
                self._kinds[REPAIRED_COMMA] = None
                self._offset += 1
                return expected
            if char in "}]":
                return self._close_bracket(char)
        if expected == "key":
            return self._parse_key()
        if char in "{[":
            if len(self._open_brackets) > MAX_DEPTH:
                return None
            self._open_brackets.append(char)
            self._emit(char, self._offset + 1)
            return "key" if char == "{" else "value"
        return self._parse_string() if char == '"' else self._parse_word()

    def _parse_key(self) -> str | None:
        match = _KEY.match(self._text, self._offset)
        if match:
            key, end = match[1], match.end()
        else:
            match = _KEY_MISSING_A_QUOTE.match(self._text, self._offset)
            # A colon in the expression would have each shorter key tried, with all white space after it.
            if not match or not self._text.startswith(":", match.end()):
                return None
            key = match["key"] if match["quote"] else match["key"].rstrip(" ")
            end = match.end() + 1
            self._kinds[REPAIRED_QUOTE] = None
        self._emit(f'"{repair_string(key, self._kinds)}":', end)
        return "only value"

    def _parse_string(self) -> str | None:
        ends = _ENDS_IN_OBJECT if self._open_brackets[-1:] == ["{"] else _ENDS_IN_LIST
        match = ends.search(self._text, self._offset + 1)
        if not match or _KEY_INSIDE_STRING.search(self._text, self._offset + 1, match.start()):
            return None
        body = repair_string(self._text[self._offset + 1 : match.start()], self._kinds)
        self._emit(f'"{_BARE_QUOTE.sub(self._escape_quote, body)}"', match.start() + 1)
        return "comma"

    def _escape_quote(self, match: re.Match[str]) -> str:
        if not match[1]:
            return match[0]
        self._kinds[REPAIRED_QUOTE] = None
        return '\\"'

    def _parse_word(self) -> str | None:
        match = _WORD.match(self._text, self._offset)
        if not match:
            return None
        word = match[0]
        if _NOT_FINITE_WORD.fullmatch(word):
            self._kinds[REPAIRED_NUMBER] = None
            word = "null"
        self._emit(word, match.end())
        return "comma"
