"""Test that only plain data is read from pickles: every other instruction is refused before anything is carried out."""

from __future__ import annotations

import os
import pickle
import pickletools
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.analysis.memory.snapshots.primitive_pickle import UnsafePickleError, load_plain_pickle

ALLOWED = {
    *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1"),
    *("BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT"),
    *("SETITEM", "SETITEMS", "EMPTY_TUPLE", "MEMOIZE"),
    *("BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT"),
}

integers = st.integers(-(2**63), 2**64 - 1)
plain = st.recursive(
    st.none() | st.booleans() | integers | st.floats(allow_nan=False) | st.text(max_size=400),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner, max_size=4)
        | st.lists(integers, max_size=3).map(tuple)
    ),
    max_leaves=25,
)


@given(plain, st.integers(2, 5))
def test_plain_data_is_read(value: Any, protocol: int) -> None:
    assert load_plain_pickle(pickle.dumps(value, protocol)) == value


def test_long_texts_and_shared_values_are_read() -> None:
    frame = {"name": "x" * 300, "line": 3}
    shared = [[frame, frame]] * 70_000  # references beyond one byte
    assert load_plain_pickle(pickle.dumps({"a": shared, "b": [str(k) for k in range(70_000)]}))["a"] == shared


@given(
    st.lists(st.lists(st.integers(0, 300) | st.lists(st.integers(0, 2**40), min_size=1, max_size=3).map(tuple))),
    st.sampled_from([0, 300]),
    st.integers(2, 5),
)
def test_items_of_dicts_with_shared_keys_are_read(rows: list[list[Any]], earlier: int, protocol: int) -> None:
    """Keys that were read before, with integers and tuples as values: the most frequent instructions of a snapshot."""
    keys = [f"key{number}" for number in range(max(map(len, rows), default=0))]
    value = [[f"earlier{number}" for number in range(earlier)], [dict(zip(keys, row, strict=False)) for row in rows]]
    assert load_plain_pickle(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("start", [b"h\x00", b"j\x00\x00\x00\x00"])
def test_a_tuple_of_what_was_read_before_is_refused_after_a_key(start: bytes) -> None:
    refused = b"\x80\x04]\x94}\x94(" + start + b"K\x01" + start + b"\x85u."
    with pytest.raises(UnsafePickleError, match="TUPLE1"):
        load_plain_pickle(refused)


@pytest.mark.parametrize("opcode", pickletools.opcodes, ids=lambda opcode: opcode.name)
def test_every_other_instruction_is_refused(opcode: pickletools.OpcodeInfo) -> None:
    """The instruction comes after values that it could work on; nothing of the file may have been carried out."""
    text = b"\x80\x04]\x8c\x02os\x8c\x06system" + opcode.code.encode("latin-1") + b"\x01\x00\x00\x00\x00\x00\x00\x00\n."
    if opcode.name in ALLOWED:
        return
    with pytest.raises(UnsafePickleError, match=rf"it holds {opcode.name} at byte 15"):
        load_plain_pickle(text)


def test_nested_tuples_are_refused() -> None:
    """The hash of this key would be computed 2^60 times over: each tuple has the one before it twice."""
    value: Any = (1, 2)
    for _ in range(60):
        value = (value, value)
    with pytest.raises(UnsafePickleError, match="it holds TUPLE2"):
        load_plain_pickle(pickle.dumps([value]))


class _Runs:
    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.marker,)


@pytest.mark.parametrize("protocol", range(6))
def test_a_hostile_pickle_runs_nothing(tmp_path: Any, protocol: int) -> None:
    marker = str(tmp_path / "made")
    with pytest.raises(UnsafePickleError):
        load_plain_pickle(pickle.dumps({"segments": [], "device_traces": [[_Runs(marker)]]}, protocol))
    assert not os.path.exists(marker)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "no pickle"),
        (b"\x80\x04", "it has no end"),
        (b"\x80\x04]", "it has no end"),
        (b"\x80\x04.", "damaged"),  # nothing on the stack
        (b"\x80\x04h\x07.", "damaged"),  # a reference to nothing
        (b"\x80\x04u.", "damaged"),
        (b"\x80\x04]]s.", "damaged"),
        (b"\x80\x04X\xff\xff\xff\xff.", "it ends within a value"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.", "it ends within a value"),
        (b"\x80\x04Nr\xff\xff\xff\xff.", "more memory than its size explains"),
        (b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N.", "damaged"),
        (b"\x80\x04\x8a\xff" + b"\x01" * 255 + b".", "it holds LONG1"),
        (b"\x80\x04\x8c\x02\xff\xff.", "damaged"),  # no UTF-8
        (b"\x80\x09N.", "no pickle"),
    ],
)
def test_a_damaged_pickle_gets_one_line(text: bytes, message: str) -> None:
    with pytest.raises(UnsafePickleError, match=message) as error:
        load_plain_pickle(text)
    assert "\n" not in str(error.value)


def test_deep_nesting_is_read_without_recursion() -> None:
    depth = 200_000
    value = load_plain_pickle(b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b".")
    assert len(value) == 1
