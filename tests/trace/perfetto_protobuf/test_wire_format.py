"""Reading protobuf's wire format: one message as many, and both as protobuf itself does."""

from __future__ import annotations

import contextlib
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.trace.perfetto_protobuf import wire_format
from torchprof_tui.trace.perfetto_protobuf.wire_format import (
    BYTES,
    PADDING,
    Value,
    WireError,
    parse_fields,
    parse_varint,
    scan_fields,
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


def _scan(messages: list[bytes]) -> tuple[list[list[tuple[int, Value]]], list[bool]]:
    """Scan messages that lie one after the other, with one byte between them."""
    buffer = np.frombuffer(b"\xff".join([b"", *messages]) + PADDING, np.uint8)
    size = np.array([len(message) for message in messages], np.int64)
    begin = np.cumsum(size + 1) - size
    fields = scan_fields(buffer, begin, begin + size)
    found: list[list[tuple[int, Value]]] = [[] for _ in messages]
    for message, number, wire, value, at in zip(
        *(column.tolist() for column in (fields.message, fields.number, fields.wire, fields.value, fields.begin)),
        strict=True,
    ):
        found[message].append((number, buffer[at : at + value].tobytes() if wire == BYTES else value))
    return found, fields.damaged.tolist()


@given(st.lists(st.lists(_FIELDS, max_size=6), min_size=1, max_size=8))
def test_many_messages_are_read_as_each_alone(messages: list[list[tuple[int, int, int | bytes]]]) -> None:
    data = [_write(fields) for fields in messages]
    found, damaged = _scan(data)
    assert found == [list(parse_fields(message)) for message in data]
    assert found == [
        [(n, v if isinstance(v, int) or w == 2 else int.from_bytes(v, "little")) for n, w, v in fields]
        for fields in messages
    ]
    assert not any(damaged)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8))
def test_damage_is_found_in_the_same_messages(messages: list[bytes]) -> None:
    _, damaged = _scan(messages)
    assert damaged == [_is_damaged(message) for message in messages]


def _is_damaged(message: bytes) -> bool:
    try:
        list(parse_fields(message))
    except WireError:
        return True
    return False


@pytest.mark.parametrize("value", [0, 1, 127, 128, 2**32, 2**56 - 1, 2**56, 2**63 - 1, 2**63, 2**64 - 1])
def test_varints_of_every_length(value: int) -> None:
    data = _write_varint(value)
    assert parse_varint(data, 0) == (value, len(data))
    assert _scan([b"\x08" + data])[0] == [[(1, value)]]


def test_numbers_with_a_sign_and_a_fraction() -> None:
    assert to_signed(2**64 - 5) == -5
    assert to_double(int.from_bytes(np.float64(-2.5).tobytes(), "little")) == -2.5


def test_a_message_whose_size_leads_beyond_the_text_is_damaged() -> None:
    data = b"\x08\x01\x10\x02"
    buffer = np.frombuffer(data + PADDING, np.uint8)
    for end in (len(data) + 1, len(buffer), len(buffer) + 100):
        found = scan_fields(buffer, np.array([0]), np.array([end]))
        assert found.damaged.all()
        assert found.number.tolist() == [1, 2]
    assert scan_fields(buffer, np.array([len(buffer) + 5]), np.array([len(buffer) + 9])).damaged.all()


@given(
    st.lists(
        st.tuples(st.lists(_FIELDS, min_size=1, max_size=5), st.integers(1, 90), st.binary(max_size=3)), max_size=4
    )
)
def test_long_messages_are_read_as_each_alone(
    messages: list[tuple[list[tuple[int, int, int | bytes]], int, bytes]],
) -> None:
    """Longer than the passes over all messages; some end in bytes that are no field."""
    data = [_write(fields) * copies + end for fields, copies, end in messages]
    found, damaged = _scan([b"", *data])
    assert damaged == [False, *map(_is_damaged, data)]
    for message, got in zip(data, found[1:], strict=True):
        expected: list[tuple[int, Value]] = []
        with contextlib.suppress(WireError):  # then those before the damage
            for field in parse_fields(message):
                expected.append(field)  # noqa: PERF402
        assert got == expected


def test_the_fields_of_long_messages_are_ordered_by_index_then_by_message() -> None:
    data = [b"\x08\x01" * 100, b"\x10\x02" * 300, b"\x18\x03" * 200 + b"\x0b"]
    buffer = np.frombuffer(b"".join(data) + PADDING, np.uint8)
    end = np.cumsum([len(message) for message in data])
    fields = scan_fields(buffer, np.append(0, end[:-1]), end)
    expected = sorted((index, message) for message, count in enumerate((100, 300, 200)) for index in range(count))
    assert fields.message.tolist() == [message for _, message in expected]
    assert fields.damaged.tolist() == [False, False, True]


def test_a_message_of_many_fields_takes_a_pass_for_each_block_not_for_each_field(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = Mock(wraps=wire_format._read_fields)
    monkeypatch.setattr(wire_format, "_read_fields", read)
    data = b"\x08\x01" * 100_000
    fields = scan_fields(np.frombuffer(data + PADDING, np.uint8), np.array([0]), np.array([len(data)]))
    assert len(fields.number) == 100_000
    assert read.call_count < 110
