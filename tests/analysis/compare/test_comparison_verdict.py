"""The verdict on two traces: the headline, launches, the causes beyond noise, patterns of one side."""

from __future__ import annotations

import pytest

from tests.analysis.compare.test_account import analyse_sample
from tests.helpers.long_run import keep_some
from tests.helpers.paths import FIXTURES, SAMPLES
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.compare.account import Account, PartChange, build_account
from torchprof_tui.analysis.compare.changed_places import find_changed_section, find_places, measure_gaps_in_section
from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.comparison_verdict import describe_change
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.rules.warmup import describe_launches
from torchprof_tui.trace.loading.load_in_process import load_opened_trace


def compare(a: str, b: str) -> Comparison:
    traces = [
        load_opened_trace(str(SAMPLES / f"{name}.pt.trace.json.gz"), lambda _: None, False).trace for name in (a, b)
    ]
    return Comparison(SideAnalysis(traces[0], a), SideAnalysis(traces[1], b))


def account(a: int, b: int, noise: float | None) -> Account:
    return Account(a, b, noise, (PartChange("copies", "copies", a, b, noise),), True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (account(1000, 1000, 5.0), "a step takes the same time in both: 1.00 µs"),
        (account(1000, 1100, 5.0), "a step of B is 100 ns (10 %) longer than one of A (noise ±5 ns)"),
        (
            account(3000, 1000, 5.0),
            "a step of B is 2.00 µs (67 %) shorter than one of A, 3 times as fast (noise ±5 ns)",
        ),
        (
            account(1000, 1100, 200.0),
            "a step of B is 100 ns (10 %) longer than one of A, which is within the noise of ±200 ns",
        ),
        (
            account(1000, 1100, None),
            "a step of B is 100 ns (10 %) longer than one of A; one step: cannot tell whether by chance",
        ),
    ],
)
def test_headline(given: Account, expected: str) -> None:
    assert describe_change(given) == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (0, 0, ""),
        (7, 7, "launches a step: 7 → 7"),
        (10, 5, "launches a step: 10 → 5 (-50 %, down by half)"),
        (10, 3, "launches a step: 10 → 3 (-70 %, down by more than half)"),
        (10, 9, "launches a step: 10 → 9 (-10 %, down by less than half)"),
        (4, 6.5, "launches a step: 4 → 6.5 (+62 %)"),
        (0, 6, "launches a step: 0 → 6"),
    ],
)
def test_launches_go_down_by_half_or_not(a: float, b: float, expected: str) -> None:
    assert describe_launches(a, b) == expected


def test_flash_attention_replaces_what_moved_memory() -> None:
    verdict = compare("attention_naive", "attention_flash").verdict
    assert [cause.part.label for cause in verdict.causes] == ["GPU: elementwise", "GPU: softmax", "GPU: gemm"]
    first = verdict.causes[0]
    assert first.side == "a"
    assert first.pattern is not None
    assert first.pattern.id == "memory-bound-elementwise"
    assert first.line == "attn_fwd"
    assert "memory-bound-elementwise" in {found.id for found in verdict.patterns_a_only}
    assert not verdict.patterns_b_only
    assert verdict.launches == "launches a step: 7 → 1 (-86 %, down by more than half)"
    assert verdict.regimes.startswith(
        "A is compute-bound, GPU busy 99 % of its steps; B is compute-bound, GPU busy 96 %"
    )


def test_the_sides_swapped_give_the_patterns_of_the_other() -> None:
    there, back = compare("attention_naive", "attention_flash"), compare("attention_flash", "attention_naive")
    assert [found.id for found in there.verdict.patterns_a_only] == [found.id for found in back.verdict.patterns_b_only]
    assert [cause.part.delta for cause in there.verdict.causes] == [-cause.part.delta for cause in back.verdict.causes]


def test_the_starved_loader_is_the_cause() -> None:
    verdict = compare("train_gpt_starved", "train_gpt_stack_memory").verdict
    (cause,) = verdict.causes  # changes under half a percent of a step are no causes
    assert cause.part.id == "idle:input"
    assert cause.pattern is not None
    assert cause.pattern.id == "input-starved"


