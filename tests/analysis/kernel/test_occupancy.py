"""Test occupancy against NVIDIA: the CUDA runtime and Nsight Compute on an H200, and the CUDA toolkit's header."""

from __future__ import annotations

import json
from functools import cache
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.paths import FIXTURES
from torchprof_tui.analysis.kernel.occupancy import (
    CAPABILITY_LIMITS,
    LIMIT_NAMES,
    Device,
    LaunchConfig,
    compute_occupancy,
    find_occupancy_changes,
    parse_device,
)
from torchprof_tui.trace.model.trace_metadata import read_trace_metadata

FIXTURES = FIXTURES


def describe_device(properties: dict[str, Any]) -> Device:
    """The device that an entry of `deviceProperties` describes."""
    metadata, _ = read_trace_metadata({"deviceProperties": [properties]})
    return parse_device(metadata.devices[0])


A100 = describe_device(
    {
        "name": "NVIDIA A100-SXM4-80GB",
        "computeMajor": 8,
        "computeMinor": 0,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048,
        "regsPerBlock": 65536,
        "regsPerMultiprocessor": 65536,
        "warpSize": 32,
        "sharedMemPerBlock": 49152,
        "sharedMemPerBlockOptin": 166912,
        "sharedMemPerMultiprocessor": 167936,
        "numSms": 108,
    }
)
MI300X = describe_device(
    {
        "name": "AMD Instinct MI300X",
        "computeMajor": 9,
        "computeMinor": 4,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048,
        "regsPerBlock": 65536,
        "warpSize": 64,
        "sharedMemPerBlock": 65536,
        "numSms": 304,
        "maxSharedMemoryPerMultiProcessor": 65536,
    }
)


@cache
def fixture(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / name).read_text())
    return found


needs_h200 = pytest.mark.skipif(
    not (FIXTURES / "occupancy_h200.json").exists(),
    reason="not recorded yet: tools/record_occupancy.py gpu, on an H200",
)


def of_capability(major: int, minor: int, optin: int | None = None) -> Device:
    """Build a device with only a compute capability: all other values come from the table."""
    properties = {"computeMajor": major, "computeMinor": minor, "warpSize": 32, "numSms": 100}
    return describe_device(properties | ({"sharedMemPerBlockOptin": optin} if optin else {}))


# Literal cases


@pytest.mark.parametrize(
    ("threads", "registers", "blocks", "warps", "percent", "limited_by"),
    [
        (128, 255, 2, 8, 12.5, ("registers",)),
        (256, 240, 1, 8, 12.5, ("registers",)),
        (256, 32, 8, 64, 100.0, ("warps", "registers")),
        (32, 16, 32, 32, 50.0, ("blocks",)),
        (1024, 64, 1, 32, 50.0, ("registers",)),
        (1024, 32, 2, 64, 100.0, ("warps", "registers")),
        (768, 40, 2, 48, 75.0, ("warps", "registers")),
    ],
)
def test_known_answers_on_an_a100(
    threads: int, registers: int, blocks: int, warps: int, percent: float, limited_by: tuple[str, ...]
) -> None:
    found = compute_occupancy(A100, LaunchConfig(threads, registers, 0))
    assert (found.active_blocks, found.active_warps) == (blocks, warps)
    assert found.fraction is not None
    assert 100 * found.fraction == pytest.approx(percent)
    assert found.limited_by == limited_by


def test_shared_memory_counts_the_kilobyte_that_the_system_takes() -> None:
    """Four times 40 KB and 1 KB are 164 KB, the size on an SM of 8.0. With one byte more, only three fit."""
    assert compute_occupancy(A100, LaunchConfig(128, 32, 40 * 1024)).limits["shared_memory"] == 4
    assert compute_occupancy(A100, LaunchConfig(128, 32, 40 * 1024 + 1)).limits["shared_memory"] == 3


def test_a_volta_reserves_nothing() -> None:
    volta = of_capability(7, 0)
    assert compute_occupancy(volta, LaunchConfig(128, 32, 24 * 1024)).limits["shared_memory"] == 4
    assert compute_occupancy(volta, LaunchConfig(128, 32, 24 * 1024 + 1)).limits["shared_memory"] == 3


# Against NVIDIA's results


@needs_h200
def test_every_answer_of_the_cuda_runtime_on_an_h200() -> None:
    recorded = fixture("occupancy_h200.json")
    h200 = describe_device(recorded["device"])
    assert recorded["device"]["maxBlocksPerMultiProcessor"] == CAPABILITY_LIMITS[9, 0].max_blocks
    assert recorded["device"]["reservedSharedMemPerBlock"] == CAPABILITY_LIMITS[9, 0].reserved_shared_memory
    assert recorded["device"]["sharedMemPerMultiprocessor"] == CAPABILITY_LIMITS[9, 0].shared_memory
    wrong = []
    for registers, static, block, dynamic, blocks in recorded["sweep"]:
        ours = compute_occupancy(h200, LaunchConfig(block, registers, static + dynamic)).active_blocks
        if ours != blocks:
            wrong.append((registers, static, block, dynamic, blocks, ours))
    assert wrong == []
    opted_in = [row for row in recorded["sweep"] if row[1] + row[3] > 48 * 1024]
    assert len(opted_in) > 1700
    assert len(recorded["sweep"]) > 4000
    assert len({blocks for *_, blocks in recorded["sweep"]}) > 15


