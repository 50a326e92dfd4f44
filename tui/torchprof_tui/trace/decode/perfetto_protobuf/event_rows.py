"""Read rows from the TrackEvents of many packets at once."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.decode.column_builder import ColumnBuilder
from torchprof_tui.trace.decode.interning import GROUP_OTHER
from torchprof_tui.trace.decode.perfetto_protobuf import wanted_args
from torchprof_tui.trace.decode.perfetto_protobuf.code_tables import PerTable
from torchprof_tui.trace.decode.perfetto_protobuf.event_codes import EventCodes
from torchprof_tui.trace.decode.perfetto_protobuf.packet_rows import ChunkPackets, Rows, last_values
from torchprof_tui.trace.model.raw_events import NO_DURATION
from torchprof_tui.trace.perfetto_protobuf import field_numbers
from torchprof_tui.trace.perfetto_protobuf.field_numbers import Annotation, Event
from torchprof_tui.trace.perfetto_protobuf.packet_context import PacketContext
from torchprof_tui.trace.perfetto_protobuf.wire_format import BYTES, VARINT, ScannedFields, scan_fields

_SLOW_FIELDS = np.zeros(64, np.bool_)
_SLOW_FIELDS[
    [
        Event.CATEGORIES,
        Event.NAME,
        Event.COUNTER,
        Event.DOUBLE_COUNTER,
        Event.FLOWS,
        Event.OLD_FLOWS,
        Event.ENDING_FLOWS,
        Event.OLD_ENDING_FLOWS,
    ]
] = True
"""Fields of TrackEvents that are read from one event at a time: text that is not interned, counters, flows."""

_NO_VALUE, _NUMBER, _OTHER_VALUE = range(3)


class EventRowReader:
    """Reads begins, ends and instants of slices."""

    def __init__(self, builder: ColumnBuilder, codes: EventCodes, context: PacketContext) -> None:
        self._builder = builder
        self._codes = codes
        self._context = context
        self._allowed = wanted_args.build_allowed()
        self._arg_codes = PerTable(self._find_arg)
        self.untyped = 0

    def read_rows(self, packets: ChunkPackets) -> Rows:
        """Read the rows of all packets with a TrackEvent that are not slow; marks further ones as slow."""
        packet, begin, end = packets.find_messages(field_numbers.Packet.TRACK_EVENT)
        fields = scan_fields(packets.buffer, begin, end)
        count = len(packet)
        slow = fields.damaged.copy()
        slow[fields.message[(fields.number < 64) & _SLOW_FIELDS[fields.number & 63]]] = True
        kind, odd_kind = last_values(fields, Event.TYPE, count, 0)
        track, odd_track = last_values(fields, Event.TRACK, count, 0)
        iid, odd_name = last_values(fields, Event.NAME_IID, count, -1)
        category_iid, odd_category = last_values(fields, Event.CATEGORY_IIDS, count, -1)
        slow |= odd_kind | odd_track | odd_name | odd_category | (kind == field_numbers.COUNTER) | (iid < -1)
        slow[self._find_repeated(fields, Event.CATEGORY_IIDS)] = True
        chosen = np.flatnonzero(fields.number == Event.ANNOTATIONS)
        owner, annotation_begin = fields.message[chosen], fields.begin[chosen]
        slow[owner[fields.wire[chosen] != BYTES]] = True
        without_category = (category_iid < 0) & (kind == field_numbers.BEGIN)
        slow[owner[without_category[owner]]] = True
        slow |= (category_iid < -1) | ((iid >= 0) & (iid >> 31 > 0)) | (category_iid >> 31 > 0)
        args = self._read_args(packets, packet, owner, annotation_begin, fields.value[chosen].view(np.int64), slow)

        packets.is_slow[packet[slow]] = True
        typed = (kind >= field_numbers.BEGIN) & (kind <= field_numbers.INSTANT)
        keep = typed & ~packets.is_slow[packet]
        self.untyped += int(np.count_nonzero(~typed & ~packets.is_slow[packet]))
        return self._build_rows(
            packets, packet[keep], kind[keep], track[keep], iid[keep], category_iid[keep], keep, args
        )

    def _build_rows(
        self,
        packets: ChunkPackets,
        packet: I64,
        kind: I64,
        track: I64,
        iid: I64,
        category_iid: I64,
        keep: Bool,
        args: tuple[I64, I64, I64],
    ) -> Rows:
        tables = packets.tables_of(packet)
        if not track.all():
            defaults = np.array([table.track for table in self._context.tables], np.uint64).view(np.int64)
            track = np.where(track == 0, defaults[tables], track)
        name = np.full(len(packet), self._codes.intern_name("") if (iid < 0).any() else 0, np.int32)
        named = np.flatnonzero(iid >= 0)
        name[named] = self._codes.names.look_up(_select(tables, named), iid[named])
        category = np.zeros(len(packet), np.int32)
        known = np.flatnonzero(category_iid >= 0)
        category[known] = self._codes.categories.look_up(_select(tables, known), category_iid[known])
        signature = self._codes.look_up_signatures(kind - 1, category, self._codes.look_up_tracks(track))
        owner, code, value = args
        row = np.cumsum(keep)[owner] - 1
        group = np.minimum(self._builder.groups(signature), GROUP_OTHER)
        wanted = np.flatnonzero(keep[owner])
        wanted = wanted[self._allowed[group[row[wanted]], code[wanted]]]
        correlation, columns = wanted_args.collect_columns(row[wanted], code[wanted], value[wanted], len(packet))
        return Rows(packet, signature, name, np.full(len(packet), NO_DURATION, np.int64), correlation, columns)

    def _read_args(
        self, packets: ChunkPackets, packet: I64, owner: I64, begin: I64, size: I64, slow: Bool
    ) -> tuple[I64, I64, I64]:
        """Read the wanted args of events: (event, code of the arg, value); events with others than integers are
        slow."""
        fields = scan_fields(packets.buffer, begin, begin + size)
        count = len(owner)
        slow[owner[fields.damaged]] = True
        code = np.full(count, -1, np.int64)
        inline = np.flatnonzero(fields.number == Annotation.NAME)
        inline = inline[fields.wire[inline] == BYTES]
        code[fields.message[inline]] = wanted_args.find_names(
            packets.words, fields.begin[inline], fields.value[inline].view(np.int64)
        )
        interned = np.flatnonzero((fields.number == Annotation.NAME_IID) & (fields.wire == VARINT))
        if len(interned):
            message, iid = fields.message[interned], fields.value[interned].view(np.int64)
            known = (iid >= 0) & (iid < 1 << 31)
            message, iid = message[known], iid[known]
            code[message] = self._arg_codes.look_up(packets.tables_of(packet[owner[message]]), iid) - 1
        value = np.zeros(count, np.int64)
        kind = np.zeros(count, np.uint8)
        values = np.flatnonzero(fields.number > Annotation.NAME_IID)
        values = values[fields.number[values] != Annotation.NAME]
        message, number = fields.message[values], fields.number[values]
        signed = fields.value[values].view(np.int64)
        is_integer = (number == Annotation.INT) | ((number == Annotation.UINT) & (signed >= 0))
        is_integer &= fields.wire[values] == VARINT
        value[message] = signed
        kind[message] = np.where(is_integer, _NUMBER, _OTHER_VALUE)
        several = message[1:][message[1:] == message[:-1]] if (np.diff(message) >= 0).all() else message
        kind[several] = _OTHER_VALUE if len(several) else kind[several]
        is_wanted = (code >= 0) & (code < wanted_args.MARK)
        slow[owner[is_wanted & (kind != _NUMBER)]] = True
        wanted = np.flatnonzero(is_wanted)
        return owner[wanted], code[wanted], value[wanted]

    def _find_arg(self, table: int, iid: int) -> int:
        """Return one more than the code of an interned arg name, 0 for names that are not wanted."""
        return 1 + wanted_args.CODE_OF_NAME.get(self._context.tables[table].annotation_names.get(iid, ""), -1)

    def _find_repeated(self, fields: ScannedFields, number: int) -> I64:
        """Return the messages that have a field more than once."""
        counts = np.bincount(fields.message[fields.number == number], minlength=1)
        return np.flatnonzero(counts > 1)


def _select(tables: I64 | int, rows: I64) -> I64 | int:
    return tables if isinstance(tables, int) else tables[rows]
