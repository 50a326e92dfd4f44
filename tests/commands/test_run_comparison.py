"""`run --compare-to`: what changed since an earlier recording, with a harness that needs no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.command_line import call_main, read_error_line
from tests.helpers.json_schemas import check_answer
from tests.helpers.long_run import keep_some
from tests.helpers.paths import ROOT
from torchprof_tui.runs import recording_request
from torchprof_tui.runs.history import list_past_runs

EAGER, COMPILED = "matmul_add_4096_warm_eager", "matmul_add_4096_warm_compile"
LAST = ("--compare-to", "LAST")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to an empty folder, and use a harness whose recording is a sample."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(recording_request, "HARNESS", ROOT / "tests/helpers/fake_harness.py")
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def record(
    capfd: pytest.CaptureFixture[str], sample: str, *words: str, script: str = "train.py", then: str = ""
) -> tuple[int, str, str]:
    """Run a script whose recording is this sample; return the exit status, stdout and stderr of `run`."""
    Path(script).write_text(f"SETTINGS['RECORDED'] = {sample!r}\n{then}\n")
    return call_main(capfd, "run", *words, "--python", sys.executable, "--", script)


def test_the_last_recording_of_the_same_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert record(capfd, EAGER)[0] == 0
    record(capfd, "linear_eager", script="other.py")
    status, out, _ = record(capfd, COMPILED, *LAST)
    assert status == 0
    new, old = list_past_runs()[0].result, [past for past in list_past_runs() if past.request.command[0] == "train.py"]
    trace, _, first, second, *_ = out.splitlines()
    assert trace == f"trace  {Path(new.traces[0]).relative_to(Path.cwd())}"
    assert Path(old[1].result.traces[0]).name in first
    assert first.endswith("3 steps, #2 to #4: 309.4 µs a step")
    assert second.endswith("2 steps, #3 to #4: 216.3 µs a step")
    assert "a step of B is 93.1 µs (30 %) shorter than one of A, which is within the noise" in out


@pytest.mark.long
def test_a_trace_in_one_json_document(capfd: pytest.CaptureFixture[str]) -> None:
    words = ("--compare-to", f"sample:{COMPILED}", "--fail-on", "+1000%", "--json")
    status, out, _ = record(capfd, EAGER, *words)
    answer = json.loads(out)
    assert status == 0
    check_answer(answer, "run", "Recording")
    check_answer(answer["diff"], "diff", "Diff")
    assert "cannot_tell" not in answer
    assert len(answer["traces"]) == 1
    assert answer["diff"]["a"]["label"] == f"sample:{COMPILED}"
    assert answer["diff"]["step_us"]["delta"] == pytest.approx(93.1, abs=0.1)
    assert answer["diff"]["failed"] is False
    assert answer["diff"]["by"] == "op"


@pytest.mark.parametrize(("limit", "status"), keep_some([("+5%", 1), ("+2000%", 0)], 1))
def test_fail_on_looks_at_the_new_recording(limit: str, status: int, capfd: pytest.CaptureFixture[str]) -> None:
    record(capfd, "attention_flash")
    assert record(capfd, "attention_naive", *LAST, "--fail-on", limit)[0] == status


@pytest.mark.long
def test_a_failure_of_the_program_comes_first(capfd: pytest.CaptureFixture[str]) -> None:
    record(capfd, EAGER)
    status, out, _ = record(capfd, COMPILED, *LAST, then="raise ValueError")
    assert status == 1
    assert "a step of B is" in out  # what was recorded until then is compared
    status, out, err = record(capfd, COMPILED, *LAST, then="SETTINGS['TRACES'] = 0")
    assert status == 2
    assert "not compared: no trace was recorded" in err


@pytest.mark.long
def test_a_recording_that_was_deleted_is_not_the_last_one(capfd: pytest.CaptureFixture[str]) -> None:
    record(capfd, EAGER)
    record(capfd, "linear_eager")
    (newest, _) = list_past_runs()
    Path(newest.result.traces[0]).unlink()
    assert "309.4 µs a step" in record(capfd, COMPILED, *LAST)[1]


@pytest.mark.long
def test_ranks_are_compared_with_ranks(capfd: pytest.CaptureFixture[str]) -> None:
    ranks = "SETTINGS.update(RANKS=2, CYCLES=1, TRACES=0)"
    record(capfd, "matmul_add_64_bmm8", then=ranks)
    status, out, _ = record(capfd, "matmul_add_64_cold_eager", *LAST, then=ranks)
    assert status == 0
    assert "over 2 ranks a step changes by" in out
    status, _, err = record(capfd, EAGER, *LAST)
    assert status == 2
    (line,) = [line for line in err.splitlines() if "not compared" in line]
    assert "A holds the ranks 0, 1 and B is a single trace: choose one rank with --rank N" in line
    assert "(the new trace is kept: torchprof-tui diff torchprof_runs/" in line


@pytest.mark.long
def test_of_several_recordings_of_each_rank_the_first_is_compared(capfd: pytest.CaptureFixture[str]) -> None:
    record(capfd, "matmul_add_64_bmm8", then="SETTINGS.update(RANKS=2)")
    status, out, _ = record(capfd, "matmul_add_64_cold_eager", *LAST, then="SETTINGS.update(RANKS=2)")
    assert status == 0
    assert "fake.rank0.pt.trace.json.gz" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (LAST, "--compare-to LAST: no earlier recording of train.py in torchprof_runs: record it once"),
        (("--compare-to", "none.json"), "--compare-to none.json: none.json: no such file"),
        (("--compare-to", "train.py"), "nothing was recorded"),
        (("--compare-to", "chrome.json"), "--compare-to chrome.json: no torch.profiler trace"),
        (("--compare-to", "-"), "a pipe can be read only once"),
        ((*LAST, "--fail-on", "much"), "--fail-on much: how much longer"),
        (("--fail-on", "+5%"), "add --compare-to LAST or a trace"),
    ],
)
def test_wrong_calls_are_one_line_before_anything_is_recorded(
    words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.py").write_text("")
    Path("chrome.json").write_text('{"traceEvents": [{"ph": "X", "name": "x", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}')
    assert says in read_error_line(capsys, "run", *words, "--python", sys.executable, "--", "train.py")
    assert not Path("torchprof_runs").exists()


def test_a_run_without_comparison_imports_no_numpy() -> None:
    code = "import sys, torchprof_tui.commands.run.main; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
