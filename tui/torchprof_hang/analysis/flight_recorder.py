"""Read dumps of torch's flight recorder, as pickles and JSON, of versions 2.0 to 2.10, from NCCL and gloo.

torch writes them in `torch/csrc/distributed/c10d/FlightRecorder`. Version 2.0 has one sequence number per entry and no
groups; 2.1 named the group, 2.2 told point-to-point operations apart, 2.3 listed the members of groups. gloo never
records that an operation started or completed, only that it is `retired`, also when it failed; and of its groups only
the last, without a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torchprof_hang.analysis.records import Operation, RankRecord, Sizes, State
from torchprof_tui.analysis.memory.snapshots.primitive_pickle import load_plain_pickle

MAX_ENTRIES = 1_000_000
_PEER = re.compile(r"(send|recv)(?:\s+(\d+)\s*(->|<-)\s*(\d+))?")
_UNEVEN = ("all_to_all", "alltoall")  # operations whose ranks may bring different sizes
_INPUTS, _OUTPUTS = ("gather", "reduce"), ("scatter", "broadcast")
"""Operations that have outputs, or inputs, on one rank only."""
_STATES = {"scheduled": State.SCHEDULED, "started": State.STARTED, "completed": State.COMPLETED}


class NoDumpError(ValueError):
    """The content is no dump of a flight recorder; `str()` is one line."""


def read_pickle(data: bytes, record: RankRecord) -> None:
    """Read a pickled dump into a record. Raises UnsafePickleError, before anything is run, or NoDumpError."""
    read_dump(load_plain_pickle(data, text_pairs=True), record)


def read_dump(content: Any, record: RankRecord) -> None:
    """Read the content of a dump into a record. Raises NoDumpError."""
    if not isinstance(content, dict) or not isinstance(content.get("entries"), list):
        raise NoDumpError("not a dump of torch's flight recorder: it has no entries")
    if not str(content.get("version", "")).startswith("2."):
        raise NoDumpError(f"a flight recorder of version {content.get('version')}, and 2.0 to 2.10 are known")
    record.has_recorder = True
    for name, each in _as_dict(content.get("pg_config")).items():
        ranks = _as_dict(each).get("ranks")
        found = tuple(int(number) for number in re.findall(r"\d{1,7}", str(ranks)))
        if name and found:
            record.members[str(name)] = found
        record.world_size = max(record.world_size, max(found, default=-1) + 1)
    entries = [each for each in content["entries"][:MAX_ENTRIES] if isinstance(each, dict)]
    entries.sort(
        key=lambda each: (_as_int(each.get("record_id", each.get("id"))), _as_int(each.get("time_created_ns")))
    )
    record.knows_starts = any(
        each.get("state") == "started" or each.get("time_discovered_started_ns") for each in entries
    )
    operations = [_read_entry(each, record) for each in entries]
    record.operations = _join_coalesced(operations)


def _read_entry(entry: Mapping[str, Any], record: RankRecord) -> Operation:
    full = str(entry.get("profiling_name") or "unknown")
    backend, _, name = full.rpartition(":")
    group = _read_group(entry, record)
    peer = _PEER.match(name)
    is_p2p = bool(entry.get("is_p2p", peer is not None))
    number = _as_int(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id", entry.get("seq_id")))
    state = _STATES.get(str(entry.get("state")), State.SCHEDULED)
    if backend == "gloo":
        state = State.COMPLETED if entry.get("retired") else State.STARTED
    elif entry.get("retired") and _as_int(entry.get("time_discovered_completed_ns")):
        state = State.COMPLETED
    sizes, dtypes = _read_sizes(name, entry)
    return Operation(
        group,
        number,
        peer[1] if peer else name,
        sizes,
        dtypes,
        state,
        _as_int(entry.get("time_created_ns")),
        _as_list(entry.get("frames")),
        is_p2p,
        int(peer[4]) if peer and peer[4] else -1,
    )


def _read_group(entry: Mapping[str, Any], record: RankRecord) -> str:
    group = entry.get("process_group")
    if isinstance(group, (list, tuple)) and group:
        name = str(group[0])
        text = str(group[1]) if len(group) > 1 else ""
        if text and text != "undefined":
            record.labels[name] = text
        return name
    return str(entry.get("pg_id", "0"))


def _read_sizes(name: str, entry: Mapping[str, Any]) -> tuple[Sizes, tuple[str, ...]]:
    of = "output" if name.startswith(_OUTPUTS) else "input"
    sizes = _as_list(entry.get(f"{of}_sizes"))
    if not sizes and not name.startswith(_INPUTS):
        of = "output"
        sizes = _as_list(entry.get("output_sizes"))
    types = entry.get(f"{of}_dtypes")
    dtypes = tuple(map(str, types)) if isinstance(types, (list, tuple)) else ((str(types),) if types else ())
    read = tuple(tuple(map(_as_int, each)) for each in sizes if isinstance(each, (list, tuple)))
    return (() if name.startswith(_UNEVEN) else read), dtypes


def _join_coalesced(operations: list[Operation]) -> list[Operation]:
    """Join the operations of a coalesced group, which have one number, into one that has the sizes of all."""
    joined: list[Operation] = []
    for each in operations:
        last = joined[-1] if joined else None
        if last is None or each.is_p2p or (last.group, last.number, last.is_p2p) != (each.group, each.number, False):
            joined.append(each)
            continue
        is_end = each.name == "coalesced" or each.name.endswith("_coalesced")
        last.state = each.state
        if not is_end:
            last.sizes, last.dtypes = last.sizes + each.sizes, last.dtypes + each.dtypes
        if not last.name.endswith("coalesced"):
            last.name = f"{last.name}_coalesced"
    return joined


def _as_int(value: Any) -> int:
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) else 0


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_dict(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}
