"""Compare decoded and stored traces field by field: columns with their dtypes, interned values, problems."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import numpy as np

from torchprof_tui.trace.model.raw_events import DecodedTrace


def assert_alike(one: DecodedTrace, other: DecodedTrace, *, chunks: bool) -> None:
    """Assert that two decodings of one text are equal. `chunks`: also the offsets of the chunks of the text."""
    pairs: list[tuple[Any, Any]] = [(one, other), (one.events, other.events)]
    if chunks:
        pairs.append((one.text, other.text))
    for left, right in pairs:
        _assert_fields_alike(left, right, excluded=("events", "text", "path", "checksum"))


def _assert_fields_alike(one: Any, other: Any, excluded: Collection[str]) -> None:
    for field in dataclasses.fields(one):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if field.name == "checksum":  # of the chunks of the text, which each reader divides in its own way
            continue
        if field.name == "args":
            assert set(left) == set(right)
            for name, arg in left.items():
                assert np.array_equal(arg.entries, right[name].entries), name
                assert np.array_equal(arg.values, right[name].values), name
        elif isinstance(left, np.ndarray):
            assert left.dtype == right.dtype
            assert np.array_equal(left, right), field.name
        elif field.compare and field.name not in excluded:
            assert repr(left) == repr(right), field.name


def assert_deeply_equal(one: Any, other: Any, path: str = "trace") -> None:
    """Assert that two values are equal in content and type, dataclasses and arrays included; `path` names the value.

    Fields that dataclasses do not compare are left out, and so is `stored_index`, which only a mapped trace has.
    """
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, path
        assert np.array_equal(one, other), path
    elif dataclasses.is_dataclass(one):
        assert type(one) is type(other), path
        for field in dataclasses.fields(one):
            if field.compare and field.name != "stored_index":
                assert_deeply_equal(getattr(one, field.name), getattr(other, field.name), f"{path}.{field.name}")
    elif isinstance(one, dict):
        assert list(one) == list(other), path
        for key in one:
            assert_deeply_equal(one[key], other[key], f"{path}[{key!r}]")
    elif isinstance(one, list | tuple):
        assert type(one) is type(other), path
        assert len(one) == len(other), path
        for k, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_deeply_equal(left, right, f"{path}[{k}]")
    else:
        assert type(one) is type(other), path
        assert one == other or (one != one and other != other), path  # NaN equals NaN
