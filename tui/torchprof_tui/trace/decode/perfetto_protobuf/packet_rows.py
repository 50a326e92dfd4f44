"""The packets of a chunk, and the rows of columns that are made of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from torchprof_tui.trace.core.arrays import F64, I32, I64, U8, Array, Bool
from torchprof_tui.trace.perfetto_protobuf.wire_format import BYTES, U64, VARINT, ScannedFields


@dataclass(slots=True)
class ChunkPackets:
    """n packets in one buffer, which ends with PADDING.

    `words` uint64: the eight bytes at every byte. `fields`: of the packets. `table`: the index of each packet's table
    of interned text, int64[n], or that of all of them. `is_slow` bool[n]: packets to be converted one by one, because
    they hold something that the columns cannot be read from directly; readers of columns add to it.
    """

    buffer: U8
    words: U64
    count: int
    fields: ScannedFields
    table: I64 | int
    is_slow: Bool

    def tables_of(self, packets: I64) -> I64 | int:
        """Return the table of each of these packets, or that of all."""
        return self.table if isinstance(self.table, int) else self.table[packets]

    def find_messages(self, number: int) -> tuple[I64, I64, I64]:
        """Find the fields of this number: packets, begin and end of the message in each. Packets with several are
        slow."""
        chosen = np.flatnonzero(self.fields.number == number)
        chosen = chosen[self.fields.wire[chosen] == BYTES]
        packet = self.fields.message[chosen]
        order = np.argsort(packet, kind="stable")
        packet, chosen = packet[order], chosen[order]
        if len(packet) > 1:
            self.is_slow[packet[1:][packet[1:] == packet[:-1]]] = True
        begin = self.fields.begin[chosen]
        return packet, begin, begin + self.fields.value[chosen].astype(np.int64)


def last_values(fields: ScannedFields, number: int, count: int, default: int) -> tuple[I64, Bool]:
    """Return a numeric field of each of `count` messages, int64[count], the last where one has several; and which
    messages have it as something else than a varint."""
    result = np.full(count, default, np.int64)
    chosen = np.flatnonzero(fields.number == number)
    message = fields.message[chosen]
    result[message] = fields.value[chosen].view(np.int64)
    odd = np.zeros(count, np.bool_)
    odd[message[fields.wire[chosen] != VARINT]] = True
    return result, odd


@dataclass(slots=True)
class Rows:
    """m rows, one for an entry, in the order of packets.

    `packet` int64[m]: which packet of the chunk, ascending. `signature`, `name`: codes of ColumnBuilder. `args`: by
    column, (rows ascending, values). `points`: values of counters, float64[m], NaN for other rows and for no number;
    `series`: the name of such a point's series.
    """

    packet: I64
    signature: I32
    name: I32
    duration: I64
    correlation: I64
    args: dict[str, tuple[I64, Array]] = field(default_factory=dict)
    points: F64 | None = None

    def select(self, keep: Bool) -> Rows:
        """Select rows."""
        index = np.cumsum(keep) - 1
        args = {}
        for name, (rows, values) in self.args.items():
            chosen = keep[rows]
            if chosen.any():
                args[name] = index[rows[chosen]], values[chosen]
        return Rows(
            self.packet[keep],
            self.signature[keep],
            self.name[keep],
            self.duration[keep],
            self.correlation[keep],
            args,
            None if self.points is None else self.points[keep],
        )


def merge_rows(parts: list[Rows]) -> Rows:
    """Merge rows of different packets in the order of packets."""
    parts = [part for part in parts if len(part.packet)]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        nothing = np.zeros(0, np.int64)
        return Rows(nothing, nothing.astype(np.int32), nothing.astype(np.int32), nothing, nothing)
    packet = np.concatenate([part.packet for part in parts])
    order = np.argsort(packet, kind="stable")
    new_index = np.empty(len(order), np.int64)
    new_index[order] = np.arange(len(order))
    collected: dict[str, list[tuple[I64, Array]]] = {}
    first = 0
    for part in parts:
        for name, (rows, values) in part.args.items():
            collected.setdefault(name, []).append((new_index[rows + first], values))
        first += len(part.packet)
    args = {}
    for name, pieces in collected.items():
        rows = np.concatenate([piece for piece, _ in pieces])
        values = np.concatenate([piece for _, piece in pieces])
        ascending = np.argsort(rows, kind="stable")
        args[name] = rows[ascending], values[ascending]
    points = None
    if any(part.points is not None for part in parts):
        points = np.concatenate(
            [np.full(len(part.packet), np.nan) if part.points is None else part.points for part in parts]
        )[order]
    return Rows(
        packet[order],
        np.concatenate([part.signature for part in parts])[order],
        np.concatenate([part.name for part in parts])[order],
        np.concatenate([part.duration for part in parts])[order],
        np.concatenate([part.correlation for part in parts])[order],
        args,
        points,
    )
