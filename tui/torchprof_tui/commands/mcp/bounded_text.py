"""Write an answer as compact JSON of a bounded length, and say what was cut off."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.mcp.questions import CHARACTERS_PER_TOKEN
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.ui.common.name_display import shorten

KEPT_LONGEST = frozenset(("cannot_tell", "partial"))  # lists that are cut only after all others

UNCUT = frozenset(("command", "commands", "cut", "more", "columns"))
"""Fields that are never cut: without them, or with a part of them, the answer is of no use."""

SHORTEST_TEXT = 48


def clean_values(value: Any, full_names: bool = False) -> Any:
    """Prepare an answer: no control characters, numbers of four digits but integers and times, short kernel names."""
    if isinstance(value, str):
        return clean(value) if full_names else shorten_name(clean(value))
    if isinstance(value, float):
        return round_number(value)
    if isinstance(value, dict):
        return _clean_fields(value, full_names)
    if isinstance(value, list | tuple):
        return [clean_values(each, full_names) for each in value]
    return value


def _clean_fields(fields: dict[str, Any], full_names: bool) -> dict[str, Any]:
    columns = fields.get("columns")
    if isinstance(columns, list) and isinstance(fields.get("rows"), list):  # of `pack_records`
        records = [_clean_fields(dict(zip(columns, row, strict=True)), full_names) for row in fields["rows"]]
        others = {name: each for name, each in fields.items() if name not in ("columns", "rows")}
        return {**_clean_fields(others, full_names), **_pack_named(records, list(map(clean, columns)))}
    return {
        clean(str(key)): each if str(key).endswith(EXACT) else clean_values(each, full_names or key in UNCUT)
        for key, each in fields.items()
    }


def _pack_named(records: list[dict[str, Any]], columns: list[str]) -> dict[str, Any]:
    """Pack prepared records; a column of the names on screen is left out where it repeats the names."""
    if records and all(record.get("display", "") in ("", record.get("name")) for record in records):
        columns = [name for name in columns if name != "display"]
    return {"columns": columns, "rows": [[record.get(name) for name in columns] for record in records]}


EXACT = "start_us"  # how fields end that hold the time of an event as a fraction

DIGITS = 4
SHORT_NAME = 40  # characters of the names of kernels that stay as they are


def round_number(number: float) -> float:
    """Round to four digits; without a fraction as an integer, which takes less text."""
    if not math.isfinite(number):
        return number
    rounded = float(f"{number:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def shorten_name(name: str) -> str:
    """Return the name that the screen shows for a C++ kernel with a long name; other texts stay."""
    if len(name) <= SHORT_NAME or "::" not in name or not ("<" in name or name.startswith("void ")):
        return name
    return shorten(name) if _CPP_NAME.match(name) else name


_CPP_NAME = re.compile(r"(?:void |std::enable_if<)?(?:[A-Za-z_]\w*|\(anonymous namespace\))(?:::|<)")


def write_bounded(answer: dict[str, Any], max_tokens: int, more: str) -> str:
    """Write an answer, which is changed: the longest lists lose their ends, then the longest texts, until it fits.

    `more`: how the rest is asked for; said only where something was cut. Raises UsageError where nothing fits.
    """
    limit = max_tokens * CHARACTERS_PER_TOKEN
    cuts: dict[str, str] = {}
    lengths = {path: len(values) for path, values in _walk_lists(answer, "")}
    for _, values in _walk_lists(answer, ""):
        del values[limit:]  # an element takes at least a character
    while True:
        for path, values in _walk_lists(answer, ""):
            if len(values) < lengths.get(path, 0):
                cuts[_generalize(path)] = f"{len(values)} of {lengths[path]}" if "[" not in path else "shortened"
        text = _dump({**answer, "cut": cuts, "more": more} if cuts else answer)
        if len(text) <= limit:
            return text
        if not (_halve_longest_list(answer) or _halve_longest_text(answer, cuts)):
            raise UsageError(f"max_tokens {max_tokens}: too few for this answer; ask again with more")


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _walk_lists(value: Any, path: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield all lists of an answer that may be cut, with their paths."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key not in UNCUT:
                yield from _walk_lists(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        if not path.rpartition("[")[0].endswith("rows"):  # a row under `columns` is cut as a whole or not at all
            yield path, value
        for index, each in enumerate(value):
            if isinstance(each, dict | list):
                yield from _walk_lists(each, f"{path}[{index}]")


def _generalize(path: str) -> str:
    """Name a field of all elements of a list once."""
    return re.sub(r"\[\d+\]", "[]", path)


def _halve_longest_list(answer: dict[str, Any]) -> bool:
    """Cut the end of the list that takes most text; False where no list is left."""
    weights = [
        (path.partition(".")[0].partition("[")[0] not in KEPT_LONGEST, len(_dump(values)), values)
        for path, values in _walk_lists(answer, "")
        if len(values) > 1
    ]
    if not weights:
        return False
    values = max(weights, key=lambda each: each[:2])[2]
    del values[max(len(values) * 3 // 4, 1) if len(values) > 3 else len(values) - 1 :]
    return True


def _halve_longest_text(answer: dict[str, Any], cuts: dict[str, str]) -> bool:
    """Cut the longest text in half; False where all are short."""
    found = max(_walk_texts(answer, ""), key=lambda each: len(each[2][each[1]]), default=None)
    if found is None or len(found[2][found[1]]) <= SHORTEST_TEXT:
        return False
    path, key, holder = found
    text = holder[key]
    holder[key] = f"{text[: len(text) // 2]}…"
    cuts.setdefault(_generalize(path), "shortened")
    return True


def _walk_texts(value: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield (path, key, holder) of all texts that may be cut."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in items:
        if key in UNCUT:
            continue
        where = f"{path}[{key}]" if isinstance(value, list) else f"{path}.{key}" if path else str(key)
        if isinstance(each, str):
            yield where, key, value
        elif isinstance(each, dict | list):
            yield from _walk_texts(each, where)


def pack_records(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return {"columns": names, "rows": lists of values}. A field that no record has a value for is left out."""
    names = dict.fromkeys(name for record in records for name in record)
    columns = [name for name in names if any(record.get(name) is not None for record in records)]
    return {"columns": columns, "rows": [[record.get(name) for name in columns] for record in records]}


def split_common_frames(records: Sequence[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Split the frames that all stacks begin with off their `stack`, "outermost;…;innermost"; return both."""
    stacks = [record["stack"].split(";") for record in records]
    shortest = min(map(len, stacks), default=1) - 1
    count = next((k for k in range(shortest) if len({stack[k] for stack in stacks}) > 1), shortest)
    outer = ";".join(stacks[0][:count]) if stacks else ""
    return outer, [{**record, "stack": ";".join(stack[count:])} for record, stack in zip(records, stacks, strict=True)]
