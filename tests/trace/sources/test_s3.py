"""Tests of traces in an S3-compatible store: moto's server on loopback, read through fsspec and s3fs.

Skipped without moto, flask and s3fs; `.ci/run` installs them (the dependency group `ci`).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.later_imports import LaterModule, import_later, skip_without
from tests.helpers.paths import SAMPLES
from tests.helpers.rank_traces import late_rank
from torchprof_tui.cli import main
from torchprof_tui.trace.loading.load_in_process import load_opened_trace
from torchprof_tui.trace.sources.source import open_source
from torchprof_tui.trace.specs.runs_by_name import FolderError

skip_without("flask", "moto")
s3fs, moto_server = import_later("s3fs"), LaterModule("moto.server")

EVENTS = 30_000
OPS = [{"ph": "X", "name": f"op {k % 50}", "pid": 1, "tid": 1, "ts": 10 * k, "dur": 5} for k in range(EVENTS)]
TEXT = json.dumps({"traceEvents": OPS}).encode()


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """A bucket `runs` with a plain trace larger than one request, a gzip one, and other files."""
    patch = pytest.MonkeyPatch()
    server = moto_server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        patch.setenv(name, value)
    patch.setattr("torchprof_tui.trace.sources.url._REQUEST_BYTES", 1 << 19)
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem()
    files.makedirs("runs", exist_ok=True)  # moto keeps its state if a worker sets the fixture up twice
    files.pipe("runs/a/rank0.json", TEXT)
    files.pipe("runs/a/rank1.json.gz", gzip.compress(TEXT, 1))
    files.pipe("runs/a/notes.txt", b"no trace")
    files.pipe("runs/empty.json", b"")
    yield files
    s3fs.S3FileSystem.clear_instance_cache()
    patch.undo()
    server.stop()


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("name", ["rank0.json", "rank1.json.gz"])
def test_read_all_text(name: str) -> None:
    source = open_source(f"s3://runs/a/{name}")
    assert source.total is not None
    assert b"".join(source.blocks()) == TEXT
    assert source.problems == []
    assert source.identity is not None
    assert "ETag=" in source.identity
    source.close()


@pytest.mark.usefixtures("store")
def test_info_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "s3://runs/a/rank1.json.gz", "--json", "--no-cache"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["drawn"], told["problems"]) == (EVENTS, [])


def test_cached_until_the_object_changes(store: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path))
    first, again = (load_opened_trace("s3://runs/a/rank0.json") for _ in range(2))
    assert (first.cached, again.cached) == (False, True)
    store.pipe("runs/a/rank0.json", TEXT.replace(b"op 7", b"op X"))
    try:
        assert not load_opened_trace("s3://runs/a/rank0.json").cached
    finally:
        store.pipe("runs/a/rank0.json", TEXT)


@pytest.mark.usefixtures("store")
def test_folder_lists_its_traces() -> None:
    with pytest.raises(FolderError) as caught:
        open_source("s3://runs/a")
    assert sorted(each.spec for each in caught.value.traces) == ["s3://runs/a/rank0.json", "s3://runs/a/rank1.json.gz"]
    assert all(each.size > 0 and each.modified > 1.5e9 for each in caught.value.traces)


@pytest.mark.long
def test_pattern_opens_the_ranks_of_a_run(
    store: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))
    files = late_rank(2).write(tmp_path, packed=True)
    for path in files:
        store.put(str(path), f"runs/ddp/{path.name}")
    store.pipe("runs/ddp/deep/rank7.json.gz", b"")
    for cached in (False, True):
        assert main(["info", "s3://runs/ddp/*.json.gz", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert [(rank["rank"], rank["file"]) for rank in told["ranks"]] == [
            (rank, f"s3://runs/ddp/rank{rank}.json.gz") for rank in range(2)
        ]
        assert told["cached"] is cached
    assert main(["info", *map(str, files), "--json"]) == 0
    here = json.loads(capsys.readouterr().out)
    for key in ("events", "drawn", "by_category", "duration_ns", "collectives", "gpu_busy_ns"):
        assert told[key] == here[key]
    # One rank local, one remote, one missing.
    assert main(["info", str(files[0]), "s3://runs/ddp/rank1.json.gz", "s3://runs/ddp/rank2.json.gz", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [rank["rank"] for rank in json.loads(out)["ranks"]] == [0, 1]
    assert err == ("torchprof-tui: left out: rank 2: s3://runs/ddp/rank2.json.gz: no such file there\n")
    assert main(["info", "s3://runs/none/*.json", "--json"]) == 2
    assert capsys.readouterr().err == "torchprof-tui: s3://runs/none/*.json: no match there\n"
    assert main(["check", "s3://runs/ddp", "--json"]) == 0  # the folder holds one run
    assert [rank["rank"] for rank in json.loads(capsys.readouterr().out)["ranks"]] == [0, 1]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("s3://runs/a/none.json", "no such file there"),
        ("s3://nobody/none.json", "no such file there"),
        ("s3://runs/empty.json", "the file is empty"),
        ("s3://runs/a/notes.txt", "not a trace"),
    ],
)
def test_missing_objects_are_reported_in_one_line(spec: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", spec, "--no-cache"]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.long
def test_ranks_in_a_bucket_are_one_fleet_and_sketched_once(
    store: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    folder = SAMPLES / "train_gpt_2ranks"
    for path in folder.iterdir():
        store.pipe(f"runs/job/{path.name}", path.read_bytes())

    def ask(name: str) -> Any:
        assert main(["fleet", name, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    here, there = ask(str(folder)), ask("s3://runs/job/")
    for answer in (here, there):
        assert answer.pop("sketched") + answer.pop("kept") == 2  # another test may have sketched the sample
        for rank in answer["slowest_ranks"]:
            rank["file"] = rank["file"].rpartition("/")[2]
    assert there == here
    monkeypatch.setattr(
        "torchprof_fleet.command.main.sketch_locally", lambda traces, jobs: pytest.fail("sketched again")
    )
    assert ask("s3://runs/job/*.json.gz")["faults"] == here["faults"]
