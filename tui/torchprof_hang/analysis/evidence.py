"""Gather the evidence of a job from files of all kinds, each told by its content, into one record per rank."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from torchprof_hang.analysis.flight_recorder import NoDumpError, read_dump, read_pickle
from torchprof_hang.analysis.job_text import RasGroup, read_log, read_py_spy_json, read_ras, read_stacks
from torchprof_hang.analysis.records import RankRecord, State, Thread, read_frames
from torchprof_tui.analysis.memory.snapshots.primitive_pickle import UnsafePickleError, starts_as_pickle
from torchprof_tui.trace.core.errors import quote_file
from torchprof_tui.trace.specs.address import rank_in_name

_JSON = re.compile(rb"\s*(?:\{|\[\s*\{)")
STACKS_FORMAT = "torchprof/stacks/1"
_STACKS = re.compile(r'^(?:Thread |Current thread |Process \d+: |Fatal Python error: )|^  File "', re.MULTILINE)
_UNRANKED_NAMES = re.compile(r"^(?:nccl_trace_|comm_lib_trace_|comm_trace_)?(\d{1,6})$")


@dataclass(slots=True)
class Evidence:
    """`records`: by rank. `lost`: files that were not used, with the reason. `ras`: of NCCL's RAS."""

    records: dict[int, RankRecord] = field(default_factory=dict)
    ras: list[RasGroup] = field(default_factory=list)
    lost: list[tuple[str, str]] = field(default_factory=list)
    used: int = 0

    @property
    def world_size(self) -> int:
        known = [*(each.world_size for each in self.records.values()), max(self.records, default=-1) + 1]
        known += [max(ranks) + 1 for each in self.records.values() for ranks in each.members.values()]
        return max(known)


def gather_evidence(files: Iterable[tuple[str, bytes]]) -> Evidence:
    """Read the files of a job: names and contents. What is none of the known kinds is listed as lost."""
    evidence = Evidence()
    for source, data in files:
        try:
            reason = _read_file(source, data, evidence)
        except UnsafePickleError as error:
            reason = f"not read{quote_file(f': {error}')}; a flight recorder is a pickle of plain data"
        except (NoDumpError, ValueError, RecursionError, TypeError, KeyError, OverflowError) as error:
            reason = f"damaged{quote_file(f': {shorten(error)}')}"
        if reason:
            evidence.lost.append((source, reason))
        else:
            evidence.used += 1
    _name_groups(evidence.records.values())
    for record in evidence.records.values():
        # gloo records the same for both ends: the last operation did not complete where it failed
        has_failed = record.operations and record.error_frames and not record.reason.startswith("no step")
        if has_failed and "distributed" in record.error_frames[0].file:
            last = record.operations[-1]
            last.state = State.STARTED if last.state is State.COMPLETED else last.state
    return evidence


def _name_groups(records: Collection[RankRecord]) -> None:
    """Name the process group of operations of which a log has only the first line, which names none.

    It is that in which another rank waits at the same number; or the only one that the log names.
    """
    named = {(each.group, each.number) for record in records for each in record.operations if each.group}
    only = {group for group, _ in named}
    for record in records:
        for each in record.operations:
            if not each.group and not record.has_recorder:
                found = {group for group, number in named if number == each.number} or only
                each.group = found.pop() if len(found) == 1 else ""


def shorten(error: Exception) -> str:
    return " ".join(str(error).split())[:100] or type(error).__name__


def find_rank(source: str) -> int | None:
    """Find the rank in the name of a file: nccl_trace_rank_3, stacks_rank_3.json, rank3.txt, or 3."""
    rank = rank_in_name(source)
    if rank is None and (found := _UNRANKED_NAMES.match(source.rpartition("/")[2].partition(".")[0])):
        rank = int(found[1])
    return rank


