"""The server reads and writes only in its folders: every way out is refused in one line."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pickle
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.mcp_sessions import Session
from torchprof_samples import find
from torchprof_tui.analysis.memory.snapshots.snapshot_file import read_snapshot
from torchprof_tui.commands.mcp.answers import TOOLS
from torchprof_tui.trace.core.errors import QUOTES, TraceError
from torchprof_tui.trace.loading.capture_files import CAPTURE_FOLDER

NAME = "a.pt.trace.json.gz"
READERS = sorted(set(TOOLS) - {"diff", "slice", "snapshot", "chain"})


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `in` that may be read, and `out` beside it; the same trace in both."""
    sample = find("matmul_add_64_cold_eager").path
    for folder in ("in/deep", "out", "inner"):
        (tmp_path / folder).mkdir(parents=True)
    for folder in ("in", "in/deep", "out", "inner"):
        shutil.copy(sample, tmp_path / folder / NAME)
    monkeypatch.chdir(tmp_path / "in")
    return tmp_path


@pytest.mark.parametrize(
    "spec", keep_some([NAME, f"./{NAME}", f"deep/{NAME}", f"deep/../{NAME}", "sample:linear_eager"], 1)
)
async def test_what_is_inside_is_read(world: Path, spec: str) -> None:
    assert (await Session(["."]).ask("overview", trace=spec))["events"] > 0
    assert (await Session([world / "in"]).ask("overview", trace=str(world / "in" / NAME)))["events"] > 0


@pytest.mark.parametrize(
    "spec",
    keep_some(
        [
            f"../out/{NAME}",
            f"../inner/{NAME}",  # a folder whose name begins with the one that is allowed
            f"deep/../../out/{NAME}",
            "..",
            "/etc/passwd",
            "/",
            "~/x.json",
            "-",
            "",
            "a\0b",
            "missing.json",
            f"host:{NAME}",
            "ssh://host/x.json",
            "http://127.0.0.1:1/x.json",
            "s3://bucket/x.json",
            f"file://{NAME}",
            "*.json.gz",
            "sample:",
            "sample:../../../out",
            "sample:nothing",
            "sample:/etc/passwd",
            "/dev/stdin",
            "/proc/self/environ",
        ],
        8,
    ),
)
async def test_what_is_outside_is_refused(world: Path, spec: str) -> None:
    session = Session([world / "in"])
    for tool in READERS:
        assert len(await session.read_error(tool, trace=spec)) < 800
    await session.read_error("diff", a=NAME, b=spec)
    await session.read_error("chain", trace=spec, row=0)
    await session.read_error("snapshot", trace=spec)
    await session.read_error("slice", trace=spec, range="0:1ms", output="new.json")
    assert not (world / "in" / "new.json").exists()


async def test_an_absolute_path_outside_is_refused(world: Path) -> None:
    assert "outside of the folders" in await Session(["."]).read_error("overview", trace=str(world / "out" / NAME))


async def test_links_that_lead_out_are_refused(world: Path) -> None:
    inside, outside = world / "in", world / "out"
    (inside / "link.json.gz").symlink_to(outside / NAME)
    (inside / "folder").symlink_to(outside)
    (inside / "ranks").mkdir()
    (inside / "ranks" / "rank0.json.gz").symlink_to(outside / NAME)
    (inside / "kept.json.gz").symlink_to(inside / NAME)
    session = Session(["."])
    for spec in ("link.json.gz", f"folder/{NAME}", "folder", "ranks"):
        assert "outside of the folders" in await session.read_error("overview", trace=spec)
    assert (await session.ask("overview", trace="kept.json.gz"))["events"] > 0
    listed = json.dumps(await session.ask("overview"))
    assert "link.json.gz" not in listed
    assert "deep" in listed


@pytest.mark.parametrize("is_folder", [True, False])
async def test_captures_that_lead_out_are_refused(world: Path, is_folder: bool) -> None:
    captures = world / "in" / CAPTURE_FOLDER
    if is_folder:
        captures.symlink_to(world / "out")
    else:
        captures.mkdir()
        (captures / NAME).symlink_to(world / "out" / NAME)
    assert "outside of the folders" in await Session(["."]).read_error("overview", trace=NAME)


async def test_a_file_named_as_a_sample_is_not_that_sample(world: Path) -> None:
    (world / "in" / "sample:linear_eager").symlink_to(world / "out" / NAME)
    said = await Session(["."]).ask("overview", trace="sample:linear_eager")
    assert said["bytes"] == (await Session([world / "out"]).ask("overview", trace="sample:linear_eager"))["bytes"]
    expected = await Session([world / "out"]).ask("table", trace="sample:linear_eager")
    assert (await Session(["."]).ask("table", trace="sample:linear_eager"))["rows"] == expected["rows"]


async def test_a_pipe_is_refused(world: Path) -> None:
    os.mkfifo(world / "in" / "pipe.json")
    assert "not a regular file" in await Session(["."]).read_error("overview", trace="pipe.json")


