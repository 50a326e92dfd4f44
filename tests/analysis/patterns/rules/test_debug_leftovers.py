"""Test the patterns of checks, timers and modes that were left on: literal programs, and recordings of two loops."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from tests.analysis.patterns.rules.test_backward_pass import AUTOGRAD, EVALUATE, LEAF
from tests.helpers.paths import FIXTURES
from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import ADD, GPU_ONLY, check_pattern
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, memcpy, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import debug_leftovers
from torchprof_tui.trace.loading.load_in_process import load_trace

DTOH = "Memcpy DtoH (Device -> Pageable)"
_correlations = itertools.count(1)


def op(name: str, at: float, thread: int = 100, cost: float = 10) -> list[Entry]:
    """An op whose kernel runs from 8 to 9 µs after its start; one that reads copies a value to the host instead."""
    number = next(_correlations)
    reads = name in ("aten::item", "aten::is_nonzero", "aten::_to_copy")
    work = memcpy(DTOH, at + 8, 1, number) if reads else kernel(ADD, at + 8, 1, number)
    return [cpu(name, at, cost, thread), runtime("cudaMemcpyAsync", at + 2, 7, number, thread), work]


def run(names: Sequence[str], at: float, thread: int = 100) -> list[Entry]:
    """Ops in a row, one each 11 µs."""
    return [entry for k, name in enumerate(names) for entry in op(name, at + 11 * k, thread)]


def steps(*more: Sequence[Entry], count: int = 2) -> list[Entry]:
    """Steps of 2 ms, which begin with a layer; `more` is of the first step, and comes again in the others."""
    entries: list[Entry] = []
    for number in range(count):
        at = 2000.0 * number
        entries += [step(number, at, 1990), *op("aten::linear", at + 5)]
        for entry in itertools.chain(*more):
            args = dict(entry["args"])
            if "correlation" in args:
                args["correlation"] += 10_000 * number
            entries.append({**entry, "ts": entry["ts"] + at, "args": args})
    return entries


def backward(*inside: str, nodes: int = 4) -> list[Entry]:
    """Nodes of 100 µs from 500 µs on, each with a product and these ops."""
    entries: list[Entry] = []
    for number in range(nodes):
        at = 500 + 110 * number
        entries += [cpu(EVALUATE + "AddmmBackward0", at, 100, AUTOGRAD), *run(["aten::mm", *inside], at + 5, AUTOGRAD)]
    return [*entries, cpu(EVALUATE + LEAF, 1200, 10, AUTOGRAD)]


def synchronize(count: int) -> list[Entry]:
    """Ops of 10 µs, each followed by a wait of 4 µs after 15 µs of Python, and 15 µs of Python again."""
    entries: list[Entry] = []
    for k in range(count):
        at = 30 + 44 * k
        entries += [*op("aten::add", at), runtime("cudaDeviceSynchronize", at + 25, 4, next(_correlations))]
    return entries


def sorted_add(name: str, at: float) -> list[Entry]:
    """An op that adds by index through index_put_, which launches two kernels before the one that adds."""
    numbers = [next(_correlations) for _ in range(3)]
    entries = [cpu(name, at, 100), cpu("aten::index_put_", at + 5, 90), cpu("aten::_index_put_impl_", at + 6, 88)]
    for k, number in enumerate(numbers):
        entries += [runtime("cudaLaunchKernel", at + 10 + 20 * k, 5, number), kernel(ADD, at + 18 + 20 * k, 4, number)]
    return entries


def dispatch(name: str, launching: int, tracing: int = 0) -> list[Entry]:
    """Ops of 60 µs that call Python for 50 µs, which calls the op proper, of 10 µs; or traces its shape alone."""
    entries: list[Entry] = []
    for k in range(launching + tracing):
        at = 100 + 62.0 * k
        proper = op("aten::mul", at + 40) if k < launching else [cpu("aten::mul", at + 40, 10)]
        entries += [cpu("aten::mul", at, 60), cpu(name, at + 5, 50), *proper]
    return entries


TESTS = ("aten::isnan", "aten::any", "aten::item")
METRIC = ("aten::eq", "aten::sum", "aten::item")

CASES: Cases = {
    "anomaly-mode": {
        FIRED: steps(backward(*TESTS)),
        ABSENT: steps(backward()),
        CANNOT_TELL: GPU_ONLY,
    },
    "reads-one-by-one": {
        FIRED: steps(run(METRIC * 10, 100)),
        ABSENT: steps(run((*METRIC[:-1] * 10, "aten::item"), 100)),
        CANNOT_TELL: GPU_ONLY,
    },
    "repeated-synchronize": {
        FIRED: steps(synchronize(20)),
        ABSENT: steps(synchronize(2)),
        CANNOT_TELL: GPU_ONLY,
    },
    "deterministic-algorithms": {
        FIRED: steps(sorted_add("aten::index_add_", 100)),
        ABSENT: steps(op("aten::index_add_", 100), op("aten::fill_", 200)),
        CANNOT_TELL: GPU_ONLY,
    },
    "python-dispatch": {
        FIRED: steps(dispatch("PythonDispatchMode", 10, 10)),
        ABSENT: steps(dispatch("PythonDispatchMode", 1, 20)),  # as compilation does
        CANNOT_TELL: GPU_ONLY,
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(debug_leftovers, CASES)


def test_the_tests_of_the_anomaly_mode_are_its_own_only() -> None:
    entries = steps(backward(*TESTS))
    finding = check_pattern(trace(*entries), "anomaly-mode")
    assert finding.answer.seen == "8 tests (4 a step) in 8 nodes, read by the CPU"
    assert finding.answer.at_stake == 2 * 4 * 3 * 10_000
    assert check_pattern(trace(*entries), "reads-one-by-one").state is ABSENT


def test_a_read_in_a_few_nodes_is_no_anomaly_mode() -> None:
    entries = steps(backward(nodes=4), run(TESTS, 1300, AUTOGRAD))
    assert check_pattern(trace(*entries), "anomaly-mode").state is ABSENT


def test_the_rounds_of_a_loop_and_the_time_between_are_at_stake() -> None:
    finding = check_pattern(trace(*steps(run(METRIC * 10, 100))), "reads-one-by-one")
    assert finding.answer.seen == "20 reads (10 a step) in 2 loops"
    assert finding.answer.at_stake == 2 * (30 * 11 - 1) * 1000
    assert "together once" in finding.remedy.action


@pytest.mark.parametrize("reads", [("aten::slice", "aten::_to_copy"), ("aten::slice", "aten::item")])
def test_a_backward_pass_before_the_reads_is_no_part_of_them(reads: Sequence[str]) -> None:
    """The first op of the first round is missing; the op before it calls the backward pass, on another thread."""
    entries = steps(op("aten::ones_like", 450), backward(), run([*reads, *reads][1:] + [*reads] * 8, 1300))
    finding = check_pattern(trace(*entries), "reads-one-by-one")
    assert 2 * (19 * 11 - 1) * 1000 <= finding.answer.at_stake < 2 * 700 * 1000


def test_layers_between_two_reads_are_the_program_itself() -> None:
    entries = steps(run(("aten::linear", "aten::item") * 10, 100))
    assert check_pattern(trace(*entries), "reads-one-by-one").state is ABSENT


@pytest.mark.parametrize(
    ("ops", "before", "remedy"),
    [
        (TESTS, (), "test all tensors for NaN at once"),
        (("aten::slice", "aten::_to_copy"), (), "collect them on the GPU"),
        (("aten::slice", "aten::_to_copy"), (annotation("Optimizer.step#SGD.step", 40, 20),), "save less often"),
    ],
)
def test_the_remedy_is_that_of_what_is_read(ops: Sequence[str], before: Sequence[Entry], remedy: str) -> None:
    finding = check_pattern(trace(*steps(before, run(ops * 10, 100))), "reads-one-by-one")
    assert remedy in finding.remedy.action


def test_python_around_whole_tensors_that_are_read_belongs_to_it() -> None:
    copies, later = run(("aten::slice", "aten::_to_copy") * 10, 100), op("aten::add", 1500)
    finding = check_pattern(trace(*steps(copies, later)), "reads-one-by-one")
    first, last = 15, 1500  # from the end of the layer to the start of the next op
    assert finding.answer.at_stake == 2 * (last - first) * 1000


def test_a_sync_costs_the_time_until_the_gpu_works_again() -> None:
    finding = check_pattern(trace(*steps(synchronize(20))), "repeated-synchronize")
    assert finding.answer.seen == "40 calls (20 a step)"
    # From the op's end at 40 to the kernel of the next one at 82 µs; the last one of a step waits for the next op only.
    assert finding.answer.at_stake >= 2 * 19 * 42 * 1000


def test_the_last_kernel_of_a_sorted_add_is_kept() -> None:
    finding = check_pattern(trace(*steps(sorted_add("aten::scatter_add_", 100))), "deterministic-algorithms")
    assert finding.answer.seen == "0 fills of new memory, 2 ops that sort to add"
    assert finding.answer.at_stake == 2 * (90 - 4) * 1000  # the whole op but its last kernel


def test_memory_that_is_filled_where_it_is_allocated() -> None:
    entries = steps([cpu("aten::empty", 100, 30), *op("aten::fill_", 110)])
    finding = check_pattern(trace(*entries), "deterministic-algorithms")
    assert finding.answer.seen == "2 fills of new memory, 0 ops that sort to add"
    assert finding.answer.at_stake == 2 * 10_000


LOOPS = ("recorded_patterns/metric_loop.pt.trace.json.gz", "faults/loss_printed.faulty.json.gz")


@pytest.mark.parametrize("path", LOOPS)
def test_recorded_loops_that_read_their_results(path: str) -> None:
    assert check_pattern(load_trace(str(FIXTURES / path)), "reads-one-by-one").is_problem


@pytest.mark.parametrize(("name", "said"), [("PythonDispatchMode", "dispatch mode"), ("PythonSubclass", "subclass")])
def test_python_around_ops_costs_its_own_time(name: str, said: str) -> None:
    finding = check_pattern(trace(*steps(dispatch(name, 10))), "python-dispatch")
    assert finding.answer.seen == "20 calls (10 a step)"
    assert finding.answer.at_stake == 2 * 10 * (50 - 10) * 1000
    assert said in finding.answer.headline
