"""The communication card: against a slow reading of real traces, and on literal traces with known waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import communication_reference as reference
from tests.helpers.collective_reference import document, joined
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.trace_builder import Entry, annotation, kernel, runtime, trace
from torchprof_tui.analysis.collectives import communication_waiting
from torchprof_tui.analysis.collectives.communication_card import (
    CommunicationCard,
    DeviceCommunication,
    build_communication_card,
)
from torchprof_tui.analysis.collectives.communication_records import (
    OPERATIONS,
    CommunicationRecords,
    compute_bus_factor,
    read_communication,
)
from torchprof_tui.analysis.collectives.communication_waiting import (
    WaitingSource,
    compute_arrivals,
    estimate_waits,
    find_link_bandwidth,
)
from torchprof_tui.commands.common.load import load_specs
from torchprof_tui.trace.model.communication_kernels import Operation
from torchprof_tui.trace.model.trace import Trace

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "ampere_sgemm_128x64_tn"
NOTIFY = "void deep_ep::intranode::notify_dispatch<8>(int const*)"
DISPATCH = "void deep_ep::intranode::dispatch<8, 768>(int4*)"
VLLM = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)"

needs_shared_traces = pytest.mark.skipif(not SHARED_TRACES.is_dir(), reason="no shared traces")


def load(*paths: Path) -> Trace:
    return load_specs([str(path) for path in paths], cache=False).trace


def check_sums(card: CommunicationCard) -> None:
    """Parts sum to the whole, for each device and in all, and none is negative."""
    parts: list[CommunicationCard | DeviceCommunication] = [*card.devices, card]
    for part in parts:
        assert part.hidden + part.exposed == part.total
        assert part.waiting + part.transfer == part.total
        assert 0 <= part.exposed_waiting <= min(part.exposed, part.waiting)
        assert 0 <= part.undecided <= part.transfer
    assert sum(row.count for row in card.rows) == card.count
    assert all(0 <= row.waiting <= row.time for row in card.rows)


# Real traces


FSDP = pytest.param("fsdp_4ranks", marks=pytest.mark.long)  # 43 MB, which the slow reference takes long to read
RUNS = ["ddp_4ranks", pytest.param("public/facebookresearch+param", marks=pytest.mark.long), FSDP]
PAIRED_RUNS = ["ddp_4ranks", FSDP]


def files_of(run: str) -> list[Path]:
    return sorted((SHARED_TRACES / run).glob("worker*" if "param" in run else "rank*"))


@needs_shared_traces
@pytest.mark.parametrize("run", RUNS)
def test_times_and_counts_agree_with_the_raw_file(run: str) -> None:
    for path in files_of(run):
        card = build_communication_card(load(path))
        check_sums(card)
        assert (card.total, card.exposed) == reference.total_and_exposed(path)
        counts = reference.counts_and_bytes(path)
        assert card.count == sum(count for count, _ in counts.values())
        if "param" not in run:  # there the sizes are in the annotations
            rows = {row.operation: (row.count, row.bytes) for row in card.rows}
            words = {"AllReduce": "all-reduce", "AllGather": "all-gather", "ReduceScatter": "reduce-scatter"}
            assert rows == {Operation(words[word]): numbers for word, numbers in counts.items()}


@pytest.mark.long
@needs_shared_traces
@pytest.mark.parametrize("run", PAIRED_RUNS)
def test_waiting_by_arrivals_agrees_with_the_raw_files(run: str) -> None:
    paths = files_of(run)
    merged = load(*paths).merged_ranks
    assert merged is not None
    arrivals = compute_arrivals(merged)
    matched = joined(paths)
    for index, path in enumerate(paths):
        waits = {}
        for kernels in matched.values():
            if index in kernels and len(kernels) > 1:
                waits[kernels[index]] = max(start for start, _ in kernels.values()) - kernels[index][0]
        base = document(path).get("baseTimeNanoseconds", 0)
        spans = [
            (base + start, base + end)
            for start, end in map(reference.span, filter(reference.is_communication, reference.gpu_events(path)))
        ]
        decided = [one for one in spans if one in waits]
        assert len(decided) == len(waits) > 0
        card = build_communication_card(merged.all[index].trace, arrivals=arrivals, rank_index=index)
        check_sums(card)
        # Kernels without arrivals, which were launched before the recording, have sizes in neither run.
        assert card.waiting == reference.waiting(spans, waits)
        assert card.undecided == reference.sweep(spans, without=decided)


@pytest.mark.long
@needs_shared_traces
@pytest.mark.parametrize("run", PAIRED_RUNS)
def test_one_rank_alone_finds_nearly_all_waiting_and_invents_next_to_none(run: str) -> None:
    paths = files_of(run)
    merged = load(*paths).merged_ranks
    assert merged is not None
    arrivals = compute_arrivals(merged)
    for index, rank in enumerate(merged.all):
        exact = build_communication_card(rank.trace, arrivals=arrivals, rank_index=index)
        alone = build_communication_card(rank.trace)
        assert alone.waiting <= exact.waiting + 0.1 * exact.total
        assert alone.waiting >= 0.9 * exact.waiting


@pytest.mark.long
@needs_shared_traces
def test_sizes_of_old_traces_come_from_the_annotations() -> None:
    folder = SHARED_TRACES / "public/facebookresearch+HolisticTraceAnalysis"
    card = build_communication_card(load(folder / "control.json.gz"))
    check_sums(card)
    rows = {row.operation: row for row in card.rows}
    assert {operation: row.count for operation, row in rows.items()} == {
        Operation.ALL_TO_ALL: 42,
        Operation.ALL_REDUCE: 18,
    }
    expected = sum_annotated_bytes(folder / "control.json.gz")
    assert {name: rows[Operation(name)].bytes for name in expected} == expected


def sum_annotated_bytes(path: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in document(path)["traceEvents"]:
        if entry.get("cat") == "user_annotation" and entry["name"].startswith("nccl:"):
            size = int(np.prod([int(length) for length in entry["args"]["Input Dims"][0]]))
            width = {"float": 4, "long": 8, "long int": 8, "int": 4, "c10::Half": 2}[entry["args"]["Input type"][0]]
            word = entry["name"][5:].replace("_", "-")
            found[word] = found.get(word, 0) + size * width
    return found


# Literal traces


def args(elements: int, group: int = 8) -> dict[str, Any]:
    sizes = {"In msg nelems": elements, "Out msg nelems": elements, "dtype": "Float", "Group size": group}
    return {"Collective name": "allreduce", "Process Group Name": "0", **sizes}


def all_reduces(*timed: tuple[float, float, int]) -> list[Entry]:
    """All-reduces on stream 20: (start µs, duration µs, elements)."""
    return [kernel(ALL_REDUCE, start, duration, stream=20, **args(size)) for start, duration, size in timed]


def card_of(monkeypatch: pytest.MonkeyPatch, entries: list[Entry], devices: int = 8) -> CommunicationCard:
    """Build the card of literal entries: their args are read from the entries instead of a file."""
    made = trace(*entries, header={"deviceProperties": [{"id": k, "name": "NVIDIA H200"} for k in range(devices)]})
    patch_reader(monkeypatch, entries)
    card = build_communication_card(made)
    check_sums(card)
    return card


def patch_reader(monkeypatch: pytest.MonkeyPatch, entries: list[Entry]) -> None:
    def read(trace_: Trace, events: Any) -> Any:
        return ((k, entries[int(trace_.ordinal[event])]) for k, event in enumerate(events))

    monkeypatch.setattr("torchprof_tui.analysis.collectives.communication_records.read_entries", read)


def test_a_single_slow_all_reduce_is_a_late_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    """17 MB in 9 ms: 3.3 GB/s on the bus of a link of 450."""
    card = card_of(monkeypatch, all_reduces((0, 9000, 4_250_000)))
    assert card.waiting_source is WaitingSource.LINK_BANDWIDTH
    needed = 17_000_000 * 2 * 7 / 8 / (0.2 * 450)  # ns
    assert card.waiting == 9_000_000 - int(np.ceil(needed))
    (row,) = card.rows
    assert row.algorithm_bandwidth == pytest.approx(17 / 9)
    assert row.bus_bandwidth == pytest.approx(17 / 9 * 1.75)
    assert row.link_bandwidth == 450


def test_over_a_network_a_single_slow_run_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    card = card_of(monkeypatch, all_reduces((0, 9000, 4_250_000)), devices=4)
    assert (card.waiting_source, card.waiting, card.undecided) == (None, 0, card.total)


def test_what_a_run_takes_beyond_the_fastest_of_its_size_is_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    card = card_of(monkeypatch, all_reduces((0, 300, 10**7), (1000, 300, 10**7), (2000, 1300, 10**7)))
    assert card.waiting_source is WaitingSource.REPEATED_SIZES
    assert card.waiting == 1_000_000


def test_other_sizes_bound_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller message takes no longer (the first), a larger one has no less bandwidth (the last)."""
    slow_small = card_of(monkeypatch, all_reduces((0, 400, 10**7), (1000, 200, 2 * 10**7), (2000, 200, 2 * 10**7)))
    assert slow_small.waiting == 200_000
    slow_large = card_of(monkeypatch, all_reduces((0, 200, 10**7), (1000, 200, 10**7), (2000, 900, 2 * 10**7)))
    assert slow_large.waiting == 500_000