def test_a_trace_against_itself_has_no_causes() -> None:
    comparison = compare("attention_naive", "attention_naive")
    assert comparison.is_same_recording
    assert not comparison.verdict.causes
    assert not comparison.verdict.patterns_a_only
    assert not compare("attention_naive", "attention_flash").is_same_recording


@pytest.mark.parametrize(
    ("fault", "part", "pattern", "line"),
    keep_some(
        [
            ("unfused_elementwise", "gpu:elementwise", "memory-bound-elementwise", "forward"),
            ("channels_first", "gpu:copy", "layout-conversion", "forward"),
            ("fp32_matmuls", "gpu:gemm", "no-tensor-core", "forward"),
            ("pageable_batch", "copies", "pageable-copy", "memory.py(25): step"),
            ("per_parameter_optimizer", "idle:launch", "optimizer-loop", "Optimizer.step#AdamW.step"),
            ("no_workers", "idle:input", "input-starved", "host.py(83): step"),
            ("recompiles", "idle:dispatch", "recompiles", "forward"),
            ("gc_pauses", "idle:host_code", "gc-pause", "host.py(190): step"),
            ("exposed_all_gather", "exposed_communication", "exposed-comm", "forward"),
        ],
        3,
    ),
)
def test_the_first_cause_is_the_fault_that_was_mended(fault: str, part: str, pattern: str, line: str) -> None:
    """A is a recording with one known fault, B the same program without it."""
    rank = ".rank0" if fault == "exposed_all_gather" else ""
    sides = [
        SideAnalysis(load_opened_trace(str(path), lambda _: None, False).trace, path.name)
        for path in (FIXTURES / "faults" / f"{fault}.{state}{rank}.json.gz" for state in ("faulty", "mended"))
    ]
    comparison = Comparison(sides[0], sides[1])
    cause = comparison.verdict.causes[0]
    assert cause.part.id == part
    assert cause.part.delta < 0
    assert cause.side == "a"
    assert cause.pattern is not None
    assert (cause.pattern.id, cause.line) == (pattern, line)


def test_without_a_gpu_the_regimes_name_what_takes_most_of_the_time() -> None:
    comparison = compare("train_images_cpu", "train_images_cpu_workers")
    verdict, account = comparison.verdict, comparison.account
    assert verdict.regimes == "A is cpu-only, data loader 90 %; B is cpu-only, ops 53 %"
    assert verdict.headline.endswith("262 times as fast (noise ±583.9 ms)")
    (cause,) = verdict.causes
    assert cause.part.label == "CPU: data loader"
    assert (cause.part.is_within_noise, account.is_of_gpu) == (False, False)
    assert cause.part.b < account.b / 5 < account.a * 0.9 < cause.part.a
    assert sum(part.delta for part in account.parts) == account.delta
    assert {part.label for part in account.parts if part.is_within_noise} == {"CPU: ops"}


DISPATCH, HOST = IdleCause.DISPATCH, IdleCause.HOST


def analyse_steps(forward: float, optimizer: float, ops: int = 20) -> SideAnalysis:
    """Three steps: `ops` short ops in "forward" and one long op in "optimizer", each followed by its kernel."""
    entries: list[Entry] = []
    for number in range(3):
        time = number * 10_000.0
        entries += [
            step(number, time, 9_000),
            annotation("forward", time + 10, 4_000),
            annotation("optimizer", time + 4_100, 4_000),
        ]
        spans = [(time + 20 + 190 * index, forward) for index in range(ops)] + [(time + 4_110, optimizer)]
        for index, (start, duration) in enumerate(spans):
            call = number * 100 + index + 1
            entries += [
                cpu("aten::add", start, duration),
                runtime("cudaLaunchKernel", start + duration - 5, 5, call),
                kernel("add_kernel", start + duration + 1, 2, call),
            ]
    return SideAnalysis(trace(*entries), "side")


