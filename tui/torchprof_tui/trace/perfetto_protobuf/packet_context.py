"""Tables that packets refer to and earlier packets filled: interned text, tracks, clocks.

A packet names its event, its category and its args by numbers of its sequence. A sequence is one writer of packets. It
may clear its tables at any packet, and then numbers anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torchprof_tui.trace.perfetto_protobuf.wire_format import (
    FLAG_STATE_CLEARED,
    Event,
    Interned,
    Packet,
    Value,
    get_number,
    parse_fields,
    to_signed,
)

_TEXTS = (
    Interned.NAMES,
    Interned.CATEGORIES,
    Interned.ANNOTATION_NAMES,
    Interned.STRINGS,
    Interned.GPU_SPECIFICATIONS,
    Interned.COMPUTE_ARGS,
)
"""Kinds of interned data that are a text: its number is field 1, the text field 2."""

COMPUTE = 2  # RenderStageCategory of kernels


def decode_text(value: Value) -> str:
    """Decode the text of a field; bytes that are not UTF-8 become \\xNN."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


@dataclass(slots=True)
class SequenceTables:
    """What the packets of one sequence refer to until it clears its state; all tables are by number (iid).

    `texts`: by kind of `Interned`, then by number; its specifications are names of GPU queues and stages.
    `stage_categories`: the category of each of these. `counters`: by descriptor, then by counter. `track`: of events
    that name none.
    """

    texts: dict[int, dict[int, str]] = field(default_factory=lambda: {kind: {} for kind in _TEXTS})
    stage_categories: dict[int, int] = field(default_factory=dict)
    counters: dict[int, dict[int, str]] = field(default_factory=dict)
    counter_gpus: dict[int, int] = field(default_factory=dict)
    track: int = 0
    clock: int = 0

    def add_interned_data(self, data: bytes) -> None:
        """Add the entries of an InternedData message. Raises WireError."""
        for number, value in parse_fields(data):
            if not isinstance(value, bytes):
                continue
            if number != Interned.GPU_COUNTERS and number not in self.texts:
                continue
            fields = dict(parse_fields(value))
            iid, described = fields.get(1, 0), fields.get(2, b"")
            if not isinstance(iid, int):
                continue
            if number in self.texts:
                self.texts[number][iid] = decode_text(described)
                if number == Interned.GPU_SPECIFICATIONS and isinstance(fields.get(4), int):
                    self.stage_categories[iid] = int(fields[4])
            elif isinstance(described, bytes) and 2 in fields:
                self.counters[iid] = parse_counter_names(described)
                gpu = fields.get(3, 0)
                self.counter_gpus[iid] = gpu if isinstance(gpu, int) else 0

    def add_defaults(self, data: bytes) -> None:
        """Take over the defaults of a TracePacketDefaults message. Raises WireError."""
        for number, value in parse_fields(data):
            if number == 58 and isinstance(value, int):
                self.clock = value
            elif number == 11 and isinstance(value, bytes):
                track = dict(parse_fields(value)).get(Event.TRACK)
                self.track = track if isinstance(track, int) else self.track


def parse_counter_names(descriptor: bytes) -> dict[int, str]:
    """Parse the names of counters, by their number, of a GpuCounterDescriptor. Raises WireError."""
    names = {}
    for number, value in parse_fields(descriptor):
        if number == 1 and isinstance(value, bytes):
            fields = dict(parse_fields(value))
            counter = fields.get(1, 0)
            if isinstance(counter, int):
                names[counter] = decode_text(fields.get(2, b""))
    return names


_MAX_PARENTS = 64

_PROFILER_PID = "2147483647"  # how torch writes the pid -1 of CUPTI's overhead: without its sign bit

_PROFILER_NAME = "Overhead"


@dataclass(slots=True)
class Track:
    """A track as described. `process`, `thread`: (pid, name), (pid, tid, name); None where it is neither."""

    parent: int = 0
    name: str = ""
    process: tuple[str, str] | None = None
    thread: tuple[str, str, str] | None = None
    is_counter: bool = False


