"""Read rows from the GpuRenderStageEvents and GpuCounterEvents of many packets at once."""

from __future__ import annotations

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Array, Bool
from torchprof_tui.trace.decode.perfetto_protobuf import wanted_args
from torchprof_tui.trace.decode.perfetto_protobuf.code_tables import PerTable
from torchprof_tui.trace.decode.perfetto_protobuf.event_codes import PHASES, EventCodes
from torchprof_tui.trace.decode.perfetto_protobuf.packet_rows import ChunkPackets, Rows, last_values, merge_rows
from torchprof_tui.trace.decode.perfetto_protobuf.wanted_args import CODE_OF_NAME, merge_arg
from torchprof_tui.trace.model.raw_events import NO_DURATION
from torchprof_tui.trace.perfetto_protobuf.field_numbers import Packet, Stage
from torchprof_tui.trace.perfetto_protobuf.packet_context import PacketContext
from torchprof_tui.trace.perfetto_protobuf.render_stages import ANNOTATION_CATEGORY, ZERO_ARGS
from torchprof_tui.trace.perfetto_protobuf.wire_format import BYTES, FIXED64, VARINT, ScannedFields, scan_fields

_MAX_GPU = 1 << 20
_COMPLETE, _POINT = PHASES.index("X"), PHASES.index("C")
_REGISTERS = 1
_CLASHING = [CODE_OF_NAME[name] for name in ("device", "stream", "grid", "block", "registers per thread")]
"""Args that have fields of their own: extra data of these names is left to the slow reader."""


