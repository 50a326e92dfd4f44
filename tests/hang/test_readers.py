"""Test the readers: versions, JSON, logs, RAS, stacks, mixtures, damage, and that hostile pickles run nothing."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hang.literals import call, dump, explain, write
from tests.helpers.paths import FIXTURES, SHARED_TRACES
from torchprof_hang.analysis.diagnosis import Cause, diagnose
from torchprof_hang.analysis.evidence import find_rank, gather_evidence
from torchprof_hang.analysis.records import State
from torchprof_hang.command.files import read_evidence
from torchprof_hang.command.live import split_ranks
from torchprof_tui.analysis.memory.snapshots.primitive_pickle import UnsafePickleError, load_plain_pickle
from torchprof_tui.commands.common.errors import UsageError

FORMATS = SHARED_TRACES / "formats"


class _Runs:
    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.marker,)


@pytest.mark.parametrize("protocol", range(6))
def test_a_hostile_pickle_runs_nothing(tmp_path: Path, protocol: int) -> None:
    marker = str(tmp_path / "made")
    data = pickle.dumps({"version": "2.10", "entries": [{"process_group": ("0", "x")}, _Runs(marker)]}, protocol)
    evidence = gather_evidence([("nccl_trace_rank_0", data)])
    assert not os.path.exists(marker)
    assert not evidence.records
    assert len(evidence.lost) == 1


def test_pairs_of_texts_are_read_only_where_they_are_wanted() -> None:
    data = write([("0", "default_pg")])
    assert load_plain_pickle(data, text_pairs=True) == [("0", "default_pg")]
    with pytest.raises(UnsafePickleError, match="TUPLE2"):
        load_plain_pickle(data)


@pytest.mark.parametrize(
    "after",
    [b"q\x05", b"r\x05\x00\x00\x00", b"\x94", b"(u", b"(e", b"\x95" + bytes(8)],
    ids=lambda text: text[:1].hex(),
)
def test_a_pair_cannot_be_referred_to(after: bytes) -> None:
    """Else pairs could nest, and the hash of one as a key takes hours."""
    text = b"X\x01\x00\x00\x00aq\x00"
    with pytest.raises(UnsafePickleError, match="TUPLE2"):
        load_plain_pickle(b"\x80\x02]q\x01(" + text + b"h\x00\x86" + after + b"e.", text_pairs=True)


def test_a_text_in_a_pair_cannot_ask_for_memory() -> None:
    text = b"X\x01\x00\x00\x00ar\xff\xff\xff\x7f"
    with pytest.raises(UnsafePickleError, match="more memory than its size explains"):
        load_plain_pickle(b"\x80\x02" + text + text + b"\x86.", text_pairs=True)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
        | st.tuples(st.text(max_size=9), st.text(max_size=9))
    ),
    max_leaves=25,
)


@given(plain)
def test_plain_data_with_pairs_is_read(value: Any) -> None:
    assert load_plain_pickle(write(value), text_pairs=True) == value


def test_the_dumps_of_torch_itself() -> None:
    folder = FORMATS / "flight_recorder" / "gloo_3ranks_rank1_skips_allreduce"
    if not folder.is_dir():
        pytest.skip("the shared traces are not here")
    found = diagnose(read_evidence([str(folder)]))
    assert found.sentence == (
        "rank 1 skipped all_reduce [64] at desync.py:7: ranks 0 and 2 wait in #8 of the default group, "
        "rank 1 is in all_gather [10] at desync.py:8"
    )
    alone = read_evidence([str(FORMATS / "h100_torch211" / "nccl_trace_rank_0")])
    assert [each.state for each in alone.records[0].operations] == [State.COMPLETED] * 5
    assert diagnose(alone).cause is Cause.NONE


VERSIONS = {
    "2.0": (
        "pg_config",
        "process_group",
        "collective_seq_id",
        "p2p_seq_id",
        "is_p2p",
        "retired",
        "timeout_ms",
        "op_id",
    ),
    "2.1": ("pg_config", "collective_seq_id", "p2p_seq_id", "is_p2p", "timeout_ms"),
    "2.2": ("pg_config", "is_p2p", "timeout_ms"),
    "2.3": ("input_dtypes", "output_dtypes"),
    "2.4": ("record_id",),
    "2.10": (),
}
"""Versions and the fields that they do not have."""


@pytest.mark.parametrize("version", VERSIONS)
def test_versions(version: str) -> None:
    left_out = VERSIONS[version]
    files = []
    for rank, name in enumerate(("all_reduce", "all_gather", "all_reduce")):
        entries = [call(1), call(2, "all_gather"), call(3), call(4, "all_gather"), call(5, name, state="started")]
        entries = [
            {key: value for key, value in ({"seq_id": each["collective_seq_id"]} | each).items() if key not in left_out}
            for each in entries
        ]
        content = {key: value for key, value in dump(entries, 3, version).items() if key not in left_out}
        files.append((f"nccl_trace_rank_{rank}", write(content)))
    found = diagnose(gather_evidence(files))
    assert (found.cause, found.ranks, found.operation) == (Cause.SKIPPED, (1,), "all_reduce [64]")


def test_json_says_the_same_as_the_pickle() -> None:
    ranks = [[call(1), call(2, "all_gather" if rank == 1 else "all_reduce", state="started")] for rank in range(3)]
    files = [(f"rank{rank}.json", json.dumps(dump(each, 3)).encode()) for rank, each in enumerate(ranks)]
    assert diagnose(gather_evidence(files)) == explain(*ranks)


WATCHDOG = """\
[rank{rank}]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught collective operation \
timeout: WorkNCCL(SeqNum={number}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran for 600061 \
milliseconds before timing out.
[rank{rank}]:[E1206 18:44:12.715588844 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank {rank}] Exception (either an \
error or timeout) detected by watchdog at work: {number}, last enqueued NCCL work: {number}, last completed NCCL work: \
1.
"""


def test_the_lines_of_the_watchdog_alone() -> None:
    lines = "".join(WATCHDOG.format(rank=rank, number=7753, op="ALLREDUCE", numel=64) for rank in (0, 1, 3))
    found = diagnose(gather_evidence([("job.log", lines.encode())]))
    assert (found.cause, found.ranks, found.number, found.operation) == (Cause.DEAD, (2,), 7753, "all_reduce [64]")
    lines += WATCHDOG.format(rank=2, number=7753, op="BROADCAST", numel=5056)
    found = diagnose(gather_evidence([("job.log", lines.encode())]))
    assert (found.cause, found.ranks, found.operation) == (Cause.ORDER, (2,), "broadcast [5056]")


@pytest.mark.parametrize("cut", [(0,), (2,), (0, 1)])
def test_the_lines_of_the_watchdog_of_which_some_are_cut_off(cut: tuple[int, ...]) -> None:
    """The second line of a rank names the group; people paste what fits."""
    lines = [WATCHDOG.format(rank=rank, number=7753, op="ALLREDUCE", numel=64).splitlines() for rank in range(3)]
    text = "\n".join(line for rank, two in enumerate(lines) for line in (two[:1] if rank in cut else two))
    found = diagnose(gather_evidence([("log.txt", text.encode())]))
    assert (found.cause, found.ranks, found.waiting) == (Cause.NETWORK, (), (0, 1, 2)), found.sentence


def test_an_old_watchdog_line_without_sizes() -> None:
    line = (
        "[E ProcessGroupNCCL.cpp:737] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=469508, "
        "OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802212 milliseconds before timing out.\n"
    )
    found = diagnose(gather_evidence([("job.log", "".join(map(line.format, (0, 1, 3))).encode())]))
    assert (found.ranks, found.operation) == ((2,), "all_reduce")


RAS = """\
NCCL version 2.26.2 compiled with CUDA 12.6

Job summary
===========

Communicators... (0.00s)
=============

Errors
======

Warnings
========

#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllGather operation counts
  2 ranks have launched up to operation 640
  30 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 323032 on node 10.0.0.4
  Rank 13 -- GPU 5 managed by process 323033 on node 10.0.0.4
"""


def test_ras() -> None:
    listed_last = diagnose(gather_evidence([("ras.txt", RAS.encode())]))
    assert listed_last.cause is Cause.BEHIND
    assert "all but ranks 12 and 13 launched AllGather up to 640, others up to 641" in listed_last.sentence
    first = RAS.replace("30 ranks have launched up to operation 641\n", "").replace(
        "  2 ranks have launched up to operation 640\n",
        "  30 ranks have launched up to operation 641\n  2 ranks have launched up to operation 640\n",
    )
    found = diagnose(gather_evidence([("ras.txt", first.encode())]))
    assert (found.cause, found.ranks) == (Cause.BEHIND, (12, 13))
    missing = RAS[: RAS.index("#0-0")] + (
        "#0-0 (b339) INCOMPLETE\n  Missing communicator data from 1 rank\n"
        "  Rank 1 -- GPU 0 managed by process 7 on node n\n"
    )
    found = diagnose(gather_evidence([("ras.txt", missing.encode())]))
    assert (found.cause, found.ranks) == (Cause.DEAD, (1,))


PY_SPY = """\
Process 4711: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4711 (idle): "MainThread"
    _try_get_data (torch/utils/data/dataloader.py:1251)
    __next__ (torch/utils/data/dataloader.py:708)
    main (/home/me/train.py:77)
    <module> (/home/me/train.py:90)
Thread 4720 (idle): "Thread-1"
    wait (threading.py:324)
"""

FAULTHANDLER = """\
Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f0000000002 (most recent call first):
  File "/home/me/model.py", line 5 in forward
  File "/home/me/train.py", line 12 in <module>
"""


def test_stacks_of_py_spy_and_faulthandler_beside_dumps() -> None:
    usual = write(dump([call(1), call(2, state="started")], 2))
    late = write(dump([call(1)], 2))
    dumps = [("nccl_trace_rank_0", usual), ("nccl_trace_rank_1", late)]
    found = diagnose(gather_evidence([*dumps, ("py-spy_rank1.txt", PY_SPY.encode())]))
    assert (found.cause, found.ranks, found.place) == (Cause.LOADER, (1,), "train.py:77")
    found = diagnose(gather_evidence([*dumps, ("faulthandler_rank_1.txt", FAULTHANDLER.encode())]))
    assert (found.cause, found.ranks, found.place) == (Cause.SLOW, (1,), "model.py:5")
    frames = [{"name": "forward", "filename": "/home/me/model.py", "line": 5}]
    spied = json.dumps([{"thread_name": "MainThread", "frames": frames}]).encode()
    found = diagnose(gather_evidence([*dumps, ("rank1.json", spied)]))
    assert (found.cause, found.ranks, found.place) == (Cause.SLOW, (1,), "model.py:5")


def test_what_a_host_answers_is_split_by_rank() -> None:
    text = f"=== torchprof rank 0 pid 11\n{PY_SPY}\n=== torchprof rank 3 pid 12\nno stack: py-spy is not installed\n"
    files = dict(split_ranks("node1", text))
    assert list(files) == ["node1:pid11_rank0.txt", "node1:pid12_rank3.txt"]
    evidence = gather_evidence(files.items())
    assert evidence.records[0].stack[-1].place == "train.py:90"
    assert [source for source, _ in evidence.lost] == ["node1:pid12_rank3.txt"]


def spied(name: str, file: str, line: int, state: str = "idle") -> bytes:
    frames = f"    {name} ({file}:{line})\n    main (/home/me/train.py:{line + 1})\n"
    return f'Process 1: python\n\nThread 1 ({state}): "MainThread"\n{frames}'.encode()


def test_stacks_alone() -> None:
    """As `hang --live` collects them."""
    waits, computes = (
        spied("all_reduce", "torch/distributed/distributed_c10d.py", 7),
        spied("f", "/home/me/model.py", 3, "active+gil"),
    )
    found = diagnose(gather_evidence([("rank0.txt", waits), ("rank1.txt", computes), ("rank2.txt", waits)]))
    assert (found.cause, found.ranks, found.waiting) == (Cause.SLOW, (1,), (0, 2))
    assert found.sentence == "rank 1: slow, in compute at model.py:3: ranks 0 and 2 wait in all_reduce at train.py:8"
    other = spied("all_gather", "torch/distributed/distributed_c10d.py", 9)
    found = diagnose(gather_evidence([("rank0.txt", waits), ("rank1.txt", other), ("rank2.txt", waits)]))
    assert (found.cause, found.ranks, found.place) == (Cause.ORDER, (1,), "train.py:10")


BACKWARD = spied("_engine_run_backward", "torch/autograd/graph.py", 24)
BARRIER = spied("barrier", "torch/distributed/distributed_c10d.py", 30)
LOCKED = spied("read", "/home/me/data.py", 49)
COMPUTES = spied("_engine_run_backward", "torch/autograd/graph.py", 24, "active")


@pytest.mark.parametrize(
    ("stacks", "ranks", "sentence"),
    [  # DistributedDataParallel calls its collectives from C++, within backward
        ([BACKWARD, LOCKED], [1], "rank 1: waits outside of collectives at data.py:49: rank 0 waits in backward at"),
        ([BARRIER, BACKWARD], [0], "rank 0: in barrier at train.py:31, rank 1 waits in backward at train.py:25: skip"),
        ([BACKWARD, COMPUTES, BACKWARD], [1], "rank 1: slow, in compute at train.py:25: ranks 0 and 2 wait in backwar"),
        ([COMPUTES, COMPUTES, LOCKED], [2], "rank 2: waits outside of collectives at data.py:49: ranks 0 and 1 at"),
        ([COMPUTES, LOCKED], [0, 1], "rank 0: slow, in compute at train.py:25, rank 1 at data.py:49: no rank waits"),
        (
            [BACKWARD, BACKWARD],
            [],
            "ranks 0 and 1 wait in backward at train.py:25, and no other rank is known: the net",
        ),
        (
            [BARRIER, None, BARRIER],
            [1],
            "rank 1 left no stack: dead, or on a host that was not asked: ranks 0 and 2 wa",
        ),
    ],
)
def test_stacks_alone_outside_of_collectives(stacks: list[bytes | None], ranks: list[int], sentence: str) -> None:
    found = diagnose(gather_evidence((f"rank{rank}.txt", stack) for rank, stack in enumerate(stacks) if stack))
    assert found.sentence.startswith(sentence)
    assert list(found.ranks) == ranks


def test_the_collective_of_a_hook_runs_on_a_thread_of_autograd() -> None:
    """As FSDP and DeepSpeed call them."""
    hook = (
        "Thread 9 (active)\n    all_gather_into_tensor (torch/distributed/distributed_c10d.py:2709)\n    f (h.py:1)\n"
    )
    found = diagnose(gather_evidence([("rank0.txt", BARRIER), ("rank1.txt", COMPUTES + hook.encode())]))
    assert found.ranks == (0,)
    assert "rank 1 waits in all_gather_into_tensor of backward at train.py:25" in found.sentence


def test_what_py_spy_says_as_json_is_the_same() -> None:
    frames = [{"name": "backward", "filename": "torch/autograd/graph.py", "line": 1}]
    for active in (True, False):
        threads = [{"thread_name": "MainThread", "active": active, "frames": frames}]
        assert gather_evidence([("rank0.json", json.dumps(threads).encode())]).records[0].is_idle is not active


def test_damaged_and_missing_ranks_are_named(tmp_path: Path) -> None:
    good = write(dump([call(1, state="started")], 4))
    files = {"nccl_trace_rank_0": good, "nccl_trace_rank_1": good[:-40], "nccl_trace_rank_3": b"", "notes.txt": b"hi"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    evidence = read_evidence([str(tmp_path)])
    assert {Path(source).name for source, _ in evidence.lost} == {*files} - {"nccl_trace_rank_0"}
    found = diagnose(evidence)
    assert (found.cause, found.ranks) == (Cause.DEAD, (1, 2, 3))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[{}]",
        b'{"entries": 3}',
        b'{"entries": [3, {"frames": 5, "input_sizes": [7], "process_group": []}], "version": "2.4"}',
        b'{"entries": [], "version": "3.0"}',
        b'{"schema": "torchprof/stacks/1"}',
        b'{"schema": "torchprof/stacks/1", "rank": 0, "threads": [{"frames": [1, {"line": "x", "peers": [2]}]}]}',
        b'{"schema": "torchprof/stacks/1", "rank": "x"}',
        b"\x80\x02]q\x00.",
        b"\x80\x02N.",
        b"Thread \n  File\n",
        b"[" * 100_000,
    ],
)
def test_odd_files_are_lost_or_empty_but_never_fail(data: bytes) -> None:
    evidence = gather_evidence([("rank_0", data)])
    assert len(evidence.lost) + evidence.used == 1
    diagnose(evidence)


def test_nothing_usable_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected dumps"):
        read_evidence([str(tmp_path)])
    with pytest.raises(UsageError, match="no such file"):
        read_evidence([str(tmp_path / "missing")])


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("a/nccl_trace_rank_3", 3),
        ("comm_lib_trace_rank_12", 12),
        ("stacks_rank_0.json", 0),
        ("x/7", 7),
        ("job.log", None),
    ],
)
def test_ranks_in_names(name: str, rank: int | None) -> None:
    assert find_rank(name) == rank


def test_the_folder_of_a_run_is_read_with_the_logs_beside_it(tmp_path: Path) -> None:
    (tmp_path / "hang").mkdir()
    (tmp_path / "hang" / "comm_trace_rank_0").write_bytes(write(dump([call(1)], 1)))
    (tmp_path / "trace.pt.trace.json").write_text("{}")
    assert list(read_evidence([str(tmp_path)]).records) == [0]


def test_an_archive_is_read_without_unpacking() -> None:
    evidence = read_evidence([str(FIXTURES / "hang" / "skip_all_reduce.tar.xz")])
    assert sorted(evidence.records) == [0, 1, 2]
