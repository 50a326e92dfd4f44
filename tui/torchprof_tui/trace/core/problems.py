"""What a reader may find wrong with a file: the words for it, and the tally that it keeps while it reads.

The words are stable: `info --json`, tests and scripts read them.
"""

from __future__ import annotations

from dataclasses import dataclass

CUT_SHORT = "cut short"  # the file ends before its text does: a killed job, a full disk
CUT_CONNECTION = "connection cut"  # the other end went away; what arrived is here
DAMAGED_COMPRESSION = "damaged compression"  # the compressed stream is wrong from somewhere on
UNREADABLE_ENTRY = "unreadable entry"  # no repair helps; counted, never drawn
NOT_AN_OBJECT = "not an object"  # an entry of traceEvents that is null, a number, a list, …
UNREADABLE_HEADER = "unreadable header"  # a top-level key or value that no repair helps
TEXT_AFTER_END = "text after the end"  # anything that follows the closing bracket of the file
BAD_TIME = "bad time"  # a ts that is no number, or more than 146 years: the entry has no time
BAD_DURATION = "bad duration"  # the same for dur: the entry has no duration
ROUNDED_TIME = "rounded time"  # a ts whose digits could not be matched to its entry: a double's precision is left
TOO_MANY_CATEGORIES = "too many categories"  # beyond 65,535 distinct ones an entry's category is ""
TOO_MANY_LANES = "lanes put together"  # beyond 10,000 lanes the others share lines: `crowd.py`

UNRELATED_RANKS = "ranks of different runs?"  # opened together, and nothing joins them: `strangers.py`
LOST_RANK = "rank not opened"  # of several ranks one that is missing, or no trace; the others are there

REPAIRED_BACKSLASH = "repaired: backslash"  # Windows paths written without escaping
REPAIRED_CONTROL = "repaired: control character"  # raw bytes below 0x20 in a string
REPAIRED_ENCODING = "repaired: not UTF-8"  # such bytes read as \xNN
REPAIRED_SURROGATE = "repaired: surrogate"  # half of a \uD800 pair, read as U+FFFD
REPAIRED_NUMBER = "repaired: NaN"  # NaN, Infinity, 1e999 and their spellings, read as null
REPAIRED_COMMA = "repaired: comma"  # a comma too many
REPAIRED_QUOTE = "repaired: quote"  # bare quotes inside a string, a missing one around a key

INCOMPLETE_STREAM_KINDS = frozenset((CUT_SHORT, CUT_CONNECTION, DAMAGED_COMPRESSION))
"""Of what brings the text: that this then ends inside an entry is no further problem. A trace with one of these is not
all that was recorded."""

_EXCERPT_LENGTH = 100  # characters of an example: one line of a terminal


class ProblemTally:
    """Problems by kind, in the order in which the kinds turned up; the first example of each is kept."""

    def __init__(self) -> None:
        self._problems: dict[str, Problem] = {}

    def add(self, kind: str, example: str, count: int = 1) -> None:
        known = self._problems.get(kind)
        if known is None:
            self._problems[kind] = Problem(kind, count, example)
        else:
            known.count += count

    def count(self, kind: str) -> int:
        known = self._problems.get(kind)
        return 0 if known is None else known.count

    def problems(self) -> list[Problem]:
        return list(self._problems.values())


def excerpt(text: bytes | str) -> str:
    """The beginning of a piece of the file, on one line, nothing in it that a terminal would act on."""
    if isinstance(text, bytes):
        text = text[: 8 * _EXCERPT_LENGTH].decode("utf-8", "backslashreplace")
    words = " ".join(text[: 8 * _EXCERPT_LENGTH].split())
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words[:_EXCERPT_LENGTH])
    return shown + "…" if len(words) > _EXCERPT_LENGTH else shown


@dataclass(slots=True)
class Problem:
    """Something repaired, dropped or odd, counted, with one example that a reader of the file can find.

    `example` holds the file's own text with everything that is not printable ASCII or Unicode escaped.
    """

    kind: str  # a short stable word; the readers' own are in problems.py
    count: int
    example: str
