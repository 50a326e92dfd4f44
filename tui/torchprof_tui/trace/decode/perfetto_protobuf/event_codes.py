"""Codes of the names, categories and tracks of events, for `ColumnBuilder`."""

from __future__ import annotations

from functools import partial

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.decode.column_builder import ColumnBuilder
from torchprof_tui.trace.decode.perfetto_protobuf.code_tables import CodeLookup, PerTable
from torchprof_tui.trace.perfetto_protobuf.packet_context import PacketContext
from torchprof_tui.trace.perfetto_protobuf.render_stages import name_category, split_queue_name

PHASES = "BEiXC"
"""Phases of rows, in the order of their codes."""

TRACK_MARK = "\0"
"""What pids begin with until all tracks are known; the number of the track follows."""

_FEW_CATEGORIES, _MANY_CATEGORIES = 256, 1 << 32
"""Categories that the numbers of signatures have room for: few, so that these numbers stay small."""


def make_placeholder(uuid: int) -> tuple[str, str]:
    """Make the pid and tid of a track that stand for it until all tracks are known."""
    return f"{TRACK_MARK}{uuid}", str(uuid)


class EventCodes:
    """Interns text in the order in which events use it, so that every code is the builder's."""

    def __init__(self, builder: ColumnBuilder, context: PacketContext) -> None:
        self._builder = builder
        self._context = context
        self.names = PerTable(self._find_name)
        self.categories = PerTable(self._find_category)
        self.tracks = CodeLookup(self._find_track)
        self.stage_categories = PerTable(self._find_stage_category)
        self.stage_names = PerTable(self._find_stage_name)
        self.queues = PerTable(self._find_queue)
        self.queue_numbers = PerTable(self._find_queue_number)
        self.counter_names = PerTable(self._find_counter_name)
        self.counter_tracks = CodeLookup(lambda gpu: self.intern_track(f"GPU {gpu} Counters", ""))
        self.counter_gpus = PerTable(lambda table, key: self._context.tables[table].counter_gpus.get(key, 0))
        self._categories = [""]
        self._category_codes = {"": 0}
        self._tracks: list[tuple[str, str]] = []
        self._gpu_tracks: dict[tuple[str, str], None] = {}
        self._track_codes: dict[tuple[str, str], int] = {}
        self._signatures = {
            width: CodeLookup(partial(self._find_signature, width=width))
            for width in (_FEW_CATEGORIES, _MANY_CATEGORIES)
        }

    def intern_name(self, name: str) -> int:
        """Return the code of a name."""
        return self._builder.intern_name(name)

    def intern_category(self, category: str) -> int:
        """Return the code of a category; 0 is the empty one."""
        code = self._category_codes.setdefault(category, len(self._categories))
        if code == len(self._categories):
            self._categories.append(category)
        return code

    def intern_track(self, pid: str, tid: str) -> int:
        """Return the code of a pid and a tid."""
        code = self._track_codes.setdefault((pid, tid), len(self._tracks))
        if code == len(self._tracks):
            self._tracks.append((pid, tid))
        return code

    def gpu_tracks(self) -> list[tuple[str, str]]:
        """Return the pids and tids of GPU work that were met."""
        return list(self._gpu_tracks)

    def look_up_tracks(self, uuids: I64) -> I32:
        """Return the code of the track of each event."""
        if len(uuids) and int(uuids.min()) < 0:  # numbers from 2^63 on
            distinct, index = np.unique(uuids, return_inverse=True)
            codes = [self._find_track(uuid & 0xFFFFFFFFFFFFFFFF) for uuid in distinct.tolist()]
            return np.array(codes, np.int32)[index]
        return self.tracks.look_up(uuids)

    def look_up_signatures(self, phase: I64 | int, category: I32, track: I32) -> I32:
        """Return the builder's code of each combination of phase, category and track."""
        width = _FEW_CATEGORIES if len(self._categories) <= _FEW_CATEGORIES else _MANY_CATEGORIES
        key = track.astype(np.int64) * width
        key += category
        key *= len(PHASES)
        key += phase
        return self._signatures[width].look_up(key)

    def _find_signature(self, key: int, width: int) -> int:
        rest, phase = divmod(key, len(PHASES))
        track, category = divmod(rest, width)
        pid, tid = self._tracks[track]
        return self._builder.intern_signature(PHASES[phase], self._categories[category], pid, tid)

    def _find_name(self, table: int, iid: int) -> int:
        name = self._context.tables[table].names.get(iid)
        return self.intern_name(f"name {iid}" if name is None else name)

    def _find_category(self, table: int, iid: int) -> int:
        return self.intern_category(self._context.tables[table].categories.get(iid, ""))

    def _find_track(self, uuid: int) -> int:
        return self.intern_track(*make_placeholder(uuid))

    def _find_stage_category(self, table: int, iid: int) -> int:
        tables = self._context.tables[table]
        name = tables.specifications.get(iid, "")
        return self.intern_category(name_category(name, tables.stage_categories.get(iid, 0)))

    def _find_stage_name(self, table: int, iid: int) -> int:
        return self.intern_name(self._context.tables[table].specifications.get(iid, ""))

    def _find_queue(self, table: int, key: int) -> int:
        """Find the track of a GPU's queue. `key`: iid << 20 | GPU."""
        track = str(key & 0xFFFFF), self._find_tid(table, key >> 20)
        self._gpu_tracks[track] = None
        return self.intern_track(*track)

    def _find_queue_number(self, table: int, iid: int) -> int:
        """Find the number of the stream of a queue, -1 where it has none."""
        tid = self._find_tid(table, iid)
        return int(tid) if tid.isdecimal() and len(tid) < 10 else -1

    def _find_tid(self, table: int, iid: int) -> str:
        return split_queue_name(self._context.tables[table].specifications.get(iid, str(iid)))[0]

    def _find_counter_name(self, table: int, key: int) -> int:
        """Find the name of a GPU's counter. `key`: iid of the descriptor << 32 | counter."""
        counter = key & 0xFFFFFFFF
        names = self._context.tables[table].counters.get(key >> 32, {})
        return self.intern_name(names.get(counter, f"counter {counter}"))
