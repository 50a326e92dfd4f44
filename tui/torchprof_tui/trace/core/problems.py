"""Count the problems found while a trace is read, by kind.

The kinds are stable strings: `info --json`, tests and scripts read them.
"""

from __future__ import annotations

from dataclasses import dataclass

CUT_SHORT = "cut short"  # the file ends before its text does: a killed job, a full disk
CUT_CONNECTION = "connection cut"  # the connection ended early; the data received before is shown
DAMAGED_COMPRESSION = "damaged compression"  # the compressed stream is damaged from some byte on
ENDLESS_TEXT = "text without an end"  # reading stopped at a limit: see `decode/entry_decoder.py`
UNREADABLE_ENTRY = "unreadable entry"  # cannot be repaired; counted, never drawn
NOT_AN_OBJECT = "not an object"  # an entry of traceEvents that is null, a number, a list, …
LEFT_OUT = "packets left out"  # of a Perfetto trace: what they hold is not read, such as ftrace
UNREADABLE_HEADER = "unreadable header"  # a top-level key or value that cannot be repaired
TEXT_AFTER_END = "text after the end"  # anything that follows the closing bracket of the file
BAD_TIME = "bad time"  # ts is not a number, or more than 146 years: the entry has no time
BAD_DURATION = "bad duration"  # the same for dur: the entry has no duration
ROUNDED_TIME = "rounded time"  # a ts whose digits could not be matched to its entry: a double's precision is left
TOO_MANY_CATEGORIES = "too many categories"  # beyond 65,535 distinct ones an entry's category is ""
NESTED_TOO_DEEPLY = "nested too deeply"  # of a top-level value only the first levels are kept: `core/bounded_json.py`
UNREADABLE_METADATA = "metadata out of range"  # a top-level key of the wrong type or out of its range: not used
UNREADABLE_NAME = "lane name is not text"  # a process_name, thread_name, … that is a list or an object: not used
DAMAGED_TABLE = "damaged table"  # of a database: its rows were read up to the damage
TOO_MANY_LANES = "merged lanes"  # above 10,000 lanes, the least important are merged: `build/lane_merging.py`

NUMBER_KINDS = tuple(
    f"{label} out of range"
    for label in (
        *("correlation", "device number", "stream number", "grid", "block", "register count", "shared memory size"),
        *("size in bytes", "External id", "sequence number", "forward thread id", "allocated size", "reserved size"),
        *("device type", "device id", "address", "Python id", "Python parent id", "graph node id"),
        "correlation of an event's record",
    )
)
"""A number of an entry that is no integer or out of its range, which `build/sparse_columns.py` has: read as unknown."""

UNRELATED_RANKS = "ranks of different runs?"  # opened together without a sign of one run: `ranks/merge.py`
LOST_RANK = "rank not opened"  # a rank is missing or not a trace; the others are shown

REPAIRED_BACKSLASH = "repaired: backslash"  # Windows paths written without escaping
REPAIRED_CONTROL = "repaired: control character"  # raw bytes below 0x20 in a string
REPAIRED_ENCODING = "repaired: not UTF-8"  # such bytes read as \xNN
REPAIRED_SURROGATE = "repaired: surrogate"  # half of a surrogate pair (\uD800), read as U+FFFD
REPAIRED_NUMBER = "repaired: NaN"  # NaN, Infinity, 1e999 and their spellings, read as null
REPAIRED_COMMA = "repaired: comma"  # an extra comma
REPAIRED_QUOTE = "repaired: quote"  # unescaped quotes in a string, or a missing quote around a key

INCOMPLETE_STREAM_KINDS = frozenset((CUT_SHORT, CUT_CONNECTION, DAMAGED_COMPRESSION, ENDLESS_TEXT))
"""Kinds of an incomplete stream: that the text then ends inside an entry is not counted as another problem. A trace
with one of these is not all that was recorded."""

_EXCERPT_LENGTH = 100  # characters of an example: one line of a terminal


class ProblemTally:
    """Counts of problems by kind, in order of first occurrence, each with its first example."""

    def __init__(self) -> None:
        self._problems: dict[str, Problem] = {}

    def add(self, kind: str, example: str, count: int = 1) -> None:
        problem = self._problems.get(kind)
        if problem is None:
            self._problems[kind] = Problem(kind, count, example)
        else:
            problem.count += count

    def count(self, kind: str) -> int:
        problem = self._problems.get(kind)
        return 0 if problem is None else problem.count

    def problems(self) -> list[Problem]:
        return list(self._problems.values())


def excerpt(text: bytes | str) -> str:
    """Return the beginning of a piece of a file as one line without control characters."""
    if isinstance(text, bytes):
        text = text[: 8 * _EXCERPT_LENGTH].decode("utf-8", "backslashreplace")
    words = " ".join(text[: 8 * _EXCERPT_LENGTH].split())
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words[:_EXCERPT_LENGTH])
    return shown + "…" if len(words) > _EXCERPT_LENGTH else shown


@dataclass(slots=True)
class Problem:
    """Number of times that something was repaired, dropped or odd, with one example that can be found in the file.

    `example` quotes the file's text; unprintable characters are escaped.
    """

    kind: str  # a short stable string; those of the decoder are above
    count: int
    example: str
