"""Test reading protobuf's wire format: fields of all types, varints of every length, and damaged messages."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.trace.perfetto_protobuf.wire_format import (
    WireError,
    parse_fields,
    parse_varint,
    to_double,
    to_signed,
)


def _write_varint(value: int, padding: int = 0) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    for _ in range(padding):  # as Perfetto writes the sizes of messages that it fills in later
        out[-1] |= 128
        out.append(0)
    return bytes(out)


_FIELDS = st.one_of(
    st.tuples(st.integers(1, 5000), st.just(0), st.integers(0, 2**64 - 1)),
    st.tuples(st.integers(1, 5000), st.just(1), st.binary(min_size=8, max_size=8)),
    st.tuples(st.integers(1, 5000), st.just(2), st.binary(max_size=200)),
    st.tuples(st.integers(1, 5000), st.just(5), st.binary(min_size=4, max_size=4)),
)


def _write(fields: list[tuple[int, int, int | bytes]]) -> bytes:
    out = b""
    for number, wire, value in fields:
        out += _write_varint(number << 3 | wire)
        if isinstance(value, int):
            out += _write_varint(value)
        else:
            out += (_write_varint(len(value), padding=len(value) % 3) if wire == 2 else b"") + value
    return out


@given(st.lists(_FIELDS, max_size=40))
def test_fields_are_read_as_written(fields: list[tuple[int, int, int | bytes]]) -> None:
    assert list(parse_fields(_write(fields))) == [
        (n, v if isinstance(v, int) or w == 2 else int.from_bytes(v, "little")) for n, w, v in fields
    ]


@given(st.lists(_FIELDS, min_size=1, max_size=5), st.integers(1, 300))
def test_a_message_that_is_cut_has_the_fields_before(fields: list[tuple[int, int, int | bytes]], cut: int) -> None:
    ends = [len(_write(fields[:count])) for count in range(len(fields) + 1)]
    size = max(ends[-1] - cut, 0)
    whole = sum(end <= size for end in ends) - 1
    reader = parse_fields(_write(fields)[:size])
    assert [number for number, _ in islice(reader, whole)] == [number for number, _, _ in fields[:whole]]
    if size in ends:
        assert list(reader) == []
    else:
        with pytest.raises(WireError):
            next(reader)


@pytest.mark.parametrize("tag", [b"\x0b", b"\x0c", b"\x0e", b"\x0f", b"\x08", b"\xff" * 11])
def test_groups_unknown_types_and_endless_numbers_are_refused(tag: bytes) -> None:
    with pytest.raises(WireError):
        list(parse_fields(tag))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 2**32, 2**56 - 1, 2**56, 2**63 - 1, 2**63, 2**64 - 1])
def test_varints_of_every_length(value: int) -> None:
    data = _write_varint(value)
    assert parse_varint(data, 0) == (value, len(data))
    assert list(parse_fields(b"\x08" + data)) == [(1, value)]


def test_numbers_with_a_sign_and_a_fraction() -> None:
    assert to_signed(2**64 - 5) == -5
    assert to_double(int.from_bytes(np.float64(-2.5).tobytes(), "little")) == -2.5
