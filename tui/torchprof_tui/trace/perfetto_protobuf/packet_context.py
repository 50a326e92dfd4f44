"""What packets refer to and other packets have said: interned text, tracks, clocks."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

from torchprof_tui.trace.perfetto_protobuf.field_numbers import FLAG_STATE_CLEARED, Packet
from torchprof_tui.trace.perfetto_protobuf.sequence_tables import SequenceTables
from torchprof_tui.trace.perfetto_protobuf.track_table import ResolvedTracks, TrackTable
from torchprof_tui.trace.perfetto_protobuf.wire_format import Value, WireError, parse_fields

_REALTIME, _BOOTTIME = 1, 6
_MIN_EPOCH_NS = 10**18
"""2001: boot times are less."""


def make_location(chunk: int, position: int) -> int:
    """Return a number for the packet at a position of a chunk, that grows from packet to packet."""
    return chunk << 40 | position


@dataclass(slots=True)
class PacketContext:
    """The state of all sequences and tracks.

    `tables`: every table there was; `table_starts`: for each sequence the locations (`make_location`) from which on it
    had a new table, ascending, and the indexes of these. `base_time`: ns, what torch subtracts from times. `resolved`:
    the tracks, once all are known. `clock_offsets`: ns that turn the time of another clock into that of the trace's.
    """

    tables: list[SequenceTables] = field(default_factory=list)
    table_starts: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    tracks: TrackTable = field(default_factory=TrackTable)
    base_time: int = 0
    clock_offsets: dict[int, int] = field(default_factory=dict)
    resolved: ResolvedTracks = field(default_factory=ResolvedTracks)
    packets_seen: int = 0

    def find_table(self, sequence: int, location: int) -> int:
        """Return the index of the table that a sequence had at a packet; a new one where it has none yet."""
        known = self.table_starts.get(sequence)
        if known is None:
            return self._start_table(sequence, location)
        starts, tables = known
        return tables[max(bisect_right(starts, location) - 1, 0)]

    def find_last_table(self, sequence: int, location: int) -> int:
        """Return the index of the table that a sequence has now; a new one, from `location` on, where it has none."""
        known = self.table_starts.get(sequence)
        return self._start_table(sequence, location) if known is None else known[1][-1]

    def _start_table(self, sequence: int, location: int) -> int:
        starts, tables = self.table_starts.setdefault(sequence, ([], []))
        self.tables.append(SequenceTables())
        if starts and starts[-1] == location:  # the packet itself started it
            tables[-1] = len(self.tables) - 1
        else:
            starts.append(location)
            tables.append(len(self.tables) - 1)
        return tables[-1]

    def add_packet(self, packet: bytes, location: int) -> int:
        """Take over what a packet says about later ones; returns the index of its table from here on.

        `location`: of this packet. Raises WireError.
        """
        fields: dict[int, list[Value]] = {}
        for number, value in parse_fields(packet):
            fields.setdefault(number, []).append(value)
        sequence = _get_integer(fields, Packet.SEQUENCE)
        if _get_integer(fields, Packet.FLAGS) & FLAG_STATE_CLEARED or _get_integer(fields, Packet.STATE_CLEARED):
            self._start_table(sequence, location)
        index = self.find_last_table(sequence, location)
        table = self.tables[index]
        for number, values in fields.items():
            for value in values:
                if not isinstance(value, bytes):
                    continue
                if number == Packet.INTERNED_DATA:
                    table.add_interned_data(value)
                elif number == Packet.DEFAULTS:
                    table.add_defaults(value)
                elif number == Packet.TRACK_DESCRIPTOR:
                    self.tracks.add_descriptor(value)
                elif number == Packet.CLOCK_SNAPSHOT:
                    self._add_clocks(value)
        return index

    def to_trace_time(self, time: int, clock: int) -> int:
        """Convert a time of a clock, ns, to the trace's own; of an unknown clock it stays as it is."""
        return time + self.clock_offsets.get(clock, 0) - self.base_time

    def _add_clocks(self, data: bytes) -> None:
        """Take over a ClockSnapshot: times that several clocks showed at once. The first one fixes the offsets."""
        clocks: dict[int, int] = {}
        primary = _BOOTTIME
        for number, value in parse_fields(data):
            if number == 1 and isinstance(value, bytes):
                fields = dict(parse_fields(value))
                clock, time = fields.get(1, 0), fields.get(2, 0)
                scale = fields.get(4, 1)
                if isinstance(clock, int) and isinstance(time, int) and isinstance(scale, int) and time < 1 << 63:
                    clocks[clock] = time
            elif number == 2 and isinstance(value, int):
                primary = value
        is_first = not self.packets_seen
        if is_first and clocks.get(_BOOTTIME, 0) == clocks.get(_REALTIME, 1) > _MIN_EPOCH_NS:
            self.base_time = clocks[_BOOTTIME]  # torch calls its own base the time of both
        self.packets_seen += 1
        now = clocks.get(primary)
        if now is not None:
            for clock, time in clocks.items():
                self.clock_offsets.setdefault(clock, now - time)

    def to_json(self) -> dict[str, Any]:
        """Return all that `PacketReader` needs for a JSON file."""
        return {
            "tables": [table.to_json() for table in self.tables],
            "starts": {str(sequence): starts for sequence, starts in self.table_starts.items()},
            "tracks": self.tracks.to_json(),
            "base": self.base_time,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> PacketContext:
        """Restore the context from `to_json`."""
        context = cls(
            [SequenceTables.from_json(table) for table in fields["tables"]],
            {int(sequence): (list(starts), list(tables)) for sequence, (starts, tables) in fields["starts"].items()},
            TrackTable.from_json(fields["tracks"]),
            fields["base"],
        )
        context.resolved = context.tracks.resolve()
        return context


def _get_integer(fields: dict[int, list[Value]], number: int) -> int:
    """Return the last value of an integer field, 0 where it is missing. Raises WireError for bytes."""
    value = fields.get(number, [0])[-1]
    if not isinstance(value, int):
        raise WireError(f"field {number} is no number")
    return value
