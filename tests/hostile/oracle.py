"""Check what must hold of everything that a session prints, shows or writes. A `FindingError` reports what does not."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from typing import NoReturn
from xml.etree import ElementTree

from tests.helpers.json_schemas import find_violation

MAX_ERROR_LINES = 12
"""Lines on stderr: one for the error, one for each part of a run that is missing."""

_RAW = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that act on a terminal, or reorder or break its lines."""


class FindingError(AssertionError):
    """A fault of the program, in one line."""


def check_text(text: str, where: str) -> None:
    """Text for a terminal or a file: no control characters besides line breaks."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return
    for offset, character in enumerate(text):
        if character != "\n" and unicodedata.category(character) in _RAW:
            around = text[max(offset - 40, 0) : offset + 20]
            raise FindingError(f"{character!r} in {where}: {around!r}")


def check_strips(lines: Iterable[str]) -> None:
    """Lines on the screen: no control characters at all, which would move the terminal's cursor."""
    for number, line in enumerate(lines):
        check_text(line.replace("\n", "\0"), f"line {number} of the screen")


def check_errors(text: str, status: int) -> None:
    """What stderr says: a few lines, no traceback; one of them if the call was refused."""
    check_text(text, "stderr")
    lines = text.splitlines()
    if any(line.startswith(("Traceback", "  File ")) for line in lines):
        raise FindingError(f"a traceback on stderr: {lines[-1]}")
    if len(lines) > MAX_ERROR_LINES:
        raise FindingError(f"{len(lines)} lines on stderr, the first: {lines[0]}")
    if status == 2 and not lines:
        raise FindingError("refused without a word")


def check_status(status: object) -> None:
    """Exit statuses: done, "no", refused, interrupted."""
    if status not in (0, 1, 2, 130):
        raise FindingError(f"exit status {status}")


def check_json(text: str) -> None:
    """JSON for another program: one document of the schema that it names, without NaN."""
    try:
        answer = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise FindingError(f"no JSON: {error}: {text[:80]!r}") from error
    if not isinstance(answer, dict) or "schema" not in answer:
        raise FindingError(f"JSON that names no schema: {text[:80]!r}")
    if violation := find_violation(answer):
        raise FindingError(f"JSON that is not of its schema: {violation}")


def check_svg(text: str) -> None:
    """A picture: well-formed, without control characters."""
    check_text(text, "an SVG")
    try:
        ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise FindingError(f"an SVG that is no XML: {error}") from error


def _refuse_constant(word: str) -> NoReturn:
    raise FindingError(f"{word} in JSON")