def _read_file(source: str, data: bytes, evidence: Evidence) -> str:
    """Read one file. Returns why it was not used, "" where it was."""
    rank = find_rank(source)
    if starts_as_pickle(data):
        return _add_dump(source, rank, evidence, lambda record: read_pickle(data, record))
    if _JSON.match(data):
        content = json.loads(data)
        if isinstance(content, dict) and content.get("schema") == STACKS_FORMAT:
            _read_own_stacks(content, source, evidence)
            return ""
        if isinstance(content, dict) and "entries" in content:
            return _add_dump(source, rank, evidence, lambda record: read_dump(content, record))
        if isinstance(content, list) and content and isinstance(content[0], dict) and "frames" in content[0]:
            return _add_threads(source, rank, evidence, read_py_spy_json(content), "")
        return "no dump of a hang: JSON of another kind"
    if not data.strip():
        return "" if rank is not None and "faulthandler" in source else "the file is empty"
    return _read_text(source, rank, data.decode("utf-8", "replace"), evidence)


def _read_text(source: str, rank: int | None, text: str, evidence: Evidence) -> str:
    if "Communicators..." in text and "Job summary" in text:
        evidence.ras += read_ras(text)
        return ""
    is_used = read_log(text, rank, evidence.records, source)
    if _STACKS.search(text) and "Traceback (most recent call last)" not in text:
        threads, error = read_stacks(text)
        if threads:
            return _add_threads(source, rank, evidence, threads, error)
    return "" if is_used or (rank is not None and "log" in source) else "nothing in it is about a hang"


def _add_dump(source: str, rank: int | None, evidence: Evidence, read: Any) -> str:
    if rank is None:
        return "its name has no rank, such as nccl_trace_rank_3"
    record = RankRecord(rank)
    read(record)
    known = evidence.records.get(rank)
    if known is not None and known.has_recorder:
        return f"another dump of rank {rank}, beside {known.sources[0]}"
    if known is not None:  # a flight recorder counts more than lines of a log
        known.has_recorder, known.operations, known.knows_starts = True, record.operations, record.knows_starts
        known.members |= record.members
        known.labels |= record.labels
        known.world_size = max(known.world_size, record.world_size)
    target = evidence.records.setdefault(rank, record)
    target.sources.append(source)
    return ""


def _add_threads(source: str, rank: int | None, evidence: Evidence, threads: list[Thread], error: str) -> str:
    if rank is None:
        return "stacks of a process whose rank is unknown: name the file rank3.txt"
    record = evidence.records.setdefault(rank, RankRecord(rank))
    record.sources.append(source)
    if not record.threads or error:
        record.threads = threads
    record.error = record.error or error
    return ""


def _read_own_stacks(content: dict[str, Any], source: str, evidence: Evidence) -> None:
    """Read what the recorder of `run --watch-hang` wrote."""
    record = evidence.records.setdefault(int(content["rank"]), RankRecord(int(content["rank"])))
    record.sources.append(source)
    record.world_size = max(record.world_size, min(int(content.get("world_size", 0)), 1_000_000))
    record.host, record.pid = str(content.get("host", "")), int(content.get("pid", 0))
    record.dumped, record.reason = int(content.get("time_ns", 0)), str(content.get("reason", ""))
    names = {"steps": "steps", "since_step": "seconds_since_step", "median_step": "median_step_seconds"}
    for name, key in {**names, "resumed_after": "resumed_after_seconds"}.items():
        value = content.get(key)
        setattr(record, name, value if isinstance(value, (int, float)) else None)
    record.threads = [
        Thread(str(each.get("name", "")), bool(each.get("is_main")), read_frames(each.get("frames", ())))
        for each in content.get("threads", ())
    ]
    record.resumed_frames = read_frames(content.get("resumed_frames", ()))
    error = content.get("error")
    if isinstance(error, dict):
        record.error = f"{error.get('type')}: {error.get('message')}"
        record.error_frames = read_frames(error.get("frames", ()))
