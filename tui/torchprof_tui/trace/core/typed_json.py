"""Decode small JSON files and lines into typed values, within limits.

Every small file that the program reads (a run's manifest and request, status messages, the recent traces) comes from a
disk or a process that anyone may have written to. Such input becomes a value of a declared msgspec type, or one
UnreadableFileError with a reason for the screen: no other error, and no untyped value.

Limits: bytes (checked before decoding), nesting (msgspec's own limit), lengths of texts and lists (in the types),
finite numbers (JSON has no others, and larger ones are refused). Unknown fields are ignored.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from torchprof_tui.trace.core.errors import UnreadableFileError
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.printable import clean

MAX_TEXT = 4096  # characters of a path or word; Linux's own limit of a path
MAX_WORDS = 4096  # words of a command line
MAX_UNIX_SECONDS = 2.0**33  # latest plausible time, seconds since the epoch: the year 2242

# Python's functions raise ValueError for a path with a NUL, and for one with surrogates other than those that stand
# for the bytes 0x80 to 0xff (os.fsencode).
_PATH_PATTERN = r"^[^\0\ud800-\udc7f\udd00-\udfff]*\Z"
Text = Annotated[str, Meta(max_length=MAX_TEXT, pattern=_PATH_PATTERN)]
Path = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT, pattern=_PATH_PATTERN)]
Words = Annotated[tuple[Text, ...], Meta(max_length=MAX_WORDS)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
ExitStatus = Annotated[int, Meta(ge=-(2**31), le=2**32)]
Seconds = Annotated[float, Meta(ge=0, le=MAX_UNIX_SECONDS)]  # duration in seconds, or seconds since the epoch

T = TypeVar("T")

_WHERE = compile_later(r"^(?P<what>.*?)(?: - at `\$\.?(?P<where>.*)`)?$", re.DOTALL)
_EXPECTED = compile_later(r"Expected `(?P<type>[a-z]+)[^`]*`(?P<rest>.*)", re.DOTALL)
_MISSING = compile_later(r"Object missing required field `(?P<name>\w+)`")
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "datetime": "a time",
}


def read_typed_file(path: str | os.PathLike[str], kind: type[T], max_bytes: int) -> T:
    """Read a JSON file as a value of type `kind`.

    Raises UnreadableFileError if the file is larger than `max_bytes` or is not of this type, OSError if it cannot be
    read.
    """
    return decode_typed_json(read_small_file(path, max_bytes), kind, os.path.basename(path))


def read_small_file(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Read a regular file of at most `max_bytes`.

    Raises UnreadableFileError if it is larger or not a regular file: a pipe would block, a device never ends.
    """
    name = os.path.basename(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnreadableFileError(f"{clean(name)}: not a file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(max_bytes + 1)
    finally:
        os.close(descriptor)  # `open` does not close the descriptor of a folder
    if len(data) > max_bytes:
        raise UnreadableFileError(f"{clean(name)}: larger than {max_bytes >> 10:,} KiB")
    return data


def decode_typed_json(data: bytes, kind: type[T], name: str) -> T:
    """Decode JSON as a value of type `kind`. Raises UnreadableFileError, whose message begins with `name`."""
    try:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            if b"\\u" not in data:
                raise
            # json.dumps writes a byte of a path that is not UTF-8 as a lone surrogate, which msgspec refuses.
            untyped = json.loads(data.decode("utf-8"), parse_float=_parse_finite, parse_constant=_parse_finite)
            return msgspec.convert(untyped, type=kind)
    except RecursionError:
        reason = "nested too deeply"
    except UnicodeDecodeError:
        reason = "not UTF-8 text"
    except msgspec.ValidationError as error:
        reason = explain_mismatch(str(error))
    except (msgspec.MsgspecError, ValueError, OverflowError):  # no ValueError in msgspec 0.20
        reason = "not JSON"
    raise UnreadableFileError(f"{clean(name)}: {reason}")


def explain_mismatch(message: str) -> str:
    """Say in plain words what msgspec's message says: ``rank is not a whole number``."""
    match = _WHERE.match(message)
    what, where = (match["what"], match["where"]) if match is not None else (message, None)
    subject = clean((where or "")[:80].replace("[...]", "").replace("[].", ".")) or "the file"
    missing = _MISSING.match(what)
    if missing is not None:
        return f"{where}.{missing['name']} is missing" if where else f"{missing['name']} is missing"
    expected = _EXPECTED.match(what)
    if expected is None:
        if "RFC3339" in what:
            return f"{subject} is not a time"
        return f"{subject} is out of range" if "out of range" in what else f"{subject} cannot be read"
    if ", got" in expected["rest"]:
        return f"{subject} is not {_KINDS.get(expected['type'], 'of the expected type')}"
    if "regex" in expected["rest"]:
        return f"{subject} contains a character that no path can have"
    if "length" in what:
        return f"{subject} is too long" if "<=" in what else f"{subject} has the wrong length"
    if "timezone" in what:
        return f"{subject} has no time zone"
    return f"{subject} is out of range"


def explain_version(name: str, version: int, known: int) -> str | None:
    """Return a line about a file of a newer version than the `known` one, of which only known fields are read."""
    if version <= known:
        return None
    return f"{name}: written by a newer version ({version}, known is {known}); the known part was read"


def is_storable(text: str) -> bool:
    """Return whether `text` can be stored as a `Path`: a longer one would make the whole file unreadable."""
    return 0 < len(text) <= MAX_TEXT and re.match(_PATH_PATTERN, text) is not None


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("number out of range")
    return number