def find_place(a: SideAnalysis, b: SideAnalysis, part_id: str) -> str | None:
    part = next(part for part in build_account(a, b).parts if part.id == part_id)
    return next((place.text for place in find_places(a, b, part).lines), None)


def test_many_short_gaps_count_as_much_as_one_long_one() -> None:
    """The longest gap lies in the optimizer on both sides; what grew lies in forward."""
    a, b = analyse_steps(forward=50, optimizer=2_000), analyse_steps(forward=120, optimizer=2_000)
    assert find_changed_section(a, b, DISPATCH) == "forward"
    assert find_changed_section(b, a, DISPATCH) == "forward"
    assert find_place(a, b, "idle:dispatch") == find_place(b, a, "idle:dispatch") == "forward"


def test_where_it_shrinks_while_the_part_grows_is_not_named() -> None:
    a, b = analyse_steps(forward=50, optimizer=2_000), analyse_steps(forward=120, optimizer=1_500)
    assert find_changed_section(a, b, DISPATCH) == "forward"
    assert measure_gaps_in_section(b.view, DISPATCH, "optimizer").sum() < (
        measure_gaps_in_section(a.view, DISPATCH, "optimizer").sum()
    )


def test_changes_are_measured_by_section() -> None:
    a, b = analyse_steps(forward=50, optimizer=1_000), analyse_steps(forward=100, optimizer=2_000)
    for name in ("forward", "optimizer"):
        times = [measure_gaps_in_section(side.view, DISPATCH, name).sum() / 3_000 for side in (a, b)]
        assert times[1] - times[0] == pytest.approx(1_000, rel=0.06)
    assert find_changed_section(a, a, DISPATCH) is None


def test_gaps_of_sections_sum_to_at_most_the_whole() -> None:
    side = analyse_steps(forward=50, optimizer=2_000)
    parts = [measure_gaps_in_section(side.view, DISPATCH, name) for name in ("forward", "optimizer", "none")]
    assert parts[2].sum() == 0
    assert (parts[0] + parts[1] <= measure_gaps_in_section(side.view, DISPATCH, None)).all()


@pytest.mark.parametrize("cause", [DISPATCH, HOST])
def test_the_gpt_pair_equals_what_was_computed_by_hand_from_its_json(cause: IdleCause) -> None:
    """ms a step, backward, forward and optimizer: by an independent script over the raw events.

    The script counts what ops compute on the CPU (the optimizer's step counters) as dispatch.
    """
    a, b = analyse_sample("train_gpt_eager"), analyse_sample("train_gpt_compile")
    by_hand = {DISPATCH: (1.87, 0.66, 0.28), HOST: (-0.44, -0.37, 0.23)}[cause]
    for name, change in zip(("backward", "forward", "Optimizer.step#AdamW.step"), by_hand, strict=True):
        causes = [cause, IdleCause.CPU_COMPUTE] if cause is DISPATCH else [cause]
        measured = [
            sum(measure_gaps_in_section(side.view, each, name).sum() for each in causes) / 3e6 for side in (a, b)
        ]
        assert measured[1] - measured[0] == pytest.approx(change, abs=0.006)
    part = PartChange(f"idle:{cause.id}", "", 1, 2 if cause is DISPATCH else 0, None)
    assert [place.text for place in find_places(a, b, part).lines] == ["backward"]


def test_an_asynchronous_copy_of_pinned_memory_does_not_wait() -> None:
    compiled = analyse_sample("train_gpt_compile")
    host = compiled.checker.gap_finder
    assert not len(host.blocking_copies)
    assert not any(part.id == "idle:sync" for part in build_account(compiled, analyse_sample("train_gpt_eager")).parts)


def test_a_side_says_the_share_that_check_says() -> None:
    path = SAMPLES / "geglu_mlp_eager.pt.trace.json.gz"
    side = SideAnalysis(load_opened_trace(str(path), lambda _: None, False).trace, "A")
    assert side.verdict.what.startswith("the first step costs 12 % of the time")
