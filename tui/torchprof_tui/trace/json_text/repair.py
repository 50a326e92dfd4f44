"""Mends the text of one damaged entry, so that a JSON parser takes it.

Writers have produced: backslashes of Windows paths, control characters and bytes that are not UTF-8 left as they
were, quotes inside names, keys without a quote, NaN and Infinity, commas too many. Two ways are tried: `respelled`
trusts the quotes and mends what stands between them; `requoted` trusts the structure and finds the quotes anew.
Nothing here closes what is open: a piece of an entry never passes for a whole one.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from torchprof_tui.trace.core.problems import (
    REPAIRED_BACKSLASH,
    REPAIRED_COMMA,
    REPAIRED_CONTROL,
    REPAIRED_ENCODING,
    REPAIRED_NUMBER,
    REPAIRED_QUOTE,
    REPAIRED_SURROGATE,
)

MAX_REPAIR_BYTES = 4 << 20
"""Bytes of an entry that is worth a repair: real ones are below a few hundred KB, and repairs are slow."""

MAX_DEPTH = 1024
"""Brackets within each other that orjson follows: what lies deeper no repair makes readable."""

RepairKinds = dict[str, None]
"""The kinds of repair that were made: a set that keeps its order."""


def parse_values(text: bytes) -> list[Any] | None:
    """The values that stand in the text, commas between them; None where it does not parse."""
    try:
        values: list[Any] = orjson.loads(b"[%b]" % text)
    except orjson.JSONDecodeError:
        return None
    return values


_NON_ASCII_BYTES = bytes(range(128, 256))


def is_truncated(text: bytes) -> bool:
    """Whether the text is the beginning of a value, without fault as far as it goes."""
    try:
        orjson.loads(text.rstrip(_NON_ASCII_BYTES))  # half a character is no fault here
    except orjson.JSONDecodeError as error:
        return error.msg == "unexpected end of data"
    return False


def repair_piece(piece: bytes) -> tuple[list[Any], RepairKinds] | None:
    """The values of a piece of text that does not parse, and the kinds of repair that it took; None if hopeless."""
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


_UNDECODED_BYTE = re.compile(r"[\ud800-\udfff]")


def escape_invalid_bytes(text: str, kinds: RepairKinds) -> str:
    """Bytes that were no UTF-8 (held as surrogates) as the four characters `\\xNN`, escaped for JSON."""
    if not _UNDECODED_BYTE.search(text):
        return text
    kinds[REPAIRED_ENCODING] = None
    return _UNDECODED_BYTE.sub(lambda found: f"\\\\x{ord(found.group()) & 0xFF:02x}", text)


_VALID_ESCAPES = re.compile(r'[^\\]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^\\]*)*')
_SUSPECT = re.compile(r"[\\\x00-\x1f]")
_CONTROL = re.compile(r"[\x00-\x1f]")
_LONE_SURROGATE = re.compile(
    r"\\\\"  # an escaped backslash: what follows is text
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole pair
    r"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def repair_string(body: str, kinds: RepairKinds) -> str:
    """What stands between two quotes, as JSON wants it."""
    if not _SUSPECT.search(body):
        return body
    body = repair_backslashes(body, kinds)
    body = repair_control_characters(body, kinds)
    return repair_surrogates(body, kinds)


def repair_backslashes(body: str, kinds: RepairKinds) -> str:
    """One wrong escape shows that the writer escaped nothing: then every backslash is meant as such.

    `C:\\new\\x` is a path, although `\\n` alone would be a line break. Only `\\"` keeps its meaning.
    """
    if _VALID_ESCAPES.fullmatch(body):
        return body
    kinds[REPAIRED_BACKSLASH] = None
    return re.sub(r'\\(?!")', r"\\\\", body)


def repair_control_characters(body: str, kinds: RepairKinds) -> str:
    """Control characters, line breaks and tabs included, may only be written as escapes."""
    if not _CONTROL.search(body):
        return body
    kinds[REPAIRED_CONTROL] = None
    return _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", body)


def repair_surrogates(body: str, kinds: RepairKinds) -> str:
    """Half of a pair names no character."""

    def mend(found: re.Match[str]) -> str:
        if not found.group(1):
            return found.group()
        kinds[REPAIRED_SURROGATE] = None
        return "\\ufffd"

    return _LONE_SURROGATE.sub(mend, body)


_NOT_FINITE = r"[-+]?(?:nan|inf(?:inity)?|1\.#\w+)(?:\(\w*\))?|-?\d+(?:\.\d+)?e\+?\d{3,}|-?\d{309,}(?:\.\d+)?"
_NOT_FINITE_WORD = re.compile(_NOT_FINITE, re.IGNORECASE)
_TOKEN = re.compile(
    rf'"(?P<string>[^"\\]*(?:\\.[^"\\]*)*)"|(?P<number>(?<![\w.])(?:{_NOT_FINITE})(?![\w.]))|(?P<comma>,(?=\s*[,\]}}]))',
    re.DOTALL | re.IGNORECASE,
)


def repair_tokens(text: str, kinds: RepairKinds) -> str:
    """Strings, numbers and commas mended where they stand; the quotes are taken to be right."""

    def mend(found: re.Match[str]) -> str:
        if found["string"] is not None:
            return f'"{repair_string(found["string"], kinds)}"'
        if found["comma"] is not None:
            kinds[REPAIRED_COMMA] = None
            return ""
        kinds[REPAIRED_NUMBER] = None
        return "null"

    return _TOKEN.sub(mend, text)


_SPACE = re.compile(r"\s*")
_WORD = re.compile(r'[^\s,:{}\[\]"]+')
_KEY = re.compile(r'"([^"\\\n]*)"\s*:')
_KEY_MISSING_A_QUOTE = re.compile(r'"?([A-Za-z_][\w .%/()#-]*?)"?\s*:')
_NEXT_KEY = r'(?:"[^"\\\n]*"|[A-Za-z_][\w .%/()#-]*")\s*:'
_ENDS_IN_OBJECT = re.compile(rf'"\s*(?:,+\s*{_NEXT_KEY}|,*\s*\}}\s*[,}}\]])')
_ENDS_IN_LIST = re.compile(r'"\s*(?:,+\s*(?:["\[{\d-]|true|false|null|nan|inf)|,*\s*\])', re.IGNORECASE)
_KEY_INSIDE_STRING = re.compile(r',\s*"[^"\\\n]*"\s*:')  # a string that holds the keys after it has lost its end
_BARE_QUOTE = re.compile(r'\\.|(")', re.DOTALL)


def repair_quotes(text: str, kinds: RepairKinds) -> str | None:
    """The text with its strings found anew: a quote ends a string only where the structure goes on after it.

    So `"aten::"mm"", "pid": 1` holds a name with quotes in it. None where no structure is found.
    """
    return _QuoteRepairer(text, kinds).run()


class _QuoteRepairer:
    """One walk through the text: `_open` holds the brackets around the place."""

    def __init__(self, text: str, kinds: RepairKinds) -> None:
        self._text = text
        self._kinds = kinds
        self._offset = 0
        self._open_brackets: list[str] = []
        self._output: list[str] = []

    def run(self) -> str | None:
        wants = "value"
        while self._skip_space():
            if wants == "end":
                return None  # more text after the outermost bracket
            going_on = self._parse_after_value() if wants == "comma" else self._parse_before_value(wants)
            if going_on is None:
                return None
            wants = going_on
        return "".join(self._output) if wants == "end" else None

    def _skip_space(self) -> bool:
        found = _SPACE.match(self._text, self._offset)
        self._offset = found.end() if found else self._offset
        return self._offset < len(self._text)

    def _emit(self, text: str, end: int) -> None:
        self._output.append(text)
        self._offset = end

    def _parse_after_value(self) -> str | None:
        char = self._text[self._offset]
        if char == ",":
            self._emit(",", self._offset + 1)
            return "key" if self._open_brackets[-1] == "{" else "value"
        return self._close_bracket(char)

    def _close_bracket(self, char: str) -> str | None:
        if not self._open_brackets or char != {"{": "}", "[": "]"}[self._open_brackets[-1]]:
            return None
        self._drop_comma()
        self._open_brackets.pop()
        self._emit(char, self._offset + 1)
        return "comma" if self._open_brackets else "end"

    def _drop_comma(self) -> None:
        if self._output[-1] == ",":
            self._output.pop()
            self._kinds[REPAIRED_COMMA] = None

    def _parse_before_value(self, wants: str) -> str | None:
        char = self._text[self._offset]
        if wants != "only value":  # which is what follows a key's colon
            if char == ",":  # a second one
                self._kinds[REPAIRED_COMMA] = None
                self._offset += 1
                return wants
            if char in "}]":
                return self._close_bracket(char)
        if wants == "key":
            return self._parse_key()
        if char in "{[":
            if len(self._open_brackets) > MAX_DEPTH:
                return None
            self._open_brackets.append(char)
            self._emit(char, self._offset + 1)
            return "key" if char == "{" else "value"
        return self._parse_string() if char == '"' else self._parse_word()

    def _parse_key(self) -> str | None:
        found = _KEY.match(self._text, self._offset)
        if not found:
            found = _KEY_MISSING_A_QUOTE.match(self._text, self._offset)
            if not found:
                return None
            self._kinds[REPAIRED_QUOTE] = None
        self._emit(f'"{repair_string(found[1], self._kinds)}":', found.end())
        return "only value"

    def _parse_string(self) -> str | None:
        ends = _ENDS_IN_OBJECT if self._open_brackets[-1:] == ["{"] else _ENDS_IN_LIST
        found = ends.search(self._text, self._offset + 1)
        if not found or _KEY_INSIDE_STRING.search(self._text, self._offset + 1, found.start()):
            return None
        body = repair_string(self._text[self._offset + 1 : found.start()], self._kinds)
        self._emit(f'"{_BARE_QUOTE.sub(self._escape_quote, body)}"', found.start() + 1)
        return "comma"

    def _escape_quote(self, found: re.Match[str]) -> str:
        if not found[1]:
            return found[0]
        self._kinds[REPAIRED_QUOTE] = None
        return '\\"'

    def _parse_word(self) -> str | None:
        found = _WORD.match(self._text, self._offset)
        if not found:
            return None
        word = found[0]
        if _NOT_FINITE_WORD.fullmatch(word):
            self._kinds[REPAIRED_NUMBER] = None
            word = "null"
        self._emit(word, found.end())
        return "comma"
