"""Takes damaged text apart, entry by entry, and keeps all that can be read.

Where one entry ends is told by the text that stands between entries again and again, never by quotes and brackets:
those are what damage upsets. All of this depends on the text alone, so that a stored chunk, read again, yields the
same entries.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tui.trace.repair import Kinds, readable, repaired

_MOST_MERGED = 64
"""How many pieces are tried as one entry, where a list inside an entry looks like the list of entries."""


@dataclass(slots=True)
class Salvage:
    """What damaged text held. Places are offsets in that text.

    `values`: what could be read, in order. `repairs`: (kind, where its entry begins), once for each kind that an
    entry needed. `unreadable`: (start, stop) of what no repair helps.
    """

    values: list[Any] = field(default_factory=list)
    repairs: list[tuple[str, int]] = field(default_factory=list)
    unreadable: list[tuple[int, int]] = field(default_factory=list)


def salvage(text: bytes) -> Salvage:
    """Everything that can be read of text that begins where an entry begins, and ends where one ends."""
    found = Salvage()
    places = pieces(text)
    k = 0
    while k < len(places):
        start, stop = places[k]
        k += 1
        values = readable(text[start:stop])
        if values is None:
            mended = repaired(text[start:stop])
            if mended is None:
                mended, more = _merged(text, start, places[k : k + _MOST_MERGED])
                k += more
            if mended is None:
                found.unreadable.append((start, stop))
                continue
            values, kinds = mended
            found.repairs.extend((kind, start) for kind in kinds)
        found.values.extend(values)
    return found


def _merged(text: bytes, start: int, following: list[tuple[int, int]]) -> tuple[tuple[list[Any], Kinds] | None, int]:
    """An entry that begins at `start` and runs over some of the following pieces, and how many those are."""
    for more, (next_start, stop) in enumerate(following, 1):
        alone = readable(text[next_start:stop])
        if alone and isinstance(alone[-1], dict) and "ph" in alone[-1]:
            break  # an entry of its own: what stands before it is over
        values = readable(text[start:stop])
        if values is not None:
            return (values, {}), more
        mended = repaired(text[start:stop])
        if mended is not None:
            return mended, more
    return None, 0


_LEAD = re.compile(rb'\s*\{\s*"')
_BETWEEN = re.compile(rb'\}\s*,(\s*\{\s*")')


def lead_of(text: bytes, at: int = 0) -> bytes:
    """What stands between a comma and the first key of the entry that follows: white space, a brace, a quote."""
    found = _LEAD.match(text, at)
    return found.group() if found else b""


def separators(text: bytes) -> list[int]:
    """Where the commas between entries probably are."""
    lead = lead_of(text)
    if not lead or b"," + lead not in text:
        often = Counter(_BETWEEN.findall(text)).most_common(1)
        if not often:
            return []
        lead = often[0][0]
    return [found.start(1) for found in re.finditer(rb"\}\s*(,)" + re.escape(lead), text)]


def pieces(text: bytes) -> list[tuple[int, int]]:
    """(start, stop) of what is probably one entry each; none where there is but white space."""
    if not text.strip():
        return []
    cuts = separators(text)
    return list(zip([0, *(cut + 1 for cut in cuts)], [*cuts, len(text)], strict=True))


_MAY_CLOSE = re.compile(rb"\}\s*,?\s*(\])")
_SURELY_CLOSES = re.compile(rb'\}\s*,?\s*(\])\s*(?:\}\s*\Z|\Z|,\s*"[^"\\\n]*"\s*:)')


def closing(text: bytes, start: int, stop: int, last: bool) -> int:
    """Where the bracket stands that closes the list of entries, in a piece that cannot be read as it is; -1 if nowhere.

    What stands before it must be an entry, or mend to one; in the `last` piece of a file it is enough that what
    follows can only follow a closed list.
    """
    for found in _MAY_CLOSE.finditer(text, start, stop):
        before = text[start : found.start(1)]
        if readable(before) is not None or repaired(before) is not None:
            return found.start(1)
    surely = _SURELY_CLOSES.search(text, start, stop) if last else None
    return surely.start(1) if surely else -1
