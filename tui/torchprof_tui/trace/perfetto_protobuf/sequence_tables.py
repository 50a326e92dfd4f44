"""Tables of interned text: a packet names its event, its category and its args by numbers of its sequence.

A sequence is one writer of packets. It may clear its tables at any packet, and then numbers anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torchprof_tui.trace.perfetto_protobuf.field_numbers import Event, Interned
from torchprof_tui.trace.perfetto_protobuf.wire_format import Value, parse_fields

_TEXT_TABLES = {
    Interned.NAMES: ("names", 2),
    Interned.CATEGORIES: ("categories", 2),
    Interned.ANNOTATION_NAMES: ("annotation_names", 2),
    Interned.STRINGS: ("strings", 2),
    Interned.GPU_SPECIFICATIONS: ("specifications", 2),
    Interned.COMPUTE_ARGS: ("compute_args", 2),
}
"""The table and the field of the text of each kind of interned data; field 1 is always the number."""

COMPUTE = 2
"""RenderStageCategory of kernels."""


def decode_text(value: Value) -> str:
    """Decode the text of a field; bytes that are not UTF-8 become \\xNN."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


@dataclass(slots=True)
class SequenceTables:
    """What the packets of one sequence refer to until it clears its state; all tables are by number (iid).

    `specifications`: names of GPU queues and stages; `stage_categories`: the category of each. `counters`: by
    descriptor, then by counter. `track`: of events that name none.
    """

    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    annotation_names: dict[int, str] = field(default_factory=dict)
    strings: dict[int, str] = field(default_factory=dict)
    specifications: dict[int, str] = field(default_factory=dict)
    stage_categories: dict[int, int] = field(default_factory=dict)
    compute_args: dict[int, str] = field(default_factory=dict)
    counters: dict[int, dict[int, str]] = field(default_factory=dict)
    counter_gpus: dict[int, int] = field(default_factory=dict)
    track: int = 0
    clock: int = 0

    def add_interned_data(self, data: bytes) -> None:
        """Add the entries of an InternedData message. Raises WireError."""
        for number, value in parse_fields(data):
            if not isinstance(value, bytes):
                continue
            if number == Interned.GPU_COUNTERS:
                self._add_counter_descriptor(value)
            elif number in _TEXT_TABLES:
                table, text_field = _TEXT_TABLES[number]
                fields = dict(parse_fields(value))
                iid = fields.get(1, 0)
                if isinstance(iid, int):
                    getattr(self, table)[iid] = decode_text(fields.get(text_field, b""))
                    if number == Interned.GPU_SPECIFICATIONS and isinstance(fields.get(4), int):
                        self.stage_categories[iid] = int(fields[4])

    def add_defaults(self, data: bytes) -> None:
        """Take over the defaults of a TracePacketDefaults message. Raises WireError."""
        for number, value in parse_fields(data):
            if number == 58 and isinstance(value, int):
                self.clock = value
            elif number == 11 and isinstance(value, bytes):
                track = dict(parse_fields(value)).get(Event.TRACK)
                self.track = track if isinstance(track, int) else self.track

    def _add_counter_descriptor(self, data: bytes) -> None:
        fields = dict(parse_fields(data))
        descriptor, iid = fields.get(2), fields.get(1, 0)
        if isinstance(descriptor, bytes) and isinstance(iid, int):
            self.counters[iid] = parse_counter_names(descriptor)
            gpu = fields.get(3, 0)
            self.counter_gpus[iid] = gpu if isinstance(gpu, int) else 0

    def to_json(self) -> dict[str, Any]:
        """Return the tables for a JSON file."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> SequenceTables:
        """Restore tables from `to_json`, whose keys JSON has made text."""

        def restore(value: Any) -> Any:
            return {int(key): restore(item) for key, item in value.items()} if isinstance(value, dict) else value

        return cls(**{name: restore(value) for name, value in fields.items()})


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
