"""The largest gaps and the time of each problem, in all outputs of `check`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command_line import call_main, read_json_answer
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.trace_builder import Entry, cpu, kernel, python, runtime, step
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.number_format import format_share

STARVED, SLOW = "sample:train_gpt_starved", "sample:matmul_add_64_cold_eager"
HOSTILE = "<b> | \x1b[31m`x`"


def slow_program(name: str = "train.py(42): load") -> list[Entry]:
    """Build two steps with a pause of 700 µs in one frame; the rest of the step has gaps of 40 µs."""
    entries: list[Entry] = []
    for k in range(2):
        at = 1000 * k
        entries += [step(k, at, 1000), python(name, at + 50, 750)]
        for number, start in enumerate((10, 800, 850, 900)):
            corr = 10 * k + number + 1
            entries += [
                cpu(f"aten::op{number}", at + start, 30),
                runtime("cudaLaunchKernel", at + start + 5, 5, corr=corr),
                kernel("gemm", at + start + 12, 30, corr=corr),
            ]
    return entries


def write(folder: Path, entries: list[Entry]) -> Path:
    path = folder / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": entries}))
    return path


def test_json_has_the_gaps_with_their_causes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    gaps = read_json_answer(capsys, "check", write(tmp_path, slow_program()), "--json")["gaps"]
    first = gaps[0]
    assert (first["start_ns"], first["duration_ns"], first["cause"]) == (52_000, 760_000, "host_code")
    assert (first["line"], first["line_text"]) == ("train.py:42", "train.py(42): load")
    assert (first["place"], first["rank"], first["device"]) == ("between aten::op0 and aten::op1", None, 0)
    assert first["next_event"]["name"]
    durations = [gap["duration_ns"] for gap in gaps]
    assert durations == sorted(durations, reverse=True)
    assert len(gaps) <= 10
    for gap in gaps:
        assert sum(gap["causes"].values()) == pytest.approx(gap["duration_ns"] / 1000)
        assert gap["cause"] == next(iter(gap["causes"])).removesuffix("_us")


def test_a_range_has_its_own_gaps(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path, slow_program())
    (gap,) = read_json_answer(capsys, "check", path, "--range", "100us:500us", "--json")["gaps"]
    assert (gap["start_ns"], gap["duration_ns"]) == (100_000, 400_000)


def test_text_lists_the_largest_with_their_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path, slow_program())
    _, out, _ = call_main(capsys, "check", path)
    lines = out.splitlines()
    first = lines.index("largest gaps of the GPU") + 1
    assert re.match(
        r" +38 % +760\.0 µs +at 52 µs +host code · between aten::op0 and aten::op1 · train\.py\(42\): load$",
        lines[first],
    )
    assert lines[first + 3] == ""
    _, out, _ = call_main(capsys, "check", path, "--problems")
    assert "largest gaps" not in out


def test_without_idle_time_there_is_no_section(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    entries: list[Entry] = [step(0, 0, 1000)]
    for k in range(10):
        entries += [
            runtime("cudaLaunchKernel", 1 + k, 0.5, corr=k + 1),
            kernel("gemm", 2 + 100 * k, 99, corr=k + 1),
        ]
    path = write(tmp_path, entries)
    for option in ((), ("--markdown",)):
        _, out, _ = call_main(capsys, "check", path, *option)
        assert ("argest gaps" in out) == any(
            gap["duration_ns"] >= 5000 for gap in read_json_answer(capsys, "check", path, "--json")["gaps"]
        )
        assert "argest gaps" not in out


def test_names_from_a_trace_are_escaped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path, slow_program(f"train.py(42): {HOSTILE}"))
    _, out, _ = call_main(capsys, "check", path)
    assert "\x1b" not in out
    _, out, _ = call_main(capsys, "check", path, "--markdown")
    row = next(line for line in out.splitlines() if line.startswith("| 38 %"))
    assert "&lt;b&gt; \\| ·\\[31m\\`x\\`" in row
    assert len(re.findall(r"(?<!\\)\|", row)) == 7


@pytest.mark.long
def test_each_rank_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    folder = SHARED_TRACES / "ddp_4ranks"
    if not folder.is_dir():
        pytest.skip("these ranks are not here")
    _, out, _ = call_main(capsys, "check", folder)
    lines = out.splitlines()
    first = lines.index("largest gaps of the GPU") + 1
    assert all(
        "  rank 1 · host code · " in line and line.endswith(" · slow_host_work") for line in lines[first : first + 3]
    )
    answer = read_json_answer(capsys, "check", folder, "--json")
    assert [gap["rank"] for gap in answer["gaps"][:3]] == [1, 1, 1]


def assert_counted_once(answer: dict[str, Any]) -> None:
    fired = [one for one in answer["patterns"] if one["state"] == "fired"]
    assert sum(one["at_stake_us"] for one in fired) <= answer["base"]["duration_ns"] / 1000 + 0.01
    assert sum(one["share"] for one in fired) <= 1.0001


@pytest.mark.parametrize("sample", [STARVED, SLOW])
def test_no_time_is_counted_twice(capsys: pytest.CaptureFixture[str], sample: str) -> None:
    answer = read_json_answer(capsys, "check", sample, "--json")
    assert_counted_once(answer)
    assert any(one["at_stake_us"] for one in answer["patterns"])
    assert all(not one["at_stake_us"] for one in answer["patterns"] if one["state"] != "fired")


def test_the_text_has_the_numbers_of_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call_main(capsys, "check", STARVED)
    answer = read_json_answer(capsys, "check", STARVED, "--json")
    problems = {one["id"]: one for one in answer["patterns"] if one["significant"]}
    shown = {line.split()[1]: line for line in out.splitlines() if line.startswith("● ")}
    assert list(shown) == list(problems) == ["input-starved"]
    duration = format_duration(problems["input-starved"]["at_stake_us"] * 1000)
    assert f" up to {duration}, {format_share(problems['input-starved']['share'])}" in shown["input-starved"]
    assert f"problems (shares of {answer['base']['label']}: " in out


def test_without_a_gpu_no_time_is_divided_by_pattern(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path, [step(0, 0, 100), cpu("aten::mm", 1, 90)])
    answer = read_json_answer(capsys, "check", path, "--json")
    assert answer["gaps"] == []