def test_equal_runs_wait_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    card = card_of(monkeypatch, all_reduces(*((1000 * k, 300, 10**7) for k in range(4))))
    assert (card.waiting, card.waiting_source) == (0, WaitingSource.REPEATED_SIZES)


def test_notifications_wait_and_dispatches_are_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    card = card_of(monkeypatch, [kernel(NOTIFY, 0, 100), kernel(DISPATCH, 100, 50)])
    assert (card.total, card.waiting, card.undecided) == (150_000, 100_000, 50_000)
    assert card.waiting_source is WaitingSource.OPERATION
    assert {row.operation: row.waiting for row in card.rows} == {Operation.NOTIFY: 100_000, Operation.DISPATCH: 0}


def test_a_barrier_that_nccl_runs_as_an_all_reduce_is_a_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = {**args(1), "Collective name": "barrier"}
    card = card_of(monkeypatch, [kernel(ALL_REDUCE, 0, 500, **recorded)])
    assert card.rows[0].operation is Operation.BARRIER
    assert card.waiting == card.total == 500_000


def test_all_reduces_of_serving_engines_are_compared_by_launch_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = [kernel(VLLM, 100 * k, 10, grid=[36, 1, 1], block=[512, 1, 1]) for k in range(19)]
    late = kernel(VLLM, 5000, 2000, grid=[36, 1, 1], block=[512, 1, 1])
    larger = kernel(VLLM, 9000, 80, grid=[8, 1, 1], block=[512, 1, 1])
    card = card_of(monkeypatch, [*usual, late, larger])
    assert card.waiting == 1_990_000
    assert card.undecided == 80_000