@dataclass(slots=True)
class TrackTable:
    """All described tracks by uuid."""

    tracks: dict[int, Track] = field(default_factory=dict)

    def add_descriptor(self, data: bytes) -> None:
        """Add a TrackDescriptor message, or add to what an earlier one said of the track. Raises WireError."""
        fields = dict(parse_fields(data))
        uuid = fields.get(1, 0)
        if not isinstance(uuid, int):
            return
        track = self.tracks.setdefault(uuid, Track())
        parent = fields.get(5)
        track.parent = parent if isinstance(parent, int) else track.parent
        for number in (2, 10, 13):  # name, static_name, atrace_name
            if number in fields:
                track.name = decode_text(fields[number])
        process, thread = fields.get(3), fields.get(4)
        if isinstance(process, bytes):
            values = dict(parse_fields(process))
            track.process = _format_id(values.get(1, 0)), decode_text(values.get(6, b""))
        if isinstance(thread, bytes):
            values = dict(parse_fields(thread))
            track.thread = (_format_id(values.get(1, 0)), _format_id(values.get(2, 0)), decode_text(values.get(5, b"")))
        track.is_counter = track.is_counter or 8 in fields

    def resolve(self) -> ResolvedTracks:
        """Give every track the pid and tid under which its events are shown."""
        resolved = ResolvedTracks()
        taken: set[tuple[str, str]] = set()
        profiler = (_PROFILER_PID, _PROFILER_NAME)
        pids = {_PROFILER_PID: "-1"} if any(track.process == profiler for track in self.tracks.values()) else {}
        for uuid, track in self.tracks.items():
            if track.thread is not None:
                pid, tid, name = track.thread
                resolved.ids[uuid] = pids.get(pid, pid), tid
                taken.add(resolved.ids[uuid])
                resolved.thread_names[resolved.ids[uuid]] = name or track.name
            elif track.process is not None:
                pid = pids.get(track.process[0], track.process[0])
                resolved.process_names[pid] = track.process[1] or track.name
        for uuid, track in self.tracks.items():
            if track.thread is None:
                resolved.ids[uuid] = self._find_free_ids(uuid, track, taken, pids)
                taken.add(resolved.ids[uuid])
                if not track.is_counter:
                    resolved.thread_names[resolved.ids[uuid]] = track.name
        return resolved

    def _find_free_ids(
        self, uuid: int, track: Track, taken: set[tuple[str, str]], pids: dict[str, str]
    ) -> tuple[str, str]:
        """Find a pid and a tid, its name, for a track that is no thread: none that another track has.

        `pids`: the shown pid by the described one, where they differ.
        """
        pid = ""
        ancestor: Track | None = track
        for _ in range(_MAX_PARENTS):
            if ancestor is None:
                break
            if ancestor.process is not None or ancestor.thread is not None:
                pid = (ancestor.process or ancestor.thread or ("",))[0]
                pid = pids.get(pid, pid)
                break
            ancestor = self.tracks.get(ancestor.parent)
        name = "" if track.process is not None else track.name or str(uuid)
        if track.is_counter or (pid, name) not in taken:
            return pid, name
        return pid, f"{name} {uuid}"


@dataclass(slots=True)
class ResolvedTracks:
    """`ids`: uuid → (pid, tid). Names of processes by pid and of threads by (pid, tid)."""

    ids: dict[int, tuple[str, str]] = field(default_factory=dict)
    process_names: dict[str, str] = field(default_factory=dict)
    thread_names: dict[tuple[str, str], str] = field(default_factory=dict)


def _format_id(value: int | bytes) -> str:
    return str(to_signed(value)) if isinstance(value, int) else ""


_REALTIME, _BOOTTIME = 1, 6
_MIN_EPOCH_NS = 10**18  # 2001: boot times are less


@dataclass(slots=True)
class PacketContext:
    """The state of all sequences and tracks.

    `tables`: those that each sequence has now; `all_tables`: every one there was. `base_time`: ns, what torch subtracts
    from times. `clock_offsets`: ns that turn the time of another clock into that of the trace's.
    """

    tables: dict[int, SequenceTables] = field(default_factory=dict)
    all_tables: list[SequenceTables] = field(default_factory=list)
    tracks: TrackTable = field(default_factory=TrackTable)
    base_time: int = 0
    clock_offsets: dict[int, int] = field(default_factory=dict)
    packets_seen: int = 0

    def find_tables(self, sequence: int) -> SequenceTables:
        """Return the tables that a sequence has now; new ones where it has none yet."""
        return self.tables.get(sequence) or self._start_tables(sequence)

    def _start_tables(self, sequence: int) -> SequenceTables:
        tables = self.tables[sequence] = SequenceTables()
        self.all_tables.append(tables)
        return tables

    def add_packet(self, fields: Sequence[tuple[int, Value]]) -> SequenceTables:
        """Take over what a packet says about later ones; returns the tables of its sequence. Raises WireError."""
        last = dict(fields)
        sequence = get_number(last, Packet.SEQUENCE)
        if get_number(last, Packet.FLAGS) & FLAG_STATE_CLEARED or get_number(last, Packet.STATE_CLEARED):
            self._start_tables(sequence)
        tables = self.find_tables(sequence)
        add_value = {
            Packet.INTERNED_DATA: tables.add_interned_data,
            Packet.DEFAULTS: tables.add_defaults,
            Packet.TRACK_DESCRIPTOR: self.tracks.add_descriptor,
            Packet.CLOCK_SNAPSHOT: self._add_clocks,
        }
        for number, value in fields:
            if number in add_value and isinstance(value, bytes):
                add_value[number](value)
        return tables

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