class StageRowReader:
    """Reads GPU work."""

    def __init__(self, codes: EventCodes, context: PacketContext) -> None:
        self._codes = codes
        self._context = context
        self._launch_args = PerTable(self._find_launch_arg)
        self._zero_bytes = [codes.intern_category(name) for name, args in ZERO_ARGS.items() if "bytes" in args]
        self._zero_correlation = [codes.intern_category(name) for name in ZERO_ARGS]
        self._host_node = codes.intern_category("graph_host_node")
        self._annotation = codes.intern_category(ANNOTATION_CATEGORY)

    def read_rows(self, packets: ChunkPackets) -> Rows:
        """Read the rows of all packets with GPU work that are not slow; marks further ones as slow."""
        packet, begin, end = packets.find_messages(Packet.RENDER_STAGE)
        if not len(packet):
            return merge_rows([])
        fields = scan_fields(packets.buffer, begin, end)
        count = len(packet)
        slow = fields.damaged.copy()
        slow[fields.message[fields.number == Stage.NAME]] = True
        numbers: dict[int, I64] = {}
        for number, default in (
            (Stage.DURATION, 0),
            (Stage.STAGE_IID, 0),
            (Stage.QUEUE_IID, 0),
            (Stage.GPU, 0),
            (Stage.NAME_IID, -1),
        ):
            numbers[number], odd = last_values(fields, number, count, default)
            slow |= odd | (numbers[number] < default) | (numbers[number] >> 62 > 0)
        for number in (Stage.STAGE_IID, Stage.QUEUE_IID, Stage.NAME_IID, Stage.GPU):
            slow |= numbers[number] >= (_MAX_GPU if number == Stage.GPU else 1 << 31)
        for number in numbers:
            numbers[number][slow] = 0
        tables = packets.tables_of(packet)
        category = self._codes.stage_categories.look_up(tables, numbers[Stage.STAGE_IID])
        slow |= category == self._host_node  # named by its function
        extra = self._read_extra(packets, fields, slow)
        launch = self._read_launches(packets, fields, tables, slow)
        packets.is_slow[packet[slow]] = True
        keep = ~packets.is_slow[packet]
        return self._build_rows(packets, packet, numbers, category, extra, launch).select(keep)

    def _build_rows(
        self,
        packets: ChunkPackets,
        packet: I64,
        numbers: dict[int, I64],
        category: I32,
        extra: tuple[I64, I64, I64],
        launch: dict[str, tuple[I64, Array]],
    ) -> Rows:
        tables = packets.tables_of(packet)
        count = len(packet)
        gpu = numbers[Stage.GPU]
        queue = numbers[Stage.QUEUE_IID]
        track = self._codes.queues.look_up(tables, (queue << 20) | gpu)
        stream = self._codes.queue_numbers.look_up(tables, queue).astype(np.int64)
        name = np.zeros(count, np.int32)
        for lookup, number, rows in (
            (self._codes.names, Stage.NAME_IID, np.flatnonzero(numbers[Stage.NAME_IID] >= 0)),
            (self._codes.stage_names, Stage.STAGE_IID, np.flatnonzero(numbers[Stage.NAME_IID] < 0)),
        ):
            name[rows] = lookup.look_up(tables if isinstance(tables, int) else tables[rows], numbers[number][rows])
        row, code, value = extra
        from_torch = np.zeros(count, np.bool_)
        from_torch[row[code == wanted_args.MARK]] = True
        correlation, args = wanted_args.collect_columns(row, code, value, count)
        correlation[(correlation == -1) & from_torch & np.isin(category, self._zero_correlation)] = 0
        sized = np.flatnonzero(from_torch & np.isin(category, self._zero_bytes))
        if len(sized):
            with_zeros = merge_arg(None, sized, np.zeros(len(sized), np.int64), count)
            args["bytes"] = merge_arg(with_zeros, *args["bytes"], count) if "bytes" in args else with_zeros
        is_work = category != self._annotation
        work = np.flatnonzero(is_work)
        args["device"] = work, gpu[work]
        numbered = np.flatnonzero(is_work & (stream >= 0))
        args["stream"] = numbered, stream[numbered]
        args |= launch
        signature = self._codes.look_up_signatures(_COMPLETE, category, track)
        args = {arg: column for arg, column in args.items() if len(column[0])}
        return Rows(packet, signature, name, numbers[Stage.DURATION], correlation, args)

    def _read_extra(self, packets: ChunkPackets, fields: ScannedFields, slow: Bool) -> tuple[I64, I64, I64]:
        """Read the wanted extra data: (stage, code of the arg, value); stages with other text than a number are
        slow."""
        chosen = np.flatnonzero(fields.number == Stage.EXTRA)
        owner, begin = fields.message[chosen], fields.begin[chosen]
        has_bytes = fields.wire[chosen] == BYTES
        slow[owner[~has_bytes]] = True
        extra = scan_fields(packets.buffer, begin, begin + fields.value[chosen].view(np.int64) * has_bytes)
        slow[owner[extra.damaged]] = True
        code = np.full(len(owner), -1, np.int64)
        names = np.flatnonzero((extra.number == 1) & (extra.wire == BYTES))
        size = extra.value.view(np.int64)
        code[extra.message[names]] = wanted_args.find_names(packets.words, extra.begin[names], size[names])
        wanted = np.flatnonzero(code >= 0)
        text_begin, text_size = np.zeros(len(owner), np.int64), np.zeros(len(owner), np.int64)
        texts = np.flatnonzero((extra.number == 2) & (extra.wire == BYTES))
        text_begin[extra.message[texts]], text_size[extra.message[texts]] = extra.begin[texts], size[texts]
        value, good = wanted_args.parse_digits(packets.buffer, text_begin[wanted], text_size[wanted])
        slow[owner[wanted[~good | np.isin(code[wanted], _CLASHING)]]] = True
        return owner[wanted], code[wanted], value

    def _read_launches(
        self, packets: ChunkPackets, fields: ScannedFields, tables: I64 | int, slow: Bool
    ) -> dict[str, tuple[I64, Array]]:
        """Read the sizes of kernels: columns `grid`, `block` and `registers`, by stage."""
        chosen = np.flatnonzero(fields.number == Stage.LAUNCH)
        stage, begin = fields.message[chosen], fields.begin[chosen]
        slow[stage[fields.wire[chosen] != BYTES]] = True
        slow[np.flatnonzero(np.bincount(stage, minlength=1) > 1)] = True
        launch = scan_fields(packets.buffer, begin, begin + fields.value[chosen].view(np.int64))
        slow[stage[launch.damaged]] = True
        columns: dict[str, tuple[I64, Array]] = {}
        for number, column in ((1, "grid"), (2, "block")):
            sizes = np.flatnonzero((launch.number == number) & (launch.wire == BYTES))
            owner, size_begin = launch.message[sizes], launch.begin[sizes]
            axes = scan_fields(packets.buffer, size_begin, size_begin + launch.value[sizes].view(np.int64))
            slow[stage[owner[axes.damaged]]] = True
            values = np.stack([last_values(axes, axis, len(owner), 0)[0] for axis in (1, 2, 3)], axis=1)
            order = np.argsort(stage[owner], kind="stable")
            columns[column] = stage[owner][order], values[order]
        columns["registers"] = self._read_registers(packets, launch, stage, tables, columns["block"][0], slow)
        return columns

    def _read_registers(
        self, packets: ChunkPackets, launch: ScannedFields, stage: I64, tables: I64 | int, with_block: I64, slow: Bool
    ) -> tuple[I64, Array]:
        """Read the registers per thread, 0 where a launch leaves them out."""
        chosen = np.flatnonzero((launch.number == 3) & (launch.wire == BYTES))
        owner, begin = stage[launch.message[chosen]], launch.begin[chosen]
        args = scan_fields(packets.buffer, begin, begin + launch.value[chosen].view(np.int64))
        slow[owner[args.damaged]] = True
        slow[owner[args.message[(args.number == 2) | (args.wire != VARINT)]]] = True
        iid = last_values(args, 1, len(owner), 0)[0]
        slow[owner[(iid < 0) | (iid >= 1 << 31)]] = True
        iid[(iid < 0) | (iid >= 1 << 31)] = 0
        value = np.zeros(len(owner), np.int64)
        numbers = np.flatnonzero((args.number == 3) | (args.number == 4))
        value[args.message[numbers]] = args.value[numbers].view(np.int64)
        kind = self._launch_args.look_up(tables if isinstance(tables, int) else tables[owner], iid)
        registers = np.flatnonzero(kind == _REGISTERS)
        result = np.zeros(int(with_block.max(initial=-1)) + 1, np.int64)
        within = registers[owner[registers] < len(result)]
        result[owner[within]] = value[within]
        return with_block, result[with_block]

    def _find_launch_arg(self, table: int, iid: int) -> int:
        return int(self._context.tables[table].compute_args.get(iid) == "registers_per_thread")


