"""Convert a packet of a chunk to the entries that it is."""

from __future__ import annotations

from torchprof_tui.trace.core.errors import TraceChangedError
from torchprof_tui.trace.perfetto_protobuf.packet_context import PacketContext as PacketContext
from torchprof_tui.trace.perfetto_protobuf.packet_context import make_location
from torchprof_tui.trace.perfetto_protobuf.packet_entries import Entry, convert_packet
from torchprof_tui.trace.perfetto_protobuf.wire_format import WireError, parse_fields, parse_varint
from torchprof_tui.trace.text.text_index import CHANGED_MESSAGE

_SEQUENCE_FIELD = 10


def convert_at(context: PacketContext, chunk: int, text: bytes, position: int) -> list[Entry]:
    """Convert the packet at a position of a chunk. Raises TraceChangedError where there is none."""
    try:
        size, begin = parse_varint(text, position + 1)
        packet = text[begin : begin + size]
        sequence = next((value for number, value in parse_fields(packet) if number == _SEQUENCE_FIELD), 0)
        table = context.find_table(sequence if isinstance(sequence, int) else 0, make_location(chunk, position))
        return convert_packet(packet, context.tables[table], context.tracks, context.resolved.find_ids).entries
    except WireError as error:
        raise TraceChangedError(CHANGED_MESSAGE) from error
