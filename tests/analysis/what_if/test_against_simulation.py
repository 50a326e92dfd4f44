"""Compare forecasts with a plain simulation of the changed program, and replays with a plain longest path."""

from __future__ import annotations

import functools

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.analysis.critical_path.simulated_steps import Instruction, simulate
from tests.analysis.critical_path.test_against_simulation import PROGRAMS
from tests.helpers.long_run import scale_examples
from torchprof_tui.analysis.critical_path.build_graph import UNKNOWN_DELAY
from torchprof_tui.analysis.what_if.back_to_back import replay_rounds
from torchprof_tui.analysis.what_if.changes import apply_scenarios
from torchprof_tui.analysis.what_if.forecast import Forecaster
from torchprof_tui.analysis.what_if.scenario import ScenarioError, parse_scenario
from torchprof_tui.analysis.what_if.step_model import StepModel, build_step_model

FACTORS = st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])
SCALED = st.sampled_from(["cpu={}", "gpu={}", "class=other*{}", "kernel=kernel1*{}", "op=host0*{}", "event=1*{}"])


def make_model(program: list[Instruction]) -> StepModel:
    return build_step_model(simulate(program).build_trace())


@given(PROGRAMS)
@settings(max_examples=scale_examples(1), deadline=None)
def test_nothing_changed_and_times_one_change_nothing(program: list[Instruction]) -> None:
    forecaster = Forecaster(make_model(program))
    forecast = forecaster.predict([])
    assert forecast.replay_error == 0
    assert forecast.after == forecast.before
    assert forecast.alone == forecast.recorded
    assert abs(sum(share for _, share in forecast.resources) - 1) < 1e-6
    same = forecaster.predict(["cpu=1"])
    assert (same.after, same.alone, same.path) == (forecast.after, forecast.alone, forecast.path)


@given(PROGRAMS, FACTORS, st.randoms(use_true_random=False))
@settings(max_examples=scale_examples(1), deadline=None)
def test_a_shorter_kernel_as_in_the_simulated_machine(program: list[Instruction], factor: float, random) -> None:  # type: ignore[no-untyped-def]
    launches = [number for number, each in enumerate(program) if each[0] == "launch"]
    assume(launches)
    chosen = random.choice(launches)
    forecast = Forecaster(make_model(program)).predict([f"kernel=kernel{chosen}*{factor}"])
    shorter = -program[chosen][3] * (1 - factor)
    real = simulate(program, {chosen: shorter}).duration
    # Latencies that no wait showed are assumed, up to UNKNOWN_DELAY each.
    assert real - 1 <= forecast.alone <= real + len(program) * UNKNOWN_DELAY


@given(PROGRAMS, SCALED, FACTORS, FACTORS)
@settings(max_examples=scale_examples(1), deadline=None)
def test_faster_parts_never_make_a_step_longer(program: list[Instruction], text: str, one: float, two: float) -> None:
    forecaster = Forecaster(make_model(program))
    try:
        slow, fast = (forecaster.predict([text.format(each)]) for each in (max(one, two), min(one, two)))
        both = forecaster.predict([text.format(max(one, two)), "gpu=0.5"])
    except ScenarioError:
        assume(False)
        raise
    assert fast.after <= slow.after <= forecaster.unchanged.step_time
    assert fast.alone <= slow.alone <= forecaster.unchanged.alone
    assert both.after <= slow.after


@given(PROGRAMS)
@settings(max_examples=scale_examples(1), deadline=None)
def test_without_blocking_calls_no_step_is_longer(program: list[Instruction]) -> None:
    forecaster = Forecaster(make_model(program))
    assume(("sync",) in program)
    forecast = forecaster.predict(["sync=0"])
    assert forecast.after <= forecast.before
    without = simulate([each for each in program if each != ("sync",)] or [("host", 1)]).duration
    assert forecast.alone <= without + len(program) * UNKNOWN_DELAY


@given(PROGRAMS)
@settings(max_examples=scale_examples(1), deadline=None)
def test_with_everything_gone_only_latencies_are_left(program: list[Instruction]) -> None:
    model = make_model(program)
    has_work = any(each[0] == "launch" for each in program)
    scenarios = ["cpu=0", *(["gpu=0"] if has_work else []), *(["sync=0"] if ("sync",) in program else [])]
    forecast = Forecaster(model).predict(scenarios)
    assert forecast.alone <= len(program) * 2 * UNKNOWN_DELAY


@given(PROGRAMS, FACTORS)
@settings(max_examples=scale_examples(1), deadline=None)
def test_the_replay_is_the_longest_path_from_the_bases(program: list[Instruction], factor: float) -> None:
    model = make_model(program)
    _, delay, _ = apply_scenarios(model, [parse_scenario(f"cpu={factor}")])
    rounds = replay_rounds(model, delay)
    into: dict[int, list[int]] = {}
    for edge, target in enumerate(model.target.tolist()):
        into.setdefault(target, []).append(edge)

    @functools.cache
    def reach(node: int) -> int:
        return max(
            [int(rounds.base[node])]
            + [reach(int(model.source[edge])) + int(rounds.delay[edge]) for edge in into.get(node, [])]
        )

    assert [reach(node) for node in range(model.node_count)] == rounds.reached.tolist()
    assert (np.diff(rounds.reached[model.node_of[0]][model.ranks[0].graph.node_lane >= 0]) >= 0).all()
