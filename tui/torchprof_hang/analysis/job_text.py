"""Read text about a job that hangs: lines of logs, stacks of py-spy and faulthandler, NCCL's RAS.

NCCL's user guide describes the RAS output ("Troubleshooting", RAS); its ranks are those of the communicator.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from torchprof_hang.analysis.records import Frame, Operation, RankRecord, State, Thread, read_frames

_TIMEOUT = re.compile(
    r"\[Rank (\d+)\] Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d+), OpType=(\w+)"
    r"(?:, NumelIn=(\d+))?(?:, NumelOut=(\d+))?[^)]*(?:\(ms\)=\d+)?\) ran for (\d+) milliseconds"
)
_PROGRESS = re.compile(
    r"\[PG (?:ID )?(\d+)(?: PG GUID (\S*?)\((.*?)\)|\s*\((.*?)\))? ?Rank (\d+)\].*?"
    r"at work: (\d+), last enqueued NCCL work: (\d+), last completed NCCL work: (\d+)"
)
_PREFIX = re.compile(r"\[rank(\d+)\]:")
_SIZES_DIFFER = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
_SIGNAL = re.compile(r"exitcode\s*:\s*-(\d+) \(pid: (\d+)\)|Signal (\d+) \(\w+\) received by PID (\d+)")
_LOCAL_RANK = re.compile(r"rank\s*:\s*(\d+) \(local_rank")
_OPERATIONS = {"ALLREDUCE": "all_reduce", "ALLGATHER": "all_gather", "ALLTOALL": "all_to_all"}


def read_log(text: str, rank: int | None, records: dict[int, RankRecord], source: str) -> bool:
    """Read the lines of a log, of one rank or of all. Returns whether one of them says something."""
    found = False
    for line in text.splitlines():
        if "WorkNCCL(" in line or "last enqueued NCCL work" in line:
            found |= _read_watchdog_line(line, records, source)
        elif (sizes := _SIZES_DIFFER.search(line)) and rank is not None:
            _add(records, rank, source).size_refused = int(sizes[1]), int(sizes[2])
            found = True
    for block in re.findall(r"rank\s*:\s*\d+ \(local_rank.*?error_file", text, re.DOTALL):  # torchrun's summary
        number, signal = _LOCAL_RANK.search(block), _SIGNAL.search(block)
        if number and signal:
            _add(records, int(number[1]), source).error = f"killed by signal {signal[1] or signal[3]}"
            found = True
    return found


def _read_watchdog_line(line: str, records: dict[int, RankRecord], source: str) -> bool:
    prefix = _PREFIX.search(line)
    if timeout := _TIMEOUT.search(line):
        record = _add(records, int(prefix[1] if prefix else timeout[1]), source)
        kind = timeout[3]
        name = _OPERATIONS.get(kind, kind.lower().strip("_"))
        numel = timeout[5 if name.startswith(("broadcast", "scatter")) and timeout[5] else 4]
        named = re.search(r"\[PG (?:ID )?(\d+)", line)
        _add_pending(record, named[1] if named else "", int(timeout[2]), name, numel)
        record.since_step = int(timeout[6]) / 1000
        return True
    if progress := _PROGRESS.search(line):
        record = _add(records, int(prefix[1] if prefix else progress[5]), source)
        group, label = progress[1], progress[3] or progress[4]
        if label:
            record.labels[group] = label
        for each in record.operations:
            each.group = each.group or group
        number = int(progress[6])
        if not any(each.number == number and each.group == group for each in record.operations):
            _add_pending(record, group, number, "collective", None)
        return True
    return False


def _add_pending(record: RankRecord, group: str, number: int, name: str, numel: str | None) -> None:
    if record.has_recorder or any(each.number == number for each in record.operations):
        return
    sizes = ((int(numel),),) if numel else ()
    record.operations.append(Operation(group, number, name, sizes, (), State.STARTED))


def _add(records: dict[int, RankRecord], rank: int, source: str) -> RankRecord:
    record = records.setdefault(rank, RankRecord(rank))
    if source not in record.sources:
        record.sources.append(source)
    return record


_PY_SPY_FRAME = re.compile(r"^\s{4,}(\S.*?) \((.+?):(\d+)\)\s*$")
_PY_SPY_STATE = re.compile(r"^Thread \w+ \((idle|active)")
_FAULT_FRAME = re.compile(r'^\s+File "(.+)", line (\d+) in (.+)$')


def read_stacks(text: str) -> tuple[list[Thread], str]:
    """Read the stacks that py-spy or faulthandler print. Returns threads, and the fatal error that they are of."""
    threads: list[Thread] = []
    frames: list[Frame] = []
    error = next((line for line in text.splitlines() if line.startswith("Fatal Python error: ")), "")
    is_fault = '  File "' in text
    for line in [*text.splitlines(), "Thread end"]:
        if line.startswith(("Thread ", "Current thread ")):
            if frames and threads:
                threads[-1] = replace(threads[-1], frames=tuple(frames))
            frames = []
            name = re.search(r'"(.*)"', line)
            is_main = name is not None and name[1] == "MainThread"
            state = _PY_SPY_STATE.match(line)
            threads.append(Thread(name[1] if name else "", is_main, (), state[1] == "idle" if state else None))
        elif found := _FAULT_FRAME.match(line):
            frames.append(Frame(found[3], found[1], int(found[2])))
        elif found := _PY_SPY_FRAME.match(line):
            frames.append(Frame(found[1], found[2], int(found[3])))
    threads = [each for each in threads if each.frames]
    if is_fault and threads:  # the main thread is printed last; of several dumps the last counts
        threads = [*threads[:-1], Thread("MainThread", True, threads[-1].frames)]
    return threads, error.removeprefix("Fatal Python error: ")


def read_py_spy_json(content: list[Any]) -> list[Thread]:
    """Read the threads of `py-spy dump --json`."""
    return [
        Thread(
            str(each.get("thread_name")),
            each.get("thread_name") == "MainThread",
            read_frames(each["frames"]),
            None if each.get("active") is None else not each["active"],
        )
        for each in content
        if isinstance(each, dict) and isinstance(each.get("frames"), list)
    ]


@dataclass(slots=True)
class RasGroup:
    """A communicator of NCCL whose ranks differ. `counts`: operations launched → ranks; `listed`: those with a name."""

    name: str
    operation: str = ""
    counts: dict[int, int] = field(default_factory=dict)
    listed: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    missing: list[tuple[int, str]] = field(default_factory=list)


def read_ras(text: str) -> list[RasGroup]:
    """Read the output of `ncclras`: the communicators with a remark."""
    groups: list[RasGroup] = []
    at: int | None = None
    for line in text.splitlines():
        if head := re.match(r"#(\d+-\d+) \((\w+)\) (.+)", line):
            groups.append(RasGroup(f"#{head[1]} ({head[2]})"))
            at = None
        elif not groups:
            continue
        elif differ := re.search(r"ranks have different (\w+) operation counts", line):
            groups[-1].operation = differ[1]
        elif count := re.search(r"(\d+) ranks? (?:have|has) launched up to operation (\d+)", line):
            at = int(count[2])
            groups[-1].counts[at] = int(count[1])
        elif "Missing communicator data" in line:
            at = -1
        elif rank := re.match(r"\s+Rank (\d+) -- (.+)", line):
            listed = groups[-1].missing if at == -1 else groups[-1].listed.setdefault(at or 0, [])
            listed.append((int(rank[1]), rank[2]))
    return groups