def test_hidden_is_what_runs_beside_kernels_and_waiting_beside_a_transfer_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = [
        kernel(NOTIFY, 0, 100, stream=20),
        kernel(DISPATCH, 50, 100, stream=21),
        kernel(GEMM, 120, 100),
        kernel(GEMM, 500, 100, device=1),
    ]
    card = card_of(monkeypatch, entries)
    first, second = card.devices
    assert (first.total, first.hidden, first.waiting, first.exposed_waiting) == (150_000, 30_000, 50_000, 50_000)
    assert (second.device, second.total) == (1, 0)
    assert card.exposed == 120_000


def test_a_window_clips_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [kernel(NOTIFY, 0, 100), kernel(DISPATCH, 100, 100)]
    made = trace(*entries)
    patch_reader(monkeypatch, entries)
    card = build_communication_card(made, window=(60_000, 130_000))
    check_sums(card)
    assert (card.total, card.waiting, card.count) == (70_000, 40_000, 2)
    assert build_communication_card(made, window=(300_000, 400_000)).count == 0


def test_a_call_that_launched_several_kernels_gives_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def called(launches: int) -> CommunicationCard:
        inputs: dict[str, Any] = {"Input Dims": [[1000]], "Input type": ["float"]}
        note = annotation("nccl:all_reduce", 0, 90, **inputs)
        calls = [runtime("cudaLaunchKernel", 10 + 10 * k, 5, corr=1 + k) for k in range(launches)]
        kernels = [kernel(ALL_REDUCE, 200 + 100 * k, 50, corr=1 + k) for k in range(launches)]
        return card_of(monkeypatch, [note, *calls, *kernels])

    assert called(1).rows[0].bytes == 4000
    assert called(2).rows[0].bytes == 0


