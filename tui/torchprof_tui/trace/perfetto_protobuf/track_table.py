"""The tracks that a Perfetto trace describes, as processes and threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torchprof_tui.trace.perfetto_protobuf.sequence_tables import decode_text
from torchprof_tui.trace.perfetto_protobuf.wire_format import parse_fields, to_signed

_MAX_PARENTS = 64

_PROFILER_PID = "2147483647"
"""How torch writes the pid -1 of CUPTI's overhead: without its sign bit."""

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
            track.thread = (
                _format_id(values.get(1, 0)),
                _format_id(values.get(2, 0)),
                decode_text(values.get(5, b"")),
            )
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

    def find_counter_name(self, uuid: int) -> str:
        """Return the name of a counter's track."""
        track = self.tracks.get(uuid)
        return track.name if track is not None and track.name else f"counter {uuid}"

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

    def to_json(self) -> dict[str, Any]:
        """Return the tracks for a JSON file."""
        return {
            str(uuid): [track.parent, track.name, track.process, track.thread, track.is_counter]
            for uuid, track in self.tracks.items()
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> TrackTable:
        """Restore the tracks from `to_json`."""
        return cls(
            {
                int(uuid): Track(parent, name, process and tuple(process), thread and tuple(thread), is_counter)
                for uuid, (parent, name, process, thread, is_counter) in fields.items()
            }
        )


@dataclass(slots=True)
class ResolvedTracks:
    """`ids`: uuid → (pid, tid). Names of processes by pid and of threads by (pid, tid)."""

    ids: dict[int, tuple[str, str]] = field(default_factory=dict)
    process_names: dict[str, str] = field(default_factory=dict)
    thread_names: dict[tuple[str, str], str] = field(default_factory=dict)

    def find_ids(self, uuid: int) -> tuple[str, str]:
        """Return the pid and the tid of a track; of one that no packet describes, its number as tid."""
        return self.ids.get(uuid) or ("", str(uuid) if uuid else "")


def _format_id(value: int | bytes) -> str:
    """Format an int32 or int64 id."""
    return str(to_signed(value)) if isinstance(value, int) else ""
