"""The command line as people and scripts meet it: `docs` of its contract are README and `--help`."""

from __future__ import annotations

import gc
import gzip
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import torchprof_tui as tt
from tests.helpers.command_line import call_main, read_error_line, read_json_answer, run_program
from tests.helpers.long_run import keep_some
from tests.helpers.paths import ROOT
from torchprof_samples import SAMPLES, find
from torchprof_tui.cli import main
from torchprof_tui.trace.core import process_state
from torchprof_tui.trace.storage import disk_cache

SAMPLE = find("matmul_add_64_cold_eager").path


def test_version_is_quick() -> None:
    code = (
        "import sys; from torchprof_tui.cli import main; assert main(['--version']) == 0; "
        "print([name for name in ('numpy', 'rich', 'textual', 'orjson', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, loaded = done.stdout.splitlines()
    assert version.startswith("torchprof-tui 0.")
    assert loaded == "[]"


@pytest.mark.parametrize(
    "sample", keep_some([one for one in SAMPLES if one.path.is_file()], 4), ids=lambda sample: sample.name
)
def test_every_entry_of_a_sample_is_accounted_for(sample: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told = read_json_answer(capsys, "info", f"sample:{sample.name}", "--json")
    document = json.loads(gzip.decompress(sample.path.read_bytes()))
    entries = document["traceEvents"]
    assert told["events"] == len(entries)
    assert told["drawn"] + told["metadata"] + told["flows"] + sum(told["not_drawn"].values()) == len(entries)
    assert told["bytes"] == len(gzip.decompress(sample.path.read_bytes()))
    complete: dict[str, int] = {}
    for entry in entries:
        if entry["ph"] == "X":
            complete[entry["cat"]] = complete.get(entry["cat"], 0) + 1
    assert told["by_category"] == complete
    annotations = [entry["name"] for entry in entries if entry.get("cat") == "user_annotation"]
    steps = [name for name in annotations if name.startswith("step[")]  # those of a serving engine, where there are any
    steps = steps or [name for name in annotations if name.startswith("ProfilerStep#")]
    assert sorted(step["name"] for step in told["steps"]) == sorted(steps)
    assert told["devices"] == [{"id": each["id"], "name": each["name"]} for each in document["deviceProperties"]]
    assert told["format"] == "kineto"
    assert told["problems"] == []


def test_info_has_what_scripts_rely_on(capsys: pytest.CaptureFixture[str]) -> None:
    told = read_json_answer(capsys, "info", SAMPLE, "--json", "--no-cache")
    assert told["duration_ns"] > 300_000
    assert told["steps"][0] == {
        "name": "ProfilerStep#2",
        "event": 0,
        "number": 2,
        "start_ns": 0,
        "duration_ns": 216_855,
        **dict.fromkeys(("kind", "batch", "tokens", "kv_length")),
    }
    assert {"kind", "pid", "tid", "label", "events", "rows"} <= told["lanes"][0].keys()
    assert told["lanes"][0]["kind"] == "cpu"
    assert 0 < told["gpu_busy_ns"]["0"] < told["duration_ns"]
    assert told["links"] == {"launches": 6, "gpu_events": 6, "linked_gpu_events": 6}
    assert (told["rank"], told["world_size"]) == (None, None)
    assert told["cached"] is False
    assert told["seconds"] > 0


def test_the_second_time_comes_from_the_cache(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))
    first = read_json_answer(capsys, "info", SAMPLE, "--json")
    second = read_json_answer(capsys, "info", SAMPLE, "--json")
    assert (first.pop("cached"), second.pop("cached")) == (False, True)
    del first["seconds"], second["seconds"]
    assert first == second
    assert read_json_answer(capsys, "cache", "--json")["traces"] == 1


def test_the_cache_can_be_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))
    assert run_program("info", SAMPLE).returncode == 0
    cleared = json.loads(run_program("cache", "--clear", "--json").stdout)
    assert cleared["removed"] >= 1
    assert json.loads(run_program("info", SAMPLE, "--json").stdout)["cached"] is False
    assert "at most" in run_program("cache").stdout