def test_a_missing_file_leaves_sizes_unknown() -> None:
    made = trace(kernel(ALL_REDUCE, 0, 100))
    records = read_communication(made)
    assert not records.is_readable
    card = build_communication_card(made)
    assert (card.total, card.waiting_source) == (100_000, None)
    assert "cannot be separated" in card.describe()


def test_a_trace_without_communication_has_an_empty_card() -> None:
    card = build_communication_card(trace(kernel(GEMM, 0, 100)))
    assert (card.total, card.count, card.rows, card.hidden_share) == (0, 0, (), 0.0)
    assert card.describe() == "no communication was recorded"
    assert card.as_json()["total_ns"] == 0


def test_bus_factors_are_those_of_nccl_tests() -> None:
    size = np.array([4, 0])
    factors = {operation: compute_bus_factor(operation, size).tolist() for operation in OPERATIONS}
    assert factors[Operation.ALL_REDUCE][0] == 1.5
    assert factors[Operation.ALL_GATHER][0] == factors[Operation.ALL_TO_ALL][0] == 0.75
    assert factors[Operation.BROADCAST] == [1, 1]
    assert np.isnan(factors[Operation.ALL_REDUCE][1])
    assert np.isnan(factors[Operation.DISPATCH][0])


@pytest.mark.parametrize(
    ("device", "group", "devices", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", 8, 8, 450),
        ("NVIDIA H100 PCIe", 2, 2, 63),
        ("NVIDIA A100-SXM4-80GB", 8, 0, 300),
        ("NVIDIA A100-PCIE-40GB", 4, 4, 31.5),
        ("Tesla V100-SXM2-32GB", 8, 8, 150),
        ("Tesla T4", 4, 4, 15.75),
        ("AMD Instinct MI300X", 8, 8, 448),
        ("NVIDIA H200", 16, 8, None),
        ("NVIDIA GB200", 72, 4, 900),
        ("", 8, 8, None),
    ],
)
def test_the_link_is_known_by_the_device(device: str, group: int, devices: int, expected: float | None) -> None:
    assert find_link_bandwidth(device, group, devices) == expected


def test_no_kernel_waits_longer_than_it_runs() -> None:
    """Random sizes and times: waits lie in 0..duration, whatever decided them."""
    random = np.random.default_rng(5)
    size = 400
    entries = [kernel(ALL_REDUCE, float(10 * k), float(random.integers(0, 9))) for k in range(size)]
    made = trace(*entries)
    records = read_communication(made)
    records = CommunicationRecords(
        records.events,
        random.integers(0, len(OPERATIONS), size).astype(np.uint8),
        random.integers(0, 5, size) * 1_000_000,
        random.integers(0, 9, size),
        random.integers(0, 2, size).astype(np.int32),
        records.library,
        records.device,
        records.libraries,
    )
    waits = estimate_waits(made, records)
    assert (waits.time >= 0).all()
    assert (waits.time <= made.duration[records.events]).all()
    assert set(waits.source.tolist()) <= set(range(communication_waiting.UNDECIDED + 1))


ODD_VALUES: list[Any] = [None, -1, 0, 2**70, "x", 3.5, [], {}, True, 1 << 55, "allreduce", "Float"]


def test_damaged_args_never_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Args of any type, in kernels and in the annotations above their launches."""
    random = np.random.default_rng(3)

    def odd() -> Any:
        return ODD_VALUES[int(random.integers(len(ODD_VALUES)))]

    keys = ("In msg nelems", "Out msg nelems", "Group size", "dtype", "Collective name", "Process Group Name")
    entries: list[Entry] = []
    for k in range(200):
        inputs = {"Input Dims": [odd(), [odd(), 3], [2**39, 2**39]], "Input type": [odd(), "float", "double"]}
        note = annotation("nccl:_all_gather_base", 100 * k, 50)
        entries.append({**note, "args": inputs if k % 3 else odd()})
        entries.append(runtime("cudaLaunchKernel", 100 * k + 10, 5, corr=k + 1))
        recorded = {key: odd() for key in keys if random.random() < 0.6}
        entries.append(kernel(ALL_REDUCE, 100 * k + 60, float(random.integers(0, 30)), corr=k + 1, **recorded))
    card = card_of(monkeypatch, entries)
    assert card.count == 200
    assert card.describe()
