"""Read the times of packets, on the trace's clock."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.decode.perfetto_protobuf.packet_rows import ChunkPackets, last_values
from torchprof_tui.trace.model.raw_events import NO_TIME
from torchprof_tui.trace.perfetto_protobuf.field_numbers import Packet
from torchprof_tui.trace.perfetto_protobuf.packet_context import PacketContext

_MAX_TIME = 1 << 62
"""146 years, ns: later times are none."""


def read_times(packets: ChunkPackets, context: PacketContext) -> I64:
    """Return the time of each packet, int64[n], ns; NO_TIME where it has none."""
    time, odd = last_values(packets.fields, Packet.TIMESTAMP, packets.count, -1)
    missing = odd | (time < 0) | (time >= _MAX_TIME)
    clock, _ = last_values(packets.fields, Packet.CLOCK, packets.count, -1)
    defaults = np.array([table.clock for table in context.tables], np.uint64).view(np.int64)
    if (clock >= 0).any() or defaults.any():
        clock = np.where(clock < 0, defaults[packets.table], clock)
        for one in np.unique(clock).tolist():
            time[clock == one] += context.clock_offsets.get(one, 0)
    time -= context.base_time
    time[missing] = NO_TIME
    return time
