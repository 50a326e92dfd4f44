"""Test which kernels are matched over ranks: those of process groups, without messages between two ranks."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers.rank_traces import BASE, Entry, late_rank
from torchprof_tui.commands.common.load import load_specs
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.ranks import AlignmentMethod
from torchprof_tui.trace.ranks.collective_matching import read_collectives

OTHERS = (
    "void deep_ep::intranode::notify_dispatch<8>(int const*)",
    "void deep_ep::internode_ll::combine<7168>(void*)",
    "nvshmemi_barrier_all_kernel",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
)


def test_kernels_without_a_process_group_disturb_neither_clocks_nor_matches(tmp_path: Path) -> None:
    """One rank alone ran them, between its collectives."""
    run = late_rank()
    run.bases = [BASE, BASE + 7_000_000, BASE - 3_000_000]
    plain, mixed = tmp_path / "plain", tmp_path / "mixed"
    plain.mkdir()
    mixed.mkdir()
    paths = run.write(plain)
    others: list[Entry] = [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 21, "ts": 2000.0 + 900 * k, "dur": 400,
         "args": {"device": 0, "stream": 21, "correlation": 9000 + k}}
        for k, name in enumerate(OTHERS * 5)
    ]  # fmt: skip
    calls = [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1001, "tid": 77, "ts": entry["ts"] - 50,
         "dur": 5, "args": {"correlation": entry["args"]["correlation"]}}
        for entry in others
    ]  # fmt: skip
    run.more[1] = [*others, *calls]
    mixed_paths = run.write(mixed)
    before, after = (load_specs([str(path) for path in files], cache=False).trace for files in (paths, mixed_paths))
    assert before.merged_ranks is not None
    assert after.merged_ranks is not None
    own = after.merged_ranks.all[1].trace
    assert int((own.kind == Kind.COLLECTIVE).sum()) == 6 + len(others)
    assert len(read_collectives(own)) == 6
    expected, found = before.merged_ranks.matched_collectives, after.merged_ranks.matched_collectives
    assert len(found) == len(expected) == 6
    assert found.unmatched.tolist() == [0, 0, 0]
    clocks = [rank.clock for rank in after.merged_ranks.all]
    expected_clocks = [rank.clock for rank in before.merged_ranks.all]
    assert {clock.method for clock in clocks[1:]} == {AlignmentMethod.COLLECTIVES}
    for clock, expected_clock in zip(clocks, expected_clocks, strict=True):
        assert (clock.error, clock.collective_count) == (expected_clock.error, expected_clock.collective_count)


def test_messages_between_two_ranks_are_left_out(tmp_path: Path) -> None:
    path = late_rank().write(tmp_path)[0]
    document = json.loads(path.read_text())
    kernels = [entry for entry in document["traceEvents"] if entry.get("cat") == "kernel"]
    kernels[0]["args"]["Collective name"] = "send"
    path.write_text(json.dumps(document))
    assert len(read_collectives(load_specs([str(path)], cache=False).trace)) == len(kernels) - 1


def test_sizes_are_numbers_of_elements(tmp_path: Path) -> None:
    sizes = [1, (1 << 62) - 1, 1 << 62, -1, "5", None]
    path = late_rank().write(tmp_path)[0]
    document = json.loads(path.read_text())
    kernels = [entry for entry in document["traceEvents"] if entry.get("cat") == "kernel"]
    for entry, size in zip(kernels, sizes, strict=True):
        entry["args"].update({"In msg nelems": size, "Out msg nelems": 7})
    path.write_text(json.dumps(document))
    found = read_collectives(load_specs([str(path)], cache=False).trace)
    assert found.received.tolist() == [1, (1 << 62) - 1, 0, 0, 0, 0]
    assert found.sent.tolist() == [7] * 6
