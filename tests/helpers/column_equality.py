"""Whether two readings of one text gave the same: every column, every interned value in its order, every problem."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any

import numpy as np

from torchprof_tui.trace.model.raw_events import DecodedTrace


def assert_alike(one: DecodedTrace, other: DecodedTrace, *, chunks: bool) -> None:
    """`chunks`: where the pieces of text lie has to agree as well, wherever they are kept."""
    pairs: list[tuple[Any, Any]] = [(one, other), (one.events, other.events)]
    if chunks:
        pairs.append((one.text, other.text))
    for mine, theirs in pairs:
        _fields_alike(mine, theirs, leaving_out=("events", "text", "path"))


def _fields_alike(one: Any, other: Any, leaving_out: Collection[str]) -> None:
    for field in fields(one):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if field.name == "args":
            assert set(mine) == set(theirs)
            for name, arg in mine.items():
                assert np.array_equal(arg.entries, theirs[name].entries), name
                assert np.array_equal(arg.values, theirs[name].values), name
        elif isinstance(mine, np.ndarray):
            assert mine.dtype == theirs.dtype
            assert np.array_equal(mine, theirs), field.name
        elif field.name not in leaving_out:
            assert repr(mine) == repr(theirs), field.name
