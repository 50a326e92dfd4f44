"""The bench of faults: its registry, the arguments, the rates, and one cell recorded on the CPU."""

from __future__ import annotations

import ast
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.later_imports import skip_without
from tests.helpers.paths import ROOT
from tools.fault_bench import recording
from tools.fault_bench.__main__ import main, parse_arguments
from tools.fault_bench.judgement import Answer, Judged, compute_rates, format_report, measure_saving
from tools.fault_bench.kinds import (
    BUILDING,
    FIFTH_KINDS,
    FOURTH_KINDS,
    HALVES,
    HELD_OUT,
    KINDS,
    MODELS,
    SIXTH_KINDS,
    TEST_MODEL,
    THIRD_KINDS,
)

FAULTS = ROOT / "tools/fault_bench/faults"


def public_functions(path: Path) -> set[str]:
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}


def test_the_registry_lists_every_fault() -> None:
    functions = {(path.stem, name) for path in FAULTS.glob("*.py") for name in public_functions(path)}
    assert {(kind.module, name) for name, kind in KINDS.items()} == functions
    assert len(KINDS) >= 30


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_described(name: str) -> None:
    kind = KINDS[name]
    assert kind.wrong
    assert kind.mended
    assert kind.group
    assert kind.size in ("busy", "light")
    assert set(kind.skipped) <= set(MODELS)
    assert all(kind.skipped.values())
    for expression in (kind.sentence, kind.action):
        assert not re.search(expression, "")
        assert not re.search(expression, "compute-bound · gpu busy 98 %: fine")


def test_the_halves_are_disjoint_and_have_an_adapter_each() -> None:
    assert not set(BUILDING) & set(HELD_OUT)
    assert {model for half in HALVES.values() for model in half} == set(MODELS)
    assert len(MODELS) == 20
    assert sum(len(half) for half in HALVES.values()) == len(MODELS)
    builders = public_functions(ROOT / "tools/fault_bench/models.py")
    assert builders == {f"build_{model}" for model in (*MODELS, TEST_MODEL)}


def test_the_kinds_of_the_third_half_are_the_new_ones_and_a_seeded_draw() -> None:
    new = THIRD_KINDS[:8]
    others = [kind for kind in KINDS if kind not in (*new, *FOURTH_KINDS[:6])]
    assert len(others) == 49
    assert (*new, *random.Random(20261128).sample(others, 16)) == THIRD_KINDS


def test_the_kinds_of_the_fourth_half_are_the_new_ones_and_a_seeded_draw() -> None:
    new = FOURTH_KINDS[:6]
    others = sorted(kind for kind in KINDS if kind not in new)
    assert len(others) == 57
    assert (*new, *random.Random(20261129).sample(others, 14)) == FOURTH_KINDS


def test_the_kinds_of_the_fifth_half_are_a_seeded_draw_of_all() -> None:
    assert len(KINDS) == 63
    assert tuple(random.Random(20261130).sample(list(KINDS), 22)) == FIFTH_KINDS


def test_the_kinds_of_the_sixth_half_are_a_seeded_draw_of_all() -> None:
    assert tuple(random.Random(20261201).sample(list(KINDS), 15)) == SIXTH_KINDS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["record", "--out", "x", "--models", "bert"], "no model 'bert'"),
        (["record", "--out", "x", "--kinds", "rust"], "no kind 'rust'"),
        (["record"], "--out"),
        (["judge", "no-such-folder", "--half", "building"], "no cells.jsonl in no-such-folder"),
    ],
)
def test_a_wrong_argument_gives_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_arguments(arguments)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_recorded_cells_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cells.jsonl").write_text("")
    assert parse_arguments(["record", "--out", str(tmp_path), "--resume"]).resume
    with pytest.raises(SystemExit):
        parse_arguments(["record", "--out", str(tmp_path)])
    assert "give --resume" in capsys.readouterr().err


FINE = Answer("the GPU computes: nothing to do", "", None, 0.0, "compute-bound")


