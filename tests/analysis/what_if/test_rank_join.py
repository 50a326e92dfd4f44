"""Test steps of several ranks that are joined by their collectives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.merged_ranks import load_merged_ranks, load_shared_ranks
from tests.helpers.rank_traces import Collective, Entry, Run
from torchprof_tui.analysis.what_if.forecast import Forecaster
from torchprof_tui.analysis.what_if.scenario import ScenarioError
from torchprof_tui.analysis.what_if.step_model import build_step_model
from torchprof_tui.trace.model.trace import Trace

BEGIN = 900
"""µs: all ranks begin the step at the same time."""


@dataclass
class LaunchedRun(Run):
    """Ranks whose collectives start 2 µs after their launch, and a blocking call at the end of each step.

    Before the launch the thread is inside an op, so that the rank is late because its CPU is.
    """

    def entries(self, rank: int) -> list[Entry]:
        found = super().entries(rank)
        kernels = {each["args"]["correlation"]: each for each in found if each.get("cat") == "kernel"}
        more: list[Entry] = []
        for entry in found:
            number = entry.get("args", {}).get("correlation")
            if entry.get("cat") == "cuda_runtime":
                entry |= {"ts": kernels[number]["ts"] - 3, "dur": 1}
                work = {**entry, "cat": "cpu_op", "name": "aten::work", "ts": BEGIN + 1, "args": {}}
                more.append({**work, "dur": entry["ts"] - 5 - work["ts"]})
                end = kernels[number]["ts"] + kernels[number]["dur"] + 1
                call = {**entry, "name": "cudaStreamSynchronize", "ts": entry["ts"] + 2, "args": {"correlation": 900}}
                more.append({**call, "dur": end - call["ts"]})
            elif entry.get("cat") == "user_annotation":
                entry |= {"ts": BEGIN, "dur": entry["ts"] + entry["dur"] - BEGIN}
            elif entry.get("name") == "c10d::allreduce_":
                entry |= {"ts": kernels[entry["args"]["External id"]]["ts"] - 4, "dur": 3}
        return found + more


def late_by(microseconds: float, folder: Path, ranks: int = 3) -> Trace:
    arrive = [1000.0, 1000.0 + microseconds, 1000.0][:ranks]
    return load_merged_ranks(LaunchedRun(ranks, [[Collective(arrive, takes=50)]]).write(folder))


def test_without_the_late_rank_the_others_do_not_wait(tmp_path: Path) -> None:
    model = build_step_model(late_by(400, tmp_path))
    forecaster = Forecaster(model)
    same = forecaster.predict([])
    assert same.replay_error == 0
    forecast = forecaster.predict(["late-rank=0"])
    assert forecast.before - forecast.after == pytest.approx(400_000, abs=5_000)
    assert forecast.rank in (0, 2)


def test_a_faster_late_rank_helps_until_the_others_are_as_late(tmp_path: Path) -> None:
    forecaster = Forecaster(build_step_model(late_by(400, tmp_path)))
    none, all_ = forecaster.predict(["rank=1*1"]), forecaster.predict(["rank=1*0"])
    assert none.after == none.before
    assert all_.after < none.after
    assert forecaster.predict(["rank=0*0"]).after == none.before  # it would only wait for longer


def test_the_transfer_scales_with_the_collectives(tmp_path: Path) -> None:
    forecaster = Forecaster(build_step_model(late_by(0, tmp_path)))
    same, none = forecaster.predict([]), forecaster.predict(["collectives=0"])
    assert same.before - none.after == pytest.approx(50_000, abs=2_000)
    assert any(part.label == "collective" for part in same.path)


def test_one_rank_has_no_late_one(tmp_path: Path) -> None:
    trace = late_by(100, tmp_path)
    assert trace.merged_ranks is not None
    with pytest.raises(ScenarioError, match="several ranks"):
        Forecaster(build_step_model(trace.merged_ranks.all[0].trace)).predict(["late-rank=0"])


@pytest.mark.parametrize("name", keep_some(["ddp", "fsdp"], 1))
def test_real_ranks_are_replayed_together(name: str) -> None:
    _, trace = load_shared_ranks(name)
    model = build_step_model(trace)
    assert len(model.ranks) == 4
    assert len(model.arrival_edges) >= 4
    forecaster = Forecaster(model)
    forecast = forecaster.predict(["late-rank=0"])
    assert abs(forecast.replay_error) < 0.02
    assert forecast.after <= forecast.before
    assert forecaster.predict(["collectives=0"]).after <= forecast.before