def test_every_answer_of_the_toolkits_calculator() -> None:
    recorded = fixture("occupancy_calculator.json")
    wrong = []
    for row in recorded["rows"]:
        major, minor, registers, static, block, dynamic, blocks, warps, by_registers, by_shared, by_blocks = row
        device = of_capability(major, minor, recorded["capabilities"][f"{major}.{minor}"][3])
        found = compute_occupancy(device, LaunchConfig(block, registers, static + dynamic))
        limits = [found.limits["warps"], found.limits["registers"], found.limits["blocks"]]
        if found.active_blocks != blocks or limits != [warps, by_registers, by_blocks]:
            wrong.append((row, found))
        if static + dynamic and found.limits["shared_memory"] != by_shared:
            wrong.append((row, found))
    assert wrong == []
    assert {tuple(row[:2]) for row in recorded["rows"]} <= set(CAPABILITY_LIMITS)


@needs_h200
def test_real_kernels_as_nsight_compute_sees_them() -> None:
    """Theoretical occupancy and waves of PyTorch's kernels, from the args that torch.profiler wrote."""
    recorded = fixture("occupancy_h200.json")
    h200 = describe_device(recorded["device"])
    columns = recorded["kernel_columns"]
    wrong = []
    for values in recorded["kernels"]:
        row = dict(zip(columns, values, strict=True))
        threads = row["block"][0] * row["block"][1] * row["block"][2]
        grid = row["grid"][0] * row["grid"][1] * row["grid"][2]
        found = compute_occupancy(
            h200, LaunchConfig(threads, row["profiler_registers"], row["profiler_shared_memory"], grid)
        )
        assert found.fraction is not None
        assert found.waves is not None
        same = 100 * found.fraction == pytest.approx(row["theoretical_percent"], abs=0.01)
        same &= found.waves == pytest.approx(row["waves"], abs=0.006)
        same &= found.limits["warps"] == row["warps_limit"]
        if not same:
            wrong.append((row["name"], found, row))
    assert wrong == []
    assert len(recorded["kernels"]) > 150


# Against simulation and exhaustive search

launches = st.builds(
    LaunchConfig,
    threads_per_block=st.integers(1, 1024),
    registers_per_thread=st.integers(1, 255),
    shared_memory=st.one_of(st.just(0), st.integers(0, 100 * 1024)),
    grid_blocks=st.integers(1, 100_000),
)
devices = st.sampled_from(sorted(CAPABILITY_LIMITS)).map(lambda capability: of_capability(*capability))