@pytest.mark.long
def test_a_folder_that_holds_other_things_is_no_cache(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "precious"
    (folder / "models").mkdir(parents=True)
    (folder / "models" / "lock").touch()
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(folder))
    refusal = f"torchprof-tui: {folder}: holds other things and no cache of torchprof-tui"
    for command in (("info", SAMPLE), ("fleet", "sample:train_gpt_2ranks")):
        status, _, err = call_main(capsys, *command)
        assert (status, err.count("\n"), err.startswith(refusal)) == (0, 1, True)
    assert call_main(capsys, "info", SAMPLE, "--no-cache")[2] == ""
    assert call_main(capsys, "cache", "--clear")[0] == 2
    assert "holds other things" in call_main(capsys, "cache")[1]
    assert "holds other things" in read_json_answer(capsys, "cache", "--json")["cannot_tell"]
    assert [str(path.relative_to(folder)) for path in folder.rglob("*")] == ["models", "models/lock"]


def test_a_person_reads_words() -> None:
    done = run_program("info", SAMPLE, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    for words in ("NVIDIA H200", "ProfilerStep#2", "216.9 µs", "kernels on the GPU", "6 of 6 GPU events"):
        assert words in done.stdout


def test_names_from_a_trace_cannot_drive_the_terminal(tmp_path: Path) -> None:
    entry = {"ph": "X", "cat": "\x1b[31mcat", "name": "a", "pid": "\x1b]0;owned\x07", "tid": 1, "ts": 1, "dur": 2}
    path = tmp_path / "evil.json"
    path.write_text(json.dumps([entry, {**entry, "name": "\ud800"}]))
    done = run_program("info", path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout


def test_stdin(capsys: pytest.CaptureFixture[str]) -> None:
    with SAMPLE.open("rb") as trace:
        told = json.loads(run_program("info", "-", "--json", stdin=trace).stdout)
    assert told["events"] == 105
    assert told["cached"] is False


@pytest.mark.parametrize("word", ["tables", "nonsense"])
def test_a_command_that_does_not_exist_is_an_invalid_choice(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "invalid choice" in read_error_line(capsys, word, SAMPLE, "--json")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.json"], "no such file"),
        (["info", "missing.json"], "no such file"),
        (["info", "--json", "missing.json"], "no such file"),
        (["info"], "TRACE"),
        (["info", str(Path(__file__).parent / "helpers")], "folder"),
        (["info", "a.json", "b.json"], "a.json: no such file"),
        (["info", SAMPLE, "--color", "red"], "unrecognized"),
        ([SAMPLE, SAMPLE], "not the ranks of one run"),
        (["--at", "3ms"], "--at"),
        (["memory", SAMPLE, "--at=--"], ""),  # no value, or from Python 3.12.5 on the value "--"
        (["info", SAMPLE, "--capture=--"], "--capture"),
        (["--theme", "pink"], "pink"),
        (["info", SAMPLE, "--jobs", "0"], "'0' is not a number from 1 to 1024"),
        (["check", SAMPLE, "--jobs", "-3"], "--jobs"),
        (["--debug", "info"], "options come after the command"),
        (["sample:nothing"], "matmul_add_64_cold_eager"),
        (["sample:matmul"], "several"),
        (["snapshot", SAMPLE], "-o"),
        (["snapshot", SAMPLE, "-o", "x.bmp"], "ends in none of .svg, .png, .txt"),
        (["snapshot", SAMPLE, "-o", "x.svg", "--size", "big"], "160x48"),
        (["snapshot", "-", "-o", "x.svg"], "needs a file"),
    ],
    ids=lambda value: " ".join(Path(str(word)).name for word in value) if isinstance(value, list) else "",
)
def test_a_wrong_call_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in read_error_line(capsys, *arguments)


@pytest.mark.parametrize(
    "data",
    [b"", b"hello, world\n" * 50, b"null", b'{"a": 1}', bytes(range(256)) * 64, b"[" * 100_000, b"\x1f\x8b\x08"],
    ids=["empty", "prose", "null", "object", "binary", "deep", "gzip"],
)
def test_what_is_no_trace_is_one_line(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "no trace.json"
    path.write_bytes(data)
    assert "no trace.json" in read_error_line(capsys, "info", path, "--json")


def test_a_damaged_trace_opens_as_far_as_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = gzip.decompress(SAMPLE.read_bytes())
    path = tmp_path / "cut.json"
    path.write_bytes(text[: len(text) * 2 // 3])
    told = read_json_answer(capsys, "info", path, "--json")
    assert told["events"] > 40
    assert told["problems"]


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    path = tmp_path / "prose.json"
    path.write_text("hello")
    assert "Traceback" in run_program("info", path, "--debug").stderr
    assert "Traceback" not in run_program("info", path).stderr


def test_without_a_terminal_the_app_says_what_does_without(capsys: pytest.CaptureFixture[str]) -> None:
    done = run_program(SAMPLE)
    assert done.returncode == 2
    assert done.stderr.startswith("torchprof-tui: ")
    assert "torchprof-tui info" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reader_that_stops_reading_is_no_error() -> None:
    shell = f"'{sys.executable}' -m torchprof_tui info '{SAMPLE}' --json | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
    assert done.stderr == ""


def test_a_file_may_be_called_like_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "info").write_bytes(SAMPLE.read_bytes())
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from torchprof_tui.cli import main; sys.exit(main())"
    root = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-c", code, root, "./info"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "needs a terminal" in done.stderr  # and not: TRACE is missing


@pytest.mark.parametrize("words", [["--help"], ["info", "--help"], ["snapshot", "--help"], ["cache", "--help"]])
def test_help_helps(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    assert "torchprof-tui" in capsys.readouterr().out


@pytest.mark.long
def test_it_works_beside_foreign_packages_of_its_folder_names(tmp_path: Path) -> None:
    """The user's repository may have `tui/` or `sample_traces/` on the path: neither breaks the other."""
    for name in ("tui", "sample_traces", "profiler_runs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OWNER = 'user {name}'\n")
    code = (
        "import profiler_runs, sample_traces, tui; print(profiler_runs.OWNER, sample_traces.OWNER, tui.OWNER); "
        "from torchprof_tui.cli import main; main(['info', 'sample:linear_eager', '--json', '--no-cache'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    owners, document = done.stdout.splitlines()
    assert owners == "user profiler_runs user sample_traces user tui"
    assert json.loads(document)["events"] > 0


@pytest.mark.parametrize(
    ("command", "encoding"), keep_some(product(["check", "info", "table"], ["ascii", "latin-1"]), 1)
)
def test_an_output_that_is_not_utf_8_substitutes_what_it_lacks(command: str, encoding: str) -> None:
    words = [sys.executable, "-m", "torchprof_tui", command, "sample:matmul_add_64_cold_eager"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    ran = subprocess.run(words, capture_output=True, env=environment, check=False)
    text = ran.stdout.decode(encoding)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ("us" if encoding == "ascii" else "µs") in text


def test_the_help_of_run_separates_names_from_summaries(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert "  graph_replay  An MLP" in capsys.readouterr().out


def test_jobs_limits_the_cores_also_of_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(process_state, "read_cgroup_quota", lambda *_: None)
    monkeypatch.setenv(process_state.JOBS, "7")  # what the program sets is removed after the test
    assert process_state.count_cores() == 7
    assert main(["info", str(SAMPLE), "--jobs", "3"]) == 0
    assert (os.environ[process_state.JOBS], process_state.count_cores()) == ("3", 3)


@pytest.mark.long
def test_a_command_leaves_no_cache_entry_open(capsys: pytest.CaptureFixture[str]) -> None:
    """Each call kept a descriptor: a process that asks a thousand questions had none left."""
    before = disk_cache.list_open_entries()
    kept = tt.open("sample:linear_eager")
    opened = disk_cache.list_open_entries() - before
    for words in (["info"], ["table"], ["check"], ["diff", "sample:train_gpt_2ranks"]):
        assert main([words[0], "sample:train_gpt_2ranks", *words[1:]]) == 0
    assert disk_cache.list_open_entries() == before | opened
    assert len(opened) == 1
    del kept
    gc.collect()
    assert disk_cache.list_open_entries() == before