def attention(saving: float, sentence: str, action: str, forecast: float | None, stake: float) -> Judged:
    """One cell of written_attention with a noise of 2 points and a twin that is fine."""
    faulty = Answer(sentence, action, forecast, stake, "memory-bound")
    return Judged("written_attention", "gpt_neox", saving, 0.02, faulty, FINE)


def test_rates_count_only_savings_above_the_noise() -> None:
    cells = [
        attention(0.4, "Attention takes 60 %", "use scaled_dot_product_attention", 0.45, 0.6),
        attention(0.4, "softmax takes 60 %", "use a larger batch", 0.55, 0.5),  # wrong action, forecast too high
        attention(0.4, "matmuls take 60 %: use SDPA", "", None, 0.0),  # does not name it, claims nothing
        attention(0.04, "Attention: use SDPA", "", 0.9, 0.1),  # saves too little to count
        Judged("sort_for_top_k", "gpt_neox", 0.3, 0.4, FINE, FINE),  # within its noise
        Judged("sort_for_top_k", "gpt_neox", 0.3, 0.1, FINE, Answer("sorts cost 9 %", "", None, 0.1, "")),
    ]
    rates = compute_rates(cells)
    assert rates.named == (1, 4)
    assert rates.accused == (1, 4)
    assert rates.close == (1, 2)
    assert rates.within_stake == (1, 2)
    report = format_report(cells, [{"kind": "a", "model": "b", "status": "failed", "reason": "why"}], "building")
    assert "| faults named with the right action | 1 of 4 (25%) | at least 85 % |" in report
    assert (
        "| written_attention | gpt_neox | compute-bound | 40% | 2% | yes | yes | no | 45% | 60% | Attention" in report
    )
    assert report.endswith("- a × b: failed, why\n")


def test_the_noise_is_half_the_range_over_the_rounds() -> None:
    rounds = {"faulty_rounds_ms": [10.0, 10.0, 20.0], "mended_rounds_ms": [5.0, 6.0, 8.0]}
    saving, noise = measure_saving({"faulty_ms": 10.0, "mended_ms": 6.0, **rounds})
    assert saving == pytest.approx(0.4)
    assert noise == pytest.approx(0.1)


def test_resuming_keeps_recorded_cells_and_tries_failed_ones_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies costs its cell; the others of its model are recorded by the next process."""
    asked: list[list[str]] = []

    class Ended:
        def __init__(self, returncode: int) -> None:
            self.returncode = returncode

    def run(command: list[str], **_: Any) -> Ended:
        plan = json.loads(command[-1])
        asked.append(plan["kinds"])
        (tmp_path / "started").write_text(plan["kinds"][0])
        return Ended(1 if len(asked) == 1 else 0)

    (tmp_path / "cells.jsonl").write_text(
        '{"kind": "odd_width", "model": "whisper", "status": "recorded"}\n'
        '{"kind": "few_blocks", "model": "whisper", "status": "failed"}\n{"kind": "cut'
        "\n"
    )
    monkeypatch.setattr(recording.subprocess, "run", run)
    kinds = ["odd_width", "few_blocks", "growing_cat"]
    cells = recording.record(str(tmp_path), ["whisper"], kinds, "cpu", 60.0)
    assert asked == [["few_blocks", "growing_cat"], ["growing_cat"]]
    assert [(cell["kind"], cell["status"]) for cell in cells] == [("odd_width", "recorded"), ("few_blocks", "failed")]
    assert "status 1" in cells[1]["reason"]


@pytest.mark.long
@pytest.mark.slow
def test_a_cell_is_recorded_and_judged(tmp_path: Path) -> None:
    skip_without("torch")
    arguments = ["record", "--out", str(tmp_path), "--models", TEST_MODEL, "--kinds", "growing_cat", "--device", "cpu"]
    assert main(arguments) == 0
    (cell,) = recording.read_cells(str(tmp_path))
    assert cell["status"] == "recorded"
    assert cell["faulty_ms"] > 0 < cell["mended_ms"]
    from tools.fault_bench.judgement import judge_cells

    (judged,) = judge_cells(str(tmp_path), [cell])
    assert judged.faulty.sentence
    assert judged.mended.sentence
