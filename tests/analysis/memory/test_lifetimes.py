"""Property: what is alive sums to the curve after every record, for any sequence of allocations and frees."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.trace_builder import TID, cpu, kernel, memory, trace
from torchprof_tui.analysis.memory.device_memory import NOT_RECORDED, match_frees, pair_records, split_by_device
from torchprof_tui.analysis.memory.memory_history import GroupBy, build_memory_history
from torchprof_tui.trace.model.lanes import Role

Steps = list[tuple[int, int]]


def simulate(steps: Steps, older: dict[int, int]) -> tuple[list[tuple[int, int, int]], list[dict[int, int]]]:
    """Allocate and free as an allocator does: (address, signed size, total) of each record, what is alive after it."""
    live, records, states = dict(older), [], []
    for address, size in steps:
        change = -live.pop(address) if address in live else size
        if change > 0:
            live[address] = size
        records.append((address, change, sum(live.values())))
        states.append(dict(live))
    return records, states


steps = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 1 << 40)), min_size=1, max_size=60)
few_steps = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 1 << 40)), min_size=1, max_size=12)
olders = st.dictionaries(st.integers(1, 16), st.integers(1, 1 << 40), max_size=6)


@given(steps, olders)
def test_what_is_alive_sums_to_the_curve(steps: Steps, older: dict[int, int]) -> None:
    records, states = simulate(steps, older)
    shown = trace(
        cpu("a", 0, 5),
        *(memory(10 * k + 1, size, total, device=0, address=at) for k, (at, size, total) in enumerate(records)),
    )
    history = build_memory_history(shown)
    assert history is not None
    (device,) = history.devices
    alive = device.lifetimes.sum_alive(device.memory.records)
    assert (device.memory.held_before + alive).tolist() == [total for _, _, total in records]
    assert device.memory.allocated.tolist() == [total for _, _, total in records]
    untouched = {at for at in older if at not in {address for address, _ in steps}}
    assert device.memory.held_before == sum(older[at] for at in untouched)
    for (_, _, total), alive, time in zip(records, states, device.memory.time.tolist(), strict=True):
        state = device.find_state(time)
        sizes = sorted(size for at, size in alive.items() if at not in untouched)
        assert sorted(device.lifetimes.bytes[state.alive].tolist()) == sizes
        assert (state.allocated, state.unaccounted) == (total, 0)
        for by in (GroupBy.CATEGORY, GroupBy.OP, GroupBy.PHASE, GroupBy.LINE, GroupBy.MODULE):
            assert sum(group.bytes for group in device.group_state(state, by)) == total
    before = device.find_state(-1)
    assert before.allocated == sum(older.values()) == device.memory.base
    assert device.find_peak().allocated == max(total for _, _, total in records)


def test_older_and_never_freed_are_told_apart() -> None:
    lifetimes = pair_records(np.array([7, 8, 9, 8]), np.array([-100, 10, 20, -10]), np.arange(4, dtype=np.int64), 4)
    assert lifetimes.allocated_by.tolist() == [NOT_RECORDED, 1, 2]
    assert lifetimes.freed_by.tolist() == [0, 3, NOT_RECORDED]
    assert lifetimes.is_older.tolist() == [True, False, False]
    assert lifetimes.is_freed.tolist() == [True, True, False]
    assert lifetimes.find_alive(2).tolist() == [2, 1]
    assert lifetimes.find_alive(-1).tolist() == [0]


def test_a_lost_free_ends_where_the_address_is_used_again() -> None:
    """The recorded total has the lost free already: what is alive does not count it twice."""
    shown = trace(
        cpu("a", 0, 90),
        memory(1, 512, 512, device=0, address=7),
        memory(21, 128, 128, device=0, address=7),
    )
    history = build_memory_history(shown)
    assert history is not None
    state = history.devices[0].find_state(21_000)
    assert (state.allocated, state.unaccounted, len(state.alive)) == (128, 0, 1)


def test_missing_records_are_a_part_of_their_own() -> None:
    shown = trace(
        cpu("a", 0, 90),
        memory(1, 512, 512, device=0, address=7),
        memory(21, 128, 1000, device=0, address=8),  # 360 bytes were allocated without a record
    )
    history = build_memory_history(shown)
    assert history is not None
    device = history.devices[0]
    state = device.find_peak()
    assert (state.allocated, state.unaccounted) == (1000, 360)
    assert {group.label: group.bytes for group in device.group_state(state, GroupBy.OP)} == {
        "a": 640,
        "not accounted for": 360,
    }


def test_without_addresses_only_the_curve_is_known() -> None:
    shown = trace(cpu("a", 0, 10), memory(1, 512, 812, device=0, address=0), memory(2, -12, 800, device=0, address=0))
    history = build_memory_history(shown)
    assert history is not None
    device = history.devices[0]
    assert device.memory.lifetimes is None
    state = device.find_peak()
    assert (state.allocated, len(state.alive), state.unaccounted, state.older.bytes) == (812, 0, 512, 300)


def test_a_total_of_nothing_is_a_recorded_total() -> None:
    for first, base in ((812, 300), (-1, 512), (0, 0)):
        records = memory(1, 512, first, device=0), memory(2, -1024, 0, device=0)
        history = build_memory_history(trace(cpu("a", 0, 10), *records))
        assert history is not None
        (device,) = history.devices
        assert (device.memory.allocated.tolist(), device.memory.base) == ([base + 512 if first else 0, 0], base)
        assert device.memory.has_totals


@given(few_steps, olders, st.lists(st.booleans(), min_size=12, max_size=12), st.booleans(), st.booleans())
def test_totals_that_are_not_recorded_are_summed(
    steps: Steps, older: dict[int, int], is_recorded: list[bool], has_any: bool, has_addresses: bool
) -> None:
    """From the recorded ones; where there are none, from the least that can have been allocated before."""
    records, _ = simulate(steps, older)
    is_recorded = [recorded and has_any for recorded in is_recorded[: len(records)]]
    shown = trace(
        cpu("a", 0, 5),
        *(
            memory(10 * k + 1, size, total if recorded else -1, device=0, address=at * has_addresses, reserved=k // 2)
            for k, ((at, size, total), recorded) in enumerate(zip(records, is_recorded, strict=True))
        ),
    )
    history = build_memory_history(shown)
    assert history is not None
    (device,) = history.devices
    summed = np.cumsum([size for _, size, _ in records])
    touched = {at for at, _, _ in records} if has_addresses else set()
    freed = sum(size for at, size in older.items() if at in touched)
    base = sum(older.values()) if any(is_recorded) else max(freed, -int(summed.min()))
    assert (device.memory.base, device.memory.held_before) == (base, base - freed)
    assert device.memory.allocated.tolist() == (base + summed).tolist()
    assert device.memory.has_totals == any(is_recorded)
    reserved = [k // 2 for k in range(len(records))] if len(records) > 2 else [-1] * len(records)
    assert device.memory.reserved.tolist() == reserved
    assert device.memory.read_curve(np.zeros(1, np.int64))[0].tolist() == [base]


def test_a_lost_allocation_began_after_the_free_before_it() -> None:
    """An address that is freed twice was allocated in between: the second is not from before the recording."""
    lifetimes = pair_records(np.array([8, 8, 9, 8]), np.array([10, -10, 5, -30]), np.arange(4, dtype=np.int64), 4)
    assert lifetimes.allocated_by.tolist() == [0, NOT_RECORDED, 2]
    assert lifetimes.begin.tolist() == [0, 1, 2]
    assert lifetimes.end.tolist() == [1, 3, 4]
    assert [lifetimes.find_alive(record).tolist() for record in (-1, 0, 1, 2, 3)] == [[], [0], [1], [1, 2], [2]]


def test_ranks_share_no_addresses_though_their_processes_have_one_number() -> None:
    """In containers every rank is process 1."""
    shown = trace(
        cpu("a", 0, 90),
        cpu("b", 0, 90, thread=200),
        memory(1, 512, 512, device=0, address=7),
        memory(2, 128, 128, device=0, address=7, thread=200),
        memory(3, -512, 0, device=0, address=7),
        memory(4, -128, 0, device=0, address=7, thread=200),
    )
    assert shown.memory is not None
    assert [part.tolist() for part in split_by_device(shown, shown.memory)] == [[0, 1, 2, 3]]
    lanes = [dataclasses.replace(lane, rank=number) for number, lane in enumerate(shown.lanes)]
    ranks = dataclasses.replace(shown, lanes=lanes)
    assert [part.tolist() for part in split_by_device(ranks, shown.memory)] == [[0, 2], [1, 3]]
    matched = match_frees(ranks, shown.memory)
    assert not matched.is_foreign.any()
    assert not matched.is_held.any()


def test_records_of_a_device_without_addresses_are_matched_with_none() -> None:
    first, second = (memory(time, 512, 512, device=time, address=7 * time) for time in (0, 1))
    shown = trace(cpu("a", 0, 90), first, second)
    assert shown.memory is not None
    matched = match_frees(shown, shown.memory)
    assert matched.has_address.tolist() == [False, True]
    assert matched.is_held.tolist() == [False, True]


def test_each_device_of_each_process_has_addresses_of_its_own() -> None:
    shown = trace(
        cpu("a", 0, 90),
        cpu("b", 0, 90, thread=200),
        *(
            memory(5 - place, 512, 512, device=place % 2, address=7, thread=(100, 200)[place // 2])
            for place in range(4)
        ),
    )
    assert shown.memory is not None
    lanes = [dataclasses.replace(lane, rank=number) for number, lane in enumerate(shown.lanes)]
    ranks = dataclasses.replace(shown, lanes=lanes)
    assert [part.tolist() for part in split_by_device(ranks, shown.memory)] == [[3], [2], [1], [0]]


@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 1), st.integers(-1, 2)), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from("ab")), min_size=4, max_size=4),
)
def test_records_are_split_by_process_and_device(
    rows: list[tuple[int, int, int]], processes: list[tuple[int, str]]
) -> None:
    """A record of a thread without events, of lane -1, belongs to the only process, or else to none of them."""
    shown = trace(*(cpu("a", 0, 90, thread=TID + number) for number in range(4)), memory(1, 512, 0))
    assert shown.memory is not None
    threads = zip(shown.lanes[:4], processes, strict=True)
    lanes = [dataclasses.replace(lane, rank=rank, pid=pid) for lane, (rank, pid) in threads]
    assert shown.lanes[4].role is Role.COUNTER  # is of no process
    lane_of, device_type, device_id = (np.array(column) for column in zip(*rows, strict=True))
    columns = {"time": np.arange(len(rows)), "lane": lane_of, "device_type": device_type, "device_id": device_id}
    records = dataclasses.replace(shown.memory, **columns)
    expected: dict[tuple[int, int, int], list[int]] = {}
    distinct = list(dict.fromkeys(processes))
    for row, (lane, *device) in enumerate(rows):
        process = distinct.index(processes[lane]) if lane >= 0 else 0 if len(distinct) == 1 else -1
        expected.setdefault((process, *device), []).append(row)
    found = split_by_device(dataclasses.replace(shown, lanes=[*lanes, shown.lanes[4]]), records)
    assert [part.tolist() for part in found] == [expected[key] for key in sorted(expected)]


def test_a_thread_without_events_may_free_what_the_only_process_allocated() -> None:
    records = memory(1, 512, 512, device=0, address=7), memory(2, -512, 0, device=0, address=7, thread=99)
    shown = trace(cpu("a", 0, 90), kernel("k", 3, 5), *records)
    assert shown.memory is not None
    assert shown.memory.lane.tolist() == [0, -1]
    assert not match_frees(shown, shown.memory).is_held.any()


def test_the_first_record_may_begin_or_end_a_lifetime() -> None:
    for size, since, until in ((512, 1000, None), (-512, None, 1000)):
        history = build_memory_history(trace(cpu("a", 0, 90), memory(1, size, 512 + size, device=0, address=7)))
        assert history is not None
        (device,) = history.devices
        assert (device.since(0), device.until(0)) == (since, until)