class CounterRowReader:
    """Reads points of GPU counters."""

    def __init__(self, codes: EventCodes) -> None:
        self._codes = codes

    def read_rows(self, packets: ChunkPackets) -> Rows:
        """Read the rows of all packets with one point of a counter that are not slow; marks further ones as slow."""
        packet, begin, end = packets.find_messages(Packet.GPU_COUNTER)
        if not len(packet):
            return merge_rows([])
        fields = scan_fields(packets.buffer, begin, end)
        count = len(packet)
        slow = fields.damaged.copy()
        slow[fields.message[fields.number == 1]] = True  # with a descriptor of its own
        descriptor, odd = last_values(fields, 4, count, -1)
        slow |= odd | (descriptor < 0) | (descriptor >= 1 << 30)
        gpu, odd = last_values(fields, 3, count, -1)
        slow |= odd | (gpu < -1) | (gpu >= _MAX_GPU)
        chosen = np.flatnonzero((fields.number == 2) & (fields.wire == BYTES))
        slow |= np.bincount(fields.message[chosen], minlength=count) != 1
        owner, point_begin = fields.message[chosen], fields.begin[chosen]
        point = scan_fields(packets.buffer, point_begin, point_begin + fields.value[chosen].view(np.int64))
        slow[owner[point.damaged]] = True
        counter, odd = last_values(point, 1, len(owner), 0)
        slow[owner[odd | (counter < 0) | (counter >= 1 << 31)]] = True
        value = np.full(count, np.nan)
        integers = np.flatnonzero((point.number == 2) & (point.wire == VARINT))
        value[owner[point.message[integers]]] = point.value[integers].view(np.int64)
        doubles = np.flatnonzero((point.number == 3) & (point.wire == FIXED64))
        value[owner[point.message[doubles]]] = point.value[doubles].view(np.float64)
        slow |= ~np.isfinite(value)
        counter_of = np.zeros(count, np.int64)
        counter_of[owner] = counter
        packets.is_slow[packet[slow]] = True
        keep = ~packets.is_slow[packet]
        packet, descriptor, gpu, counter, value = (
            packet[keep],
            descriptor[keep],
            gpu[keep],
            counter_of[keep],
            value[keep],
        )
        tables = packets.tables_of(packet)
        name = self._codes.counter_names.look_up(tables, descriptor << 32 | counter)
        gpu = np.where(gpu < 0, self._codes.counter_gpus.look_up(tables, descriptor), gpu)
        track = self._codes.counter_tracks.look_up(gpu)
        signature = self._codes.look_up_signatures(_POINT, np.zeros(len(packet), np.int32), track)
        nothing = np.full(len(packet), -1, np.int64)
        return Rows(packet, signature, name, np.full(len(packet), NO_DURATION, np.int64), nothing, {}, value)
