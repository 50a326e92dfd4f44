"""Test `torchprof-tui fleet`: what is read again, what is lost, what is written, and on whose processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command_line import call_main
from tests.helpers.fleet_runs import Faults, write_fleet
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES
from torchprof_fleet.analysis.rank_sketch import decode_sketches, encode_sketches
from torchprof_fleet.analysis.sketch_task import SketchResult
from torchprof_fleet.analysis.sketch_trace import sketch_file
from torchprof_fleet.command import main as fleet_command
from torchprof_fleet.command import sketching, workers
from torchprof_fleet.command.workers import sketch_on_cluster
from torchprof_tui.trace.specs.address import ListedTrace
from torchprof_tui.trace.storage.disk_cache import cache_folder, clear_cache, read_sketch

parquet = pytest.importorskip("pyarrow.parquet")

BASE = SAMPLES / "train_gpt_2ranks" / "rank0.pt.trace.json.gz"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_fleet(BASE, folder, 6, 2, Faults(late_ranks={3: 9000.0}), repeats=2)
    return folder


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Sketch in this process, and list what is sketched."""
    clear_cache()
    names: list[str] = []

    def sketch(traces: list[ListedTrace], is_cancelled: Callable[[], bool], jobs: int) -> Iterator[SketchResult]:
        for trace in traces:
            names.append(Path(trace.spec).name)
            yield sketch_file(trace.spec, trace.identity)

    monkeypatch.setattr(fleet_command, "sketch_locally", sketch)
    yield names
    clear_cache()


