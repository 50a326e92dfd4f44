"""Test how scenarios are read."""

from __future__ import annotations

import pytest

from torchprof_tui.analysis.what_if.scenario import Scenario, ScenarioError, ScenarioKind, parse_scenario


@pytest.mark.parametrize(
    ("text", "kind", "subject", "factor"),
    [
        ("class=gemm*0.5", ScenarioKind.CLASS, "gemm", 0.5),
        ("class=embedding/gather*2", ScenarioKind.CLASS, "embedding/gather", 2.0),
        ("op=aten::mm*0", ScenarioKind.OP, "aten::mm", 0.0),
        ("kernel=void f<float*>(float*)*0.25", ScenarioKind.KERNEL, "void f<float*>(float*)", 0.25),
        ("event=12*1e-1", ScenarioKind.EVENT, "12", 0.1),
        ("cpu=0.5", ScenarioKind.CPU, "", 0.5),
        ("gpu=*0.5", ScenarioKind.GPU, "", 0.5),
        ("sync=0", ScenarioKind.SYNC, "0", 0.0),
        ("dataloader=0", ScenarioKind.DATALOADER, "", 0.0),
        ("launch=graph", ScenarioKind.LAUNCH, "graph", 0.0),
        ("compile", ScenarioKind.COMPILE, "", 1.0),
        ("collectives=overlapped", ScenarioKind.COLLECTIVES, "overlapped", 1.0),
        ("rank=2*0.5", ScenarioKind.RANK, "2", 0.5),
        ("late-rank=0", ScenarioKind.LATE_RANK, "0", 0.0),
        ("pattern=idle-gap", ScenarioKind.PATTERN, "idle-gap", 0.0),
    ],
)
def test_scenarios_are_read(text: str, kind: ScenarioKind, subject: str, factor: float) -> None:
    assert parse_scenario(text) == Scenario(text, kind, subject, factor)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "unknown scenario"),
        ("gemm*0.5", "it begins with class, op"),
        ("class=gemm", "no factor; write class=gemm*0.5"),
        ("class=*0.5", "no factor"),
        ("class=gem*0.5", "no class 'gem'; the classes: other, gemm"),
        ("op=aten::mm*x", "'x' is no factor from 0 to 1000"),
        ("op=aten::mm*-1", "is no factor"),
        ("op=aten::mm*nan", "is no factor"),
        ("op=aten::mm*inf", "is no factor"),
        ("event=x*0", "'x' is no number"),
        ("event=99999999999999*0", "is no number"),
        ("rank=two*0", "is no number"),
        ("sync=1", "only sync=0"),
        ("launch=cuda", "only launch=graph"),
        ("compile=1", "`compile` takes no value"),
        ("cpu=", "nothing after the `=`"),
        ("cpu=fast", "is no factor"),
        ("late-rank=1", "only late-rank=0"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
