"""The account of two traces: its parts sum to the difference, mirror, and equal a slow reference."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from functools import cache
from itertools import combinations, islice
from pathlib import Path

import pytest

from tests.helpers.account_reference import divide_steps
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES, SHARED_TRACES, find_shared_traces
from tests.helpers.pattern_traces import ADD, GEMM, op_with_work
from tests.helpers.trace_builder import Entry, cpu, step, trace
from torchprof_tui.analysis.compare.account import (
    CAUSE,
    CLASS,
    COPIES,
    EXPOSED,
    OUTSIDE,
    Account,
    PartChange,
    build_account,
    divide_evenly,
    group_account,
    label_part,
)
from torchprof_tui.analysis.compare.comparison import require_torch_trace
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.compare.step_selection import ComparisonError
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.load_in_process import load_opened_trace
from torchprof_tui.trace.model.trace import Trace

SAMPLE_FILES = sorted(SAMPLES.glob("*.json.gz")) + sorted((SAMPLES / "train_gpt_2ranks").glob("*.json.gz"))


@cache
def analyse(path: Path) -> SideAnalysis:
    return SideAnalysis(load_opened_trace(str(path), lambda _: None, False).trace, path.name)


def analyse_if_torch(path: Path) -> SideAnalysis | None:
    try:
        opened = load_opened_trace(str(path), lambda _: None, False).trace
        require_torch_trace(opened)
        return SideAnalysis(opened, path.name)
    except (ComparisonError, TraceError):
        return None


def analyse_sample(name: str) -> SideAnalysis:
    return analyse(SAMPLES / f"{name}.pt.trace.json.gz")


def of_steps(*steps: list[Entry], length: float = 1000.0) -> Trace:
    """Build a trace of steps of 1 ms; the entries of each are relative to its start."""
    entries: list[Entry] = []
    for number, inside in enumerate(steps):
        entries.append(step(number, number * length, length))
        entries += [{**entry, "ts": entry["ts"] + number * length} for entry in inside]
    return trace(*entries)


def check_account(a: SideAnalysis, b: SideAnalysis) -> Account:
    """Check what holds for any two traces: parts sum to the nanosecond, and B against A is the mirror image."""
    account, mirror = build_account(a, b), build_account(b, a)
    for side, total, times in (
        (a, account.a, [part.a for part in account.parts]),
        (b, account.b, [part.b for part in account.parts]),
    ):
        assert sum(times) == total
        assert min(times, default=0) >= 0
        assert all(part.a or part.b for part in account.parts)
        assert abs(total - (side.span[1] - side.span[0]) / side.side.step_count) <= 0.5
    assert sum(part.delta for part in account.parts) == account.delta == account.b - account.a
    assert mirror.delta == -account.delta
    assert {part.id: (part.a, part.b, part.noise) for part in account.parts} == {
        part.id: (part.b, part.a, part.noise) for part in mirror.parts
    }
    return account


@pytest.mark.long
@pytest.mark.parametrize("nth", [pytest.param(1, marks=pytest.mark.long), 40])
def test_parts_sum_to_the_difference_on_every_nth_pair_of_samples(nth: int) -> None:
    for first, second in islice(combinations(SAMPLE_FILES, 2), 0, None, nth):
        check_account(analyse(first), analyse(second))


@pytest.mark.parametrize("path", keep_some(SAMPLE_FILES, 12), ids=lambda path: path.name.split(".")[0])
def test_a_trace_against_itself_has_no_difference(path: Path) -> None:
    account = build_account(analyse(path), analyse(path))
    assert account.delta == 0
    assert all(part.delta == 0 for part in account.parts)


@pytest.mark.skipif(not SHARED_TRACES.is_dir(), reason="needs the shared traces")
@pytest.mark.parametrize("seed", keep_some(range(4), 1))
def test_parts_sum_to_the_difference_on_random_pairs(seed: int) -> None:
    small = [path for path in find_shared_traces() if path.stat().st_size < 1_000_000]
    sides = [side for path in random.Random(seed).sample(small, 6) if (side := analyse_if_torch(path)) is not None]
    for a, b in combinations(sides, 2):
        check_account(a, b)


@pytest.mark.parametrize(
    "name", ["geglu_mlp_eager", "geglu_mlp_compile", "attention_naive", "attention_flash", "matmul_add_4096_warm_eager"]
)
def test_parts_equal_those_of_a_slow_reference(name: str) -> None:
    side = analyse_sample(name)
    length, expected = divide_steps(SAMPLES / f"{name}.pt.trace.json.gz", [each.number for each in side.side.steps])
    assert side.span[1] - side.span[0] == length
    account = build_account(side, side)
    found: dict[str, int] = {}
    for part in account.parts:
        key = "idle" if part.id.startswith("idle:") else part.id
        found[key] = found.get(key, 0) + part.a
    assert set(found) == {key for key, time in expected.items() if time}
    for key, time in found.items():
        # each of the parts by cause is rounded once
        assert abs(time - expected[key] / side.side.step_count) <= (len(account.parts) if key == "idle" else 1)


def test_a_kernel_that_got_longer_is_the_part_that_changed() -> None:
    a = SideAnalysis(of_steps(*[op_with_work("aten::mm", 10, 30, 500, GEMM) for _ in range(3)]), "a")
    b = SideAnalysis(of_steps(*[op_with_work("aten::mm", 10, 30, 700, GEMM) for _ in range(3)]), "b")
    account = check_account(a, b)
    changes = {part.label: part.delta for part in account.parts if part.delta}
    assert changes["GPU: gemm"] == 200_000
    assert sum(changes.values()) == account.delta == 0  # the steps are 1 ms long on both sides
    assert account.parts[0].delta


def test_several_devices_are_averaged() -> None:
    def steps(time: float) -> Trace:
        return of_steps(
            *[
                [*op_with_work("aten::mm", 10, 30, time, GEMM), *op_with_work("aten::mm", 20, 40, 100, GEMM, device=1)]
                for _ in range(3)
            ]
        )

    account = check_account(SideAnalysis(steps(300), "a"), SideAnalysis(steps(501), "b"))
    changes = {part.id: part.delta for part in account.parts}
    assert changes["gpu:gemm"] == 100_500


@pytest.mark.parametrize("by", [CLASS, CAUSE])
def test_groups_have_all_of_both_sides(by: str) -> None:
    account = build_account(analyse_sample("geglu_mlp_eager"), analyse_sample("geglu_mlp_compile"))
    groups = group_account(account, by)
    assert 1 < len(groups) < len(account.parts)
    assert sum(group.a for group in groups) == account.a
    assert sum(group.b for group in groups) == account.b


def test_groups_are_classes_of_gpu_work_or_causes_of_idle_time() -> None:
    def change(part_id: str, a: int, b: int, noise: float | None = 1.0) -> PartChange:
        return PartChange(part_id, label_part(part_id), a, b, noise)

    parts = (
        change("gpu:gemm", 10, 30),
        change("gpu:memory", 5, 6),
        change("idle:host_code", 7, 7),
        change(COPIES, 9, 6),
    )
    rows = {by: group_account(Account(31, 49, 1.0, parts, True), by) for by in (CLASS, CAUSE)}
    assert [(row.id, row.label, row.a, row.b, row.noise) for row in rows[CLASS]] == [
        ("GPU: gemm", "GPU: gemm", 10, 30, None),
        ("GPU does not compute", "GPU does not compute", 16, 13, None),
        ("GPU: memset", "GPU: memset", 5, 6, None),
    ]
    assert [(row.label, row.a, row.b) for row in rows[CAUSE]] == [
        ("GPU computes", 15, 36),
        ("copies", 9, 6),
        ("GPU idle: host code", 7, 7),
    ]
    of_cpu = Account(8, 8, None, (change("cpu:cpu_op", 3, 4), change("cpu:input", 5, 4)), False)
    assert [row.label for row in group_account(of_cpu, CLASS)] == ["CPU: CPU op", "CPU: data loader"]
    assert group_account(of_cpu, CLASS) == group_account(of_cpu, CAUSE)


@pytest.mark.parametrize(
    ("part_id", "label"),
    [
        (OUTSIDE, "outside the program"),
        (EXPOSED, "exposed communication"),
        ("gpu:flash_attention", "GPU: flash attention"),
        ("idle:cpu_sync", "GPU idle: CPU sync"),
        ("cpu:host_code", "CPU: outside any op"),
        ("cpu:ops", "CPU: ops"),
        ("another", "another"),
    ],
)
def test_labels_of_parts(part_id: str, label: str) -> None:
    assert label_part(part_id) == label


def test_parts_beyond_their_noise_come_first_and_the_largest_of_them() -> None:
    a = SideAnalysis(of_steps(*[op_with_work("aten::mm", 10, 30, 300 + k % 2, GEMM) for k in range(4)]), "a")
    b = SideAnalysis(of_steps(*[op_with_work("aten::mm", 10, 30, 301 + 99 * (k % 2), GEMM) for k in range(4)]), "b")
    for account in (build_account(a, b), build_account(b, a), build_account(a, a)):
        keys = [(part.is_within_noise is True, -abs(part.delta), part.id) for part in account.parts]
        assert keys == sorted(keys)
    c = SideAnalysis(of_steps(*[op_with_work("aten::mm", 10, 60, 400, GEMM) for _ in range(4)]), "c")
    assert [part.is_within_noise for part in build_account(b, c).parts][:1] == [False]


def test_the_ratio_is_of_a() -> None:
    assert [Account(a, b, None, (), True).ratio for a, b in ((100, 105), (100, 50), (0, 7))] == [0.05, -0.5, 0.0]
    assert Account(100, 105, None, (), True).delta_beyond_noise is None


@pytest.mark.parametrize(
    ("a", "b", "noise", "is_within"),
    [(10, 10, 0.0, True), (10, 11, 0.0, False), (10, 12, 2.0, True), (10, 8, 2.0, True), (10, 7, 2.0, False)],
)
def test_a_change_as_large_as_its_noise_may_be_chance(a: int, b: int, noise: float, is_within: bool) -> None:
    part = PartChange("gpu:gemm", "GPU: gemm", a, b, noise)
    account = Account(a, b, noise, (part,), True)
    assert part.is_within_noise is account.is_within_noise is is_within
    assert account.delta_beyond_noise == (0 if is_within else b - a - noise * (1 if b > a else -1))
    assert PartChange("gpu:gemm", "GPU: gemm", a, b, None).is_within_noise is None


def test_the_noise_of_equal_devices_is_that_of_one() -> None:
    def side(*devices: int, longer: float = 0) -> SideAnalysis:
        return SideAnalysis(
            of_steps(
                *[
                    [
                        entry
                        for device in devices
                        for entry in op_with_work("aten::mm", 10, 30, time + longer, GEMM, device=device)
                    ]
                    for time in (300, 310, 335)
                ]
            ),
            "side",
        )

    one = {part.id: part.noise for part in check_account(side(0), side(0, longer=50)).parts}
    two = {part.id: part.noise for part in check_account(side(0, 1), side(0, 1, longer=50)).parts}
    assert one["gpu:gemm"]
    assert two["gpu:gemm"] == pytest.approx(one["gpu:gemm"])


@pytest.mark.parametrize(("count", "has_noise"), [(1, False), (2, True)])
def test_two_steps_are_enough_to_measure_noise(count: int, has_noise: bool) -> None:
    def side(time: float) -> SideAnalysis:
        return SideAnalysis(
            of_steps(*[op_with_work("aten::mm", 10, 30, time + 9 * k, GEMM) for k in range(count)]), "side"
        )

    noise = {part.id: part.noise for part in check_account(side(300), side(400)).parts}
    assert bool(noise["gpu:gemm"]) is has_noise


def test_a_cpu_only_trace_is_divided_by_its_main_thread() -> None:
    def steps(time: float) -> Trace:
        return of_steps(*[[cpu("aten::mm", 10, time)]] * 3)

    account = check_account(SideAnalysis(steps(300), "a"), SideAnalysis(steps(400), "b"))
    assert not account.is_of_gpu
    assert {part.id: part.delta for part in account.parts} == {"cpu:ops": 100_000, "cpu:host_code": -100_000}


def test_a_side_without_gpu_work_makes_both_be_divided_by_the_main_thread() -> None:
    a = SideAnalysis(of_steps(*[op_with_work("aten::mm", 10, 30, 500, ADD) for _ in range(3)]), "a")
    b = SideAnalysis(of_steps(*[[cpu("aten::mm", 10, 300)]] * 3), "b")
    account = check_account(a, b)
    assert not account.is_of_gpu
    assert all(part.id.startswith("cpu:") for part in account.parts)


def test_the_account_of_many_steps_measures_a_sample_of_them() -> None:
    def steps(time: float) -> Trace:
        return of_steps(*[op_with_work("aten::mm", 10, 30, time + number % 3, GEMM) for number in range(100)])

    account = check_account(SideAnalysis(steps(300), "a"), SideAnalysis(steps(400), "b"))
    gemm = next(part for part in account.parts if part.id == "gpu:gemm")
    assert gemm.delta == 100_000
    assert gemm.is_within_noise is False


@pytest.mark.parametrize("count", [1, 2, 3, 7, 12])
def test_rounding_keeps_the_sum(count: int) -> None:
    random_numbers = random.Random(count)
    for _ in range(200):
        times = {f"part {k}": random_numbers.randrange(50) for k in range(random_numbers.randrange(1, 9))}
        expected = {part: time // count for part, time in times.items()}
        while sum(expected.values()) < math.floor(Fraction(sum(times.values()), count) + Fraction(1, 2)):
            lost = {part: Fraction(time, count) - expected[part] for part, time in times.items()}
            expected[max(times, key=lambda part: lost[part])] += 1  # the first of those that lost most
        assert divide_evenly(times, count) == expected