async def test_a_slice_is_written_inside_and_never_over_a_file(world: Path) -> None:
    session, inside = Session(["."]), world / "in"
    said = await session.ask("slice", trace=NAME, range="0:100ms", output="deep/new.json")
    assert Path(said["trace"]) == inside / "deep" / "new.json"
    assert said["bytes"] == (inside / "deep" / "new.json").stat().st_size
    before = (inside / "deep" / "new.json").read_bytes()
    (inside / "dangling.json").symlink_to(world / "out" / "written.json")
    (inside / "away").symlink_to(world / "out")
    for output in ("deep/new.json", "dangling.json", NAME):
        assert "exists" in await session.read_error("slice", trace=NAME, range="0:1ms", output=output)
    for output in ("../out/x.json", str(world / "out" / "x.json"), "away/x.json", "deep/../../out/x.json"):
        assert "outside" in await session.read_error("slice", trace=NAME, range="0:1ms", output=output)
    await session.read_error("slice", trace=NAME, range="0:1ms", output="x.txt")
    await session.read_error("slice", trace=NAME, range="0:1ms", output="nowhere/x.json")
    await session.read_error("slice", trace=NAME, range="2ms:1ms", output="y.json")
    assert (inside / "deep" / "new.json").read_bytes() == before
    assert sorted(os.listdir(world / "out")) == [NAME]
    assert not (inside / "y.json").exists()


async def test_a_slice_that_fails_leaves_no_file(world: Path) -> None:
    await Session(["."]).read_error("slice", trace=NAME, range="9000s:9001s", output="empty.json")
    assert not (world / "in" / "empty.json").exists()


@pytest.mark.parametrize(
    "keys", keep_some(["o", "R", "r", "enter", "L", "e", "D", "y", "q", "escape", "ctrl+p", "w,slash", "g"], 5)
)
async def test_keys_that_leave_the_trace_are_refused(world: Path, keys: str) -> None:
    assert "keys that move about" in await Session(["."]).read_error("snapshot", trace=NAME, keys=keys)


@pytest.mark.long
async def test_a_snapshot_imports_nothing_from_the_working_folder(world: Path) -> None:
    (world / "in" / "textual.py").write_text("open('imported', 'w')", encoding="utf-8")
    text, is_error = await Session(["."]).call("snapshot", trace=NAME, size="80x24")
    assert not is_error, text
    assert not (world / "in" / "imported").exists()


MARK = "CANARY"
NO_TRACES = {
    ".env": f"TOKEN={MARK}\n",
    "config.ini": f"[{MARK}]\nkey = {MARK}\n",
    "config.yaml": f"token:\n  - {MARK}\n",
    "config.json": json.dumps({MARK: MARK, "token": MARK}),
    "text.json": json.dumps(MARK),
    "list.json": json.dumps([MARK, {MARK: MARK}]),
    "events.json": json.dumps({"traceEvents": MARK, MARK: MARK}),
    "broken.json": f"{{{MARK}}}",
    "cut.json": f'{{"a": "{MARK}',
    "lines.jsonl": json.dumps({MARK: MARK}) + "\n" + json.dumps({MARK: MARK}),
    "key.pem": f"-----BEGIN {MARK} KEY-----\n",
    "text.gz": gzip.compress(f"TOKEN={MARK}".encode()),
    "text.json.zst": MARK,
    "text.pftrace": MARK * 50,
    "any.pickle": pickle.dumps({MARK: MARK}),
    "snapshot.pickle": pickle.dumps({"segments": [{"device": MARK}], "device_traces": [[MARK]], MARK: MARK}),
}


@pytest.mark.parametrize("name", keep_some([*NO_TRACES, "data.sqlite"], 6))
async def test_no_file_that_is_no_trace_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / name
    if name in NO_TRACES:
        content = NO_TRACES[name]
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    else:
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute(f"CREATE TABLE {MARK} (x)")
    monkeypatch.setenv(QUOTES, "0")
    session = Session([tmp_path])
    for tool, side in (("overview", "trace"), ("memory_at", "trace"), ("diff", "a")):
        other = {"b": "sample:linear_eager"} if tool == "diff" else {}
        line = await session.read_error(tool, **{side: name}, **other)
        assert MARK not in line
    if name.endswith(".pickle"):
        with pytest.raises(TraceError) as raised:
            read_snapshot(path)
        assert MARK not in str(raised.value)


@pytest.mark.long
async def test_a_run_with_a_file_that_is_no_rank_does_not_quote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = find("train_gpt_2ranks").path
    shutil.copytree(source, tmp_path / "run")
    damaged = sorted((tmp_path / "run").iterdir())[-1]
    damaged.write_text(f"TOKEN={MARK}")
    monkeypatch.setenv(QUOTES, "0")
    session = Session([tmp_path])
    for tool in ("findings", "fleet"):
        text, _ = await session.call(tool, trace="run")
        assert MARK not in text