def ask(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    status, out, _ = call_main(capsys, "fleet", *map(str, words), "--json")
    assert status == 0
    return json.loads(out)


def compared(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer without what it took to give it."""
    return {key: value for key, value in answer.items() if key not in ("sketched", "kept")}


def test_only_new_and_changed_ranks_are_sketched_again(
    run_folder: Path, tmp_path: Path, sketched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted(run_folder.iterdir())
    for file in files[:5]:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    ask(capsys, tmp_path)
    assert len(sketched) == 5
    first = ask(capsys, tmp_path)
    assert len(sketched) == 5
    assert first["missing_ranks"] == [5]
    (tmp_path / files[5].name).write_bytes(files[5].read_bytes())
    (tmp_path / files[0].name).write_bytes(files[0].read_bytes() + b"\0")
    second = ask(capsys, tmp_path)
    assert sorted(sketched[5:]) == [files[0].name, files[5].name]
    assert (first["sketched"], first["kept"]) == (0, 5)
    assert (second["ranks"], second["sketched"], second["kept"]) == (6, 2, 4)
    assert second["missing_ranks"] == []


@pytest.mark.long
def test_a_damaged_sketch_is_made_again(
    run_folder: Path, sketched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    first = ask(capsys, run_folder)
    stored = sorted((cache_folder() / "sketches").glob("*.parquet"))
    assert len(stored) == 6
    data = bytearray(stored[0].read_bytes())
    data[len(data) // 3] ^= 0xFF
    stored[0].write_bytes(data)
    stored[1].write_bytes(b"PAR1")
    assert compared(ask(capsys, run_folder)) == compared(first)
    assert len(sketched) == 8


@pytest.mark.long
def test_many_sketches_are_read_from_one_file_unless_a_trace_has_changed(
    tmp_path: Path, sketched: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_fleet(BASE, tmp_path, sketching.MIN_COUNT, 2, Faults(late_ranks={3: 9000.0}))
    first = ask(capsys, tmp_path)
    (pack,) = (cache_folder() / "sketches").glob("*.pack")
    read: list[str] = []

    def read_and_note(path: Path) -> bytes:
        read.extend([] if path.suffix == ".pack" else [path.name])
        return read_sketch(path)

    monkeypatch.setattr(sketching, "read_sketch", read_and_note)
    assert compared(ask(capsys, tmp_path)) == compared(first)
    assert not read
    files[5].write_bytes(files[5].read_bytes() + b"\0")
    assert compared(ask(capsys, tmp_path)) == compared(first)
    assert len(read) == 1
    assert len(sketched) == sketching.MIN_COUNT + 1
    assert compared(ask(capsys, tmp_path)) == compared(first)
    assert len(read) == 1
    damages: list[Callable[[bytes], bytes]] = [
        lambda data: data[:40],
        lambda data: data[:-900] + bytes(800) + data[-100:],
        lambda data: b"x" + data,
    ]
    for damage in damages:
        intact = pack.read_bytes()
        pack.write_bytes(damage(intact))
        assert compared(ask(capsys, tmp_path)) == compared(first)
        pack.write_bytes(intact)
    assert len(read) == 1 + 3 * len(files)


@pytest.mark.long
def test_without_the_cache_nothing_is_kept(
    run_folder: Path, sketched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    ask(capsys, run_folder, "--no-cache")
    ask(capsys, run_folder, "--no-cache")
    assert len(sketched) == 12
    assert not (cache_folder() / "sketches").exists()


def test_lost_and_damaged_ranks_are_named(
    run_folder: Path, tmp_path: Path, sketched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted(run_folder.iterdir())
    (tmp_path / "cut.pt.trace.json").write_bytes(b"{")
    answer = ask(capsys, *files[:3], tmp_path / "cut.pt.trace.json", tmp_path / "gone.json")
    assert answer["ranks"] == 3
    assert answer["missing_ranks"] == [3, 4, 5]
    assert [Path(each["source"]).name for each in answer["failed"]] == ["cut.pt.trace.json", "gone.json"]


@pytest.mark.long
def test_files_named_after_ranks_that_are_no_traces_are_named(
    run_folder: Path, tmp_path: Path, sketched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for number, path in enumerate(sorted(run_folder.iterdir())[:3]):
        shutil.copy(path, tmp_path / f"rank{number}.json.gz")
    (tmp_path / "rank3.json").write_text("[")
    (tmp_path / "rank4.json.gz").write_bytes(b"\x93\xfe" * 40)
    (tmp_path / "rank5.json").touch()
    (tmp_path / "rank6.json").symlink_to(tmp_path / "gone")
    (tmp_path / "rank7.json").symlink_to("/dev/zero")
    (tmp_path / "manifest.rank0.json").write_text('{"rank": 0}')
    failed = ask(capsys, tmp_path)["failed"]
    reasons = {each["source"].removeprefix(f"{tmp_path}/"): each["reason"] for each in failed}
    damaged = "not a trace, or one that is damaged from its begin on"
    assert reasons == {
        "rank3.json": damaged,
        "rank4.json.gz": damaged,
        "rank5.json": "the file is empty",
        "rank6.json": "No such file or directory",
        "rank7.json": "not a file",
    }
    _, _, shown = call_main(capsys, "info", str(tmp_path), "--no-cache")
    assert [line.split(": ", 2)[2] for line in shown.splitlines()] == [
        f"{name}: {reason}" for name, reason in reasons.items()
    ]


@pytest.mark.long
def test_folders_patterns_and_files_together_are_one_fleet(
    run_folder: Path, sketched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    one = ask(capsys, run_folder)
    files = sorted(run_folder.iterdir())
    assert compared(ask(capsys, run_folder / "node00[01]*.json.gz", *files[3:])) == compared(one)


@pytest.mark.long
def test_text_names_the_finding(run_folder: Path, sketched: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, text, _ = call_main(capsys, "fleet", str(run_folder))
    assert status == 0
    assert text.startswith("6 of 6 ranks, 3 hosts")
    shown = " ".join(text.split())
    assert "● rank 3 (node001): arrives " in shown
    assert " of a step) after the median rank, last in " in shown
    assert "slowest hosts" in text


@pytest.mark.long
def test_parquet_has_one_row_per_rank_and_step(
    run_folder: Path, tmp_path: Path, sketched: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "fleet.parquet"
    ask(capsys, run_folder, "--parquet", out)
    table = parquet.read_table(out)
    assert table.num_rows == 6 * 4
    assert table.column("step").to_pylist()[:4] == [2, 3, 4, 5]
    assert {row["operation"] for row in table.column("collectives")[0].as_py()} == {"allreduce"}
    sketches = decode_sketches(out.read_bytes())
    assert [sketch.rank for sketch in sketches] == list(range(6))
    assert encode_sketches(sketches) == out.read_bytes()
    assert out.stat().st_size / table.num_rows < 4096


@pytest.mark.parametrize(
    ("words", "part"),
    keep_some(
        [
            (["-"], "stdin is one trace"),
            (["no-such-folder"], "no such file"),
            (["sample:linear_eager"], "no rank number"),
            (["sample:train_gpt_2ranks", "--jobs", "0"], "is not a number from 1 to 1024"),
            (["sample:train_gpt_2ranks", "--on", "nonsense"], "--on nonsense: "),
        ],
        3,
    ),
)
def test_wrong_calls(words: list[str], part: str, sketched: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if "--on" in words:
        pytest.importorskip("distributed")
    status, out, error = call_main(capsys, "fleet", *words)
    assert (status, out) == (2, "")
    assert part in error


@pytest.mark.long
def test_processes_answer_as_this_process_does(
    run_folder: Path, sketched: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ask(capsys, run_folder, "--no-cache")
    monkeypatch.setattr(fleet_command, "sketch_locally", workers.sketch_locally)
    assert ask(capsys, run_folder, "--no-cache", "--jobs", 2) == here


@pytest.mark.long
def test_a_killed_process_loses_only_the_trace_that_kills(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "run_sketch_task", _die_of_one)
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path))
    names = [f"trace{number}" for number in range(6)]
    results = list(workers.sketch_locally([ListedTrace(name, None, 0.0) for name in names], lambda: False, 2))
    assert sorted(result.spec for result in results) == names
    (lost,) = [result for result in results if result.reason]
    assert lost.reason == f"trace4: {workers.KILLED}"


def test_cancelling_ends_the_processes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "run_sketch_task", _sleep)
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path))
    asked: list[int] = []

    def is_cancelled() -> bool:
        asked.append(1)
        return len(asked) > 4

    assert list(workers.sketch_locally([ListedTrace("trace", None, 0.0)] * 3, is_cancelled, 2)) == []


def _sleep(spec: str, identity: str | None = None) -> SketchResult:
    time.sleep(3600)
    return SketchResult(spec)


def _die_of_one(spec: str, identity: str | None = None) -> SketchResult:
    if spec == "trace4":
        os._exit(9)
    return SketchResult(spec, b"sketch")


_SCRIPT = """
import os, signal, sys
from distributed import Client, LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True) as cluster:
        print(cluster.scheduler_address, flush=True)
        with Client(cluster) as client:
            for _ in sys.stdin:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
                print("killed", flush=True)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A scheduler with two worker processes, and its address. A line of input kills a worker."""
    pytest.importorskip("distributed")
    script = tmp_path_factory.mktemp("cluster") / "cluster.py"
    script.write_text(_SCRIPT)
    process = subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=script.parent
    )
    assert process.stdin is not None
    assert process.stdout is not None
    yield process, process.stdout.readline().strip()
    process.stdin.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()


def test_a_dask_cluster_answers_bit_for_bit_as_this_machine(
    run_folder: Path,
    cluster: tuple[subprocess.Popen[str], str],
    sketched: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, address = cluster
    here = ask(capsys, run_folder, "--no-cache")
    assert json.dumps(ask(capsys, run_folder, "--on", address)) == json.dumps(here)
    assert compared(ask(capsys, run_folder)) == compared(here)
    assert len(sketched) == 6  # the sketches of the cluster were kept


def test_all_workers_of_a_cluster_take_part(
    run_folder: Path, cluster: tuple[subprocess.Popen[str], str], sketched: list[str]
) -> None:
    """What throughput growing with the workers needs; a time would depend on what else runs on this machine."""
    distributed = pytest.importorskip("distributed")
    _, address = cluster

    def count(dask_worker: Any) -> Any:
        return dask_worker.state.executed_count

    traces = [ListedTrace(str(path), None, 0.0) for path in sorted(run_folder.iterdir())]
    with distributed.Client(address, set_as_default=False) as client:
        before = client.run(count)
        results = list(sketch_on_cluster(traces, lambda: False, address))
        after = client.run(count)
    assert len(results) == len(traces)
    assert len(after) == 2
    assert all(after[worker] > before[worker] for worker in after)


@pytest.mark.long
def test_a_cancelled_cluster_stops(
    run_folder: Path, cluster: tuple[subprocess.Popen[str], str], sketched: list[str]
) -> None:
    _, address = cluster
    traces = [ListedTrace(str(path), None, 0.0) for path in sorted(run_folder.iterdir())]
    assert list(sketch_on_cluster(traces, lambda: True, address)) == []


@pytest.mark.long
def test_a_killed_worker_changes_nothing(
    run_folder: Path, cluster: tuple[subprocess.Popen[str], str], sketched: list[str]
) -> None:
    process, address = cluster
    assert process.stdin is not None
    traces = [ListedTrace(str(path), None, 0.0) for path in sorted(run_folder.iterdir())]
    results = sketch_on_cluster(traces, lambda: False, address)
    found = [next(results)]
    process.stdin.write("kill\n")
    process.stdin.flush()
    found += list(results)
    by_spec = {result.spec: result for result in found}
    assert [by_spec[trace.spec] for trace in traces] == [sketch_file(trace.spec) for trace in traces]
