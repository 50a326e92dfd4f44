"""Limit the nesting of values from a file, so that no later stage recurses too deeply.

The parser accepts 1,024 levels; formatting or writing a value that deep exceeds limits of Python and of orjson.
"""

from __future__ import annotations

from typing import Any

import orjson

MAX_LEVELS = 100  # levels of lists and objects that are kept of a deeper value. Real args have at most five
DEEPER_TEXT = f"… (nested deeper than {MAX_LEVELS} levels: not shown)"  # replaces what lies deeper


def dump_bounded(value: Any) -> bytes:
    """Write a value as JSON; of one that is nested too deeply the first MAX_LEVELS levels."""
    try:
        return orjson.dumps(value)
    except TypeError:  # orjson writes 254 levels
        return orjson.dumps(limit_nesting(value), default=repr)


def is_nested_too_deeply(value: Any) -> bool:
    """Tell whether a parsed value has more levels than can be written again (254); takes a microsecond per KB."""
    try:
        orjson.dumps(value)
    except TypeError:
        return True
    return False


def limit_nesting(value: Any) -> Any:
    """Copy lists and objects down to MAX_LEVELS; DEEPER_TEXT replaces those below. Other values are returned as is."""
    if not isinstance(value, (dict, list)):
        return value
    root: Any = {} if isinstance(value, dict) else []
    level = [(value, root)]
    for depth in range(1, MAX_LEVELS + 1):
        next_level = []
        for source, copy in level:
            for key, item in source.items() if isinstance(source, dict) else enumerate(source):
                kept: Any = item
                if isinstance(item, (dict, list)):
                    if depth == MAX_LEVELS:
                        kept = DEEPER_TEXT
                    else:
                        kept = {} if isinstance(item, dict) else []
                        next_level.append((item, kept))
                if isinstance(copy, dict):
                    copy[key] = kept
                else:
                    copy.append(kept)
        level = next_level
    return root