@given(devices, launches)
def test_against_filling_an_sm_block_by_block(device: Device, launch: LaunchConfig) -> None:
    """Registers are taken from each sub-partition's share, warp by warp; everything else from the SM."""
    table = device.capability_limits
    assert table is not None
    assert launch.registers_per_thread is not None
    assert launch.shared_memory is not None
    warps = ceil(launch.threads_per_block / 32)
    a_warp = ceil(launch.registers_per_thread * 32 / 256) * 256
    unit = table.shared_memory_granularity
    a_block = ceil((launch.shared_memory + table.reserved_shared_memory) / unit) * unit
    free_registers = [65536 // table.sub_partitions] * table.sub_partitions
    free_shared, free_warps, placed = table.shared_memory, table.max_threads // 32, 0
    if a_warp * ceil(warps / 4) * 4 <= 65536:
        while placed < table.max_blocks and free_warps >= warps and free_shared >= a_block:
            try:
                for _ in range(warps):
                    roomy = max(range(table.sub_partitions), key=lambda part: free_registers[part])
                    if free_registers[roomy] < a_warp:
                        raise MemoryError
                    free_registers[roomy] -= a_warp
            except MemoryError:
                break
            free_warps -= warps
            free_shared -= a_block
            placed += 1
    found = compute_occupancy(device, launch)
    assert found.active_blocks == placed
    if placed:
        assert found.waves is not None
        assert found.waves * placed * 100 == pytest.approx(launch.grid_blocks)


@given(devices, launches)
def test_what_if_is_the_nearest_change_that_helps(device: Device, launch: LaunchConfig) -> None:
    now = compute_occupancy(device, launch)
    changes = {change.parameter: change for change in find_occupancy_changes(device, launch)}
    if not now.active_blocks:
        assert not changes
        return
    assert launch.registers_per_thread is not None
    assert launch.shared_memory is not None
    assert now.fraction is not None

    def with_registers(count: int) -> int:
        return (
            compute_occupancy(device, LaunchConfig(launch.threads_per_block, count, launch.shared_memory)).active_blocks
            or 0
        )

    better = [count for count in range(1, launch.registers_per_thread) if with_registers(count) > now.active_blocks]
    if better:
        assert changes["registers"].after == max(better)
        assert changes["registers"].active_blocks == with_registers(max(better)) > now.active_blocks
    else:
        assert "registers" not in changes

    def with_shared(size: int) -> int:
        return (
            compute_occupancy(
                device, LaunchConfig(launch.threads_per_block, launch.registers_per_thread, size)
            ).active_blocks
            or 0
        )

    if "shared_memory" in changes:
        change = changes["shared_memory"]
        assert change.after < launch.shared_memory
        assert with_shared(change.after) == change.active_blocks > now.active_blocks
        assert with_shared(change.after + 1) == now.active_blocks
    else:
        assert with_shared(0) == now.active_blocks

    def with_block(size: int) -> float:
        return (
            compute_occupancy(device, LaunchConfig(size, launch.registers_per_thread, launch.shared_memory)).fraction
            or 0.0
        )

    sizes = [size for size in range(32, 1025, 32) if with_block(size) > now.fraction]
    if sizes:
        nearest = min(abs(size - launch.threads_per_block) for size in sizes)
        assert abs(changes["block"].after - launch.threads_per_block) == nearest
        assert changes["block"].occupancy == with_block(changes["block"].after)
    else:
        assert "block" not in changes


@given(devices, launches)
def test_limits_tell_what_limits(device: Device, launch: LaunchConfig) -> None:
    found = compute_occupancy(device, launch)
    known = [limit for limit in found.limits.values() if limit is not None]
    assert set(found.limits) == set(LIMIT_NAMES)
    assert found.active_blocks == found.active_blocks_bound == min(known)
    assert found.limited_by
    assert all(found.limits[name] == found.active_blocks for name in found.limited_by)
    if found.tail_waste is not None:
        assert 0 <= found.tail_waste < 1
    assert found.idle_sms == max(0, 100 - (launch.grid_blocks or 0))


# Unknown values stay None


def test_amd_has_no_registers_in_its_traces() -> None:
    found = compute_occupancy(MI300X, LaunchConfig(256, None, 16384, 608))
    assert MI300X.vendor == "AMD"
    assert MI300X.max_warps == 32
    assert found.warps_per_block == 4
    assert found.limits == {"warps": 8, "registers": None, "shared_memory": None, "blocks": None}
    assert (found.active_blocks, found.fraction, found.waves, found.limited_by) == (None, None, None, ())
    assert found.active_blocks_bound == 8
    assert (
        compute_occupancy(MI300X, LaunchConfig(256, None, None, 608, min_shared_memory=16384)).active_blocks_bound == 4
    )
    assert found.idle_sms == 0
    assert find_occupancy_changes(MI300X, LaunchConfig(256, None, 16384, 608)) == ()


def test_the_capability_of_an_mi300_is_not_hoppers() -> None:
    assert MI300X.capability == (9, 4)
    assert MI300X.capability_limits is None
    mi210 = describe_device({"computeMajor": 9, "computeMinor": 0, "warpSize": 64, "maxThreadsPerMultiprocessor": 2048})
    assert mi210.capability_limits is None


def test_a_capability_that_the_table_lacks() -> None:
    future = of_capability(99, 0)
    found = compute_occupancy(future, LaunchConfig(128, 32, 0, 10))
    assert found.active_blocks is None
    assert all(limit is None for limit in found.limits.values())


def test_missing_registers_leave_the_rest_standing() -> None:
    found = compute_occupancy(A100, LaunchConfig(128, None, 0, 10))
    assert found.limits["warps"] == 16
    assert found.limits["registers"] is None
    assert found.active_blocks is None
    assert found.active_blocks_bound == 16


def test_a_launch_that_cannot_run() -> None:
    assert compute_occupancy(A100, LaunchConfig(2048, 32, 0)).active_blocks == 0
    assert compute_occupancy(A100, LaunchConfig(1024, 255, 0)).active_blocks == 0
    assert compute_occupancy(A100, LaunchConfig(128, 32, 200 * 1024)).active_blocks == 0
    assert find_occupancy_changes(A100, LaunchConfig(2048, 32, 0)) == ()


@pytest.mark.parametrize("properties", [{}, {"name": None, "numSms": "inf", "warpSize": True, "computeMajor": 8.0}])
def test_odd_device_properties_are_no_error(properties: dict[str, Any]) -> None:
    device = describe_device(properties)
    found = compute_occupancy(device, LaunchConfig(128, 32, 0, 10))
    assert found.active_blocks is None
    assert device.warp_size == 32
