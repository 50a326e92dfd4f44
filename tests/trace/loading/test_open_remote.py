"""Test opening remote ranks with a real sshd: names, patterns, folders, mixed with local files; cut connections."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from textual.widgets import OptionList

from tests.helpers import sshd
from tests.helpers.paths import ROOT
from tests.helpers.rank_traces import late_rank
from tests.helpers.remote_traces import same
from tests.helpers.terminal import Terminal
from torchprof_tui.app import TorchprofApp
from torchprof_tui.cli import main
from torchprof_tui.trace.core.problems import CUT_CONNECTION, LOST_RANK
from torchprof_tui.trace.loading import open_ranks
from torchprof_tui.trace.loading.open_ranks import MAX_UNNUMBERED_FILES, RemoteOpener
from torchprof_tui.trace.loading.progress import FAILED_SHARE, LoadError, Progress, RanksProgress
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.listing import list_remote_traces
from torchprof_tui.trace.sources.source import open_source
from torchprof_tui.trace.storage.disk_cache import cache_usage
from torchprof_tui.ui.start.start_screen import StartScreen

pytestmark = pytest.mark.skipif(not (sshd.SSHD and sshd.SSH), reason="needs OpenSSH's server and client")

RANKS = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    with sshd.running(tmp_path_factory.mktemp("sshd")) as server:
        folder = server.home / "it's a run"
        folder.mkdir()
        late_rank(RANKS).write(folder, packed=True)
        (folder / "notes.txt").write_text("no trace")
        yield server


@pytest.fixture
def run(server: sshd.Sshd) -> Path:
    return server.home / "it's a run"


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # One worker decodes all ranks: starting more would take longer than decoding these.
    monkeypatch.setattr(open_ranks, "MAX_WORKERS", 1)
    monkeypatch.setattr(open_ranks, "MAX_WORKERS_PER_HOST", 1)


async def opened(*specs: str, cache: bool = True) -> tuple[Trace, RemoteOpener, list[Progress]]:
    opener = resolve_specs(specs).create_opener(cache)
    assert isinstance(opener, RemoteOpener)
    reports: list[Progress] = []
    opener.start()
    trace = await opener.load_trace(reports.append)
    opener.close()
    return trace, opener, reports


async def failure(*specs: str) -> str:
    with pytest.raises(LoadError) as caught:
        await opened(*specs)
    line = str(caught.value)
    assert "\n" not in line
    return line


def numbers(trace: Trace) -> list[int]:
    assert trace.merged_ranks is not None
    return [rank.number for rank in trace.merged_ranks.all]


def assert_same_as_local(trace: Trace, files: list[Path]) -> None:
    """Compare with the same files, opened from this disk."""
    opener = resolve_specs([str(file) for file in files]).create_opener(cache=False)
    local = asyncio.run(opener.load_trace(lambda _: None))
    same(trace, local)
    assert trace.merged_ranks is not None
    assert local.merged_ranks is not None
    np.testing.assert_array_equal(
        trace.merged_ranks.matched_collectives.events, local.merged_ranks.matched_collectives.events
    )
    opener.close()


def load(*specs: str) -> Trace:
    return asyncio.run(opened(*specs))[0]


def list_specs(*names: str) -> list[list[str]]:
    """List the traces that each name means, and check that each opens under its spec, as the same content."""
    with contextlib.ExitStack() as connections:
        listings = list_remote_traces(names, connections)
    assert all(not listing.error for listing in listings), listings
    for listing in listings:
        for trace in listing.traces:
            source = open_source(trace.spec)
            assert (source.total, source.identity) == (trace.size, trace.identity)
            source.close()
    return [[trace.spec for trace in listing.traces] for listing in listings]


@pytest.mark.long
def test_names_patterns_and_folders_list_the_same_run(server: sshd.Sshd, run: Path) -> None:
    files = [run / f"rank{k}.json.gz" for k in range(RANKS)]
    specs = [f"shared:{file}" for file in files]
    assert list_specs(
        *reversed(specs),
        f"shared:{run}/rank*.json.gz",
        f"shared:{server.home}/it?s*/rank[0-9].json*",
        f"shared:{run}",
        f"ssh://shared{run}/*[0-1]*.gz",
    ) == [
        *([spec] for spec in reversed(specs)),
        specs,
        specs,
        specs,
        [f"ssh://shared{file}" for file in files[:2]],
    ]
    mixed = load(
        str(files[0]), f"shared:{run}/rank[1]*", f"ssh://otherport:{server.port}{files[2]}", f"shared:{files[1]}"
    )
    assert mixed.merged_ranks is not None
    assert numbers(mixed) == [0, 1, 2]


def test_two_stars_match_any_number_of_folders(server: sshd.Sshd) -> None:
    top = server.home / "top"
    (top / "a" / "b").mkdir(parents=True)
    for path in ("rank0.json", "a/rank1.json", "a/b/rank2.json", "a/other.json"):
        (top / path).write_text("[]")
    (answer,) = list_specs(f"shared:{top}/**/rank*.json")
    local = glob.glob(f"{top}/**/rank*.json", recursive=True)
    assert sorted(answer) == sorted(f"shared:{path}" for path in local)
    with contextlib.ExitStack() as connections:
        (none,) = list_remote_traces([f"shared:{top}/**/x*"], connections)
    assert none.error == f"shared:{top}/**/x*: no match there"


def test_remote_ranks_are_the_same_as_local_ones(server: sshd.Sshd, run: Path) -> None:
    assert_same_as_local(load(f"shared:{run}/rank*.gz"), [run / f"rank{k}.json.gz" for k in range(RANKS)])


def test_paths_relative_to_the_remote_home_folder(server: sshd.Sshd, run: Path) -> None:
    assert list_specs("home:it's a run/rank0*", "home:~/it's a run/rank0*", "ssh://home/~/it's a run/rank0*") == [
        ["home:it's a run/rank0.json.gz"],
        ["home:it's a run/rank0.json.gz"],
        ["ssh://home/~/it's a run/rank0.json.gz"],
    ]


def test_names_with_shell_metacharacters(server: sshd.Sshd) -> None:
    folder = server.home / "-n $(touch x) %41"
    folder.mkdir()
    odd = '"q" `y` * [a]?.json'
    for name in (odd, "a.json", "x\nb.json", "c.json\nd.json"):  # the last two hold line breaks: left out
        (folder / name).write_text("[]")
    (folder / "a folder.json").mkdir()
    before = sorted(os.listdir(server.home)), sorted(os.listdir(folder))
    url = f"ssh://shared{str(folder).replace('%', '%25')}"
    assert list_specs(f"shared:{folder}/{odd}", f"shared:{folder}/*", f"{url}/*.json", f"home:./{folder.name}/a*") == [
        [f"shared:{folder}/{odd}"],
        [f"shared:{folder}/{odd}", f"shared:{folder}/a.json"],
        [f"{url}/{odd}", f"{url}/a.json"],
        [f"home:{folder.name}/a.json"],
    ]
    assert (sorted(os.listdir(server.home)), sorted(os.listdir(folder))) == before


@pytest.mark.long
async def test_unchanged_ranks_are_mapped_from_the_cache(server: sshd.Sshd, run: Path) -> None:
    logins = server.logins
    first, opener, reports = await opened("home:it's a run/rank*")
    assert not opener.cached
    assert server.logins - logins == RANKS + 1
    size = sum((run / f"rank{k}.json.gz").stat().st_size for k in range(RANKS))
    shared = [each for each in reports if isinstance(each, RanksProgress)]
    assert {each.total for each in shared} == {size}  # known before the first byte
    assert shared[-1].shares == (1.0,) * RANKS
    assert cache_usage()[0] == RANKS

    logins = server.logins
    again, opener, reports = await opened("home:it's a run/rank*")
    assert opener.cached
    assert server.logins - logins == 1  # one listing for all of them
    np.testing.assert_array_equal(first.start, again.start)

    os.utime(run / "rank1.json.gz", ns=(1, 1))
    logins = server.logins
    _, opener, _ = await opened("home:it's a run/rank*")
    assert not opener.cached
    assert server.logins - logins == 2

    await opened("home:it's a run/rank*", cache=False)
    assert cache_usage()[0] == RANKS + 1


@pytest.mark.long
async def test_a_shared_connection_is_the_only_one(server: sshd.Sshd, run: Path) -> None:
    """Also one that ends with its first session: it is held until all ranks have been fetched, and no longer."""
    subprocess.run(["ssh", "-q", "-O", "exit", "shared"], check=False, capture_output=True)
    for host in ("shared", "session"):
        logins = server.logins
        trace, _, _ = await opened(f"{host}:{run}/rank*", cache=False)
        assert numbers(trace) == [0, 1, 2]
        assert server.logins - logins == 1
    assert subprocess.run(["ssh", "-O", "check", "session"], check=False, capture_output=True).returncode == 255


def test_another_session_does_not_delay_the_end_of_a_source(server: sshd.Sshd) -> None:
    """It would over a connection that this program had opened: ssh ends when the last session on it does."""
    file = server.home / "large.bin"
    file.write_bytes(os.urandom(4_000_000))
    source = open_source(f"session:{file}")
    other = subprocess.Popen(["ssh", "session", "echo here; exec sleep 100"], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"here\n"
        assert sum(map(len, source.blocks())) == 4_000_000
        assert other.poll() is None
    finally:
        source.close()
        other.kill()
        other.wait()
        file.unlink()


@pytest.mark.long
async def test_few_ranks_are_fetched_from_one_host_at_a_time(
    server: sshd.Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_ranks, "MAX_WORKERS_PER_HOST", 2)
    many = server.home / "many"
    many.mkdir()
    late_rank(5).write(many, packed=True)
    opener = resolve_specs([f"box:{many}/*"]).create_opener(cache=False)
    most = 0
    opener.start()
    task = asyncio.ensure_future(opener.load_trace(lambda _: None))
    while not task.done():
        most = max(most, len(server.clients()))
        await asyncio.sleep(0.01)
    assert len(numbers(task.result())) == 5
    assert 1 <= most <= 2
    opener.close()


@pytest.mark.long
async def test_ranks_that_cannot_be_fetched_are_left_out_and_reported(server: sshd.Sshd, run: Path) -> None:
    (server.home / "prose_rank4.json").write_text("hello, world")
    hidden = server.home / "rank5.json"
    hidden.write_text("[]")
    hidden.chmod(0)
    specs = [
        f"shared:{run}/rank0.json.gz",
        f"shared:{run}/rank1.json.gz",
        f"shared:{run}/rank3.json.gz",
        f"shared:{server.home}/prose_rank4.json",
        f"nobody:{hidden}",
        "nokey:rank6.json",
        "nowhere.invalid:rank7.json",
        f"shared:{run}/none*",
        f"shared:{server.folder}/bin/",
    ]
    trace, _, reports = await opened(*specs)
    assert numbers(trace) == [0, 1]
    assert trace.merged_ranks is not None
    lost_ranks = {lost.file: (lost.number, lost.reason) for lost in trace.merged_ranks.lost}
    assert set(lost_ranks) == set(specs[2:])
    for file, (_, line) in lost_ranks.items():
        assert line.startswith(f"{file}: ")
        assert line.isprintable()
    reasons = [lost_ranks[file][1].removeprefix(f"{file}: ") for file in specs[2:]]
    words = (
        *(
            "no such file there",
            "not a trace",
            "no permission",
            "nokey refused the login (publickey only)",
            "there is neither a host",
        ),
        *("no match there", "a folder, with no .json"),
    )
    assert all(line.startswith(word) for line, word in zip(reasons, words, strict=True)), reasons
    assert [lost_ranks[file][0] for file in specs[2:]] == [3, 4, 5, 6, 7, None, None]
    lost = next(problem for problem in trace.problems if problem.kind == LOST_RANK)
    assert lost.count == 7
    last = reports[-1]
    assert isinstance(last, RanksProgress)
    assert last.shares == (1.0, 1.0, FAILED_SHARE)  # the ranks that were listed


async def test_a_rank_whose_connection_is_cut_is_shown_in_part(server: sshd.Sshd, tmp_path: Path) -> None:
    folder = server.home / "cut"
    folder.mkdir()
    late_rank(2, steps=150).write(folder)
    trace, _, _ = await opened(f"cut_off:{folder}/rank1.json", f"shared:{folder}/rank0.json")
    assert trace.merged_ranks is not None
    whole, part = trace.merged_ranks.all
    assert 0 < len(part.trace) < len(whole.trace)
    cut = next(problem for problem in trace.problems if problem.kind == CUT_CONNECTION)
    assert re.fullmatch(
        r"rank 1: connection to cut_off lost at [0-9.]+ of [0-9.]+ [kM]B; not resumed: .+",
        cut.example,
    )
    assert cut.count == 1
    assert "cut short" not in {problem.kind for problem in trace.problems}  # the same damage is reported once
    assert cache_usage()[0] == 1  # an incomplete trace is not stored


@pytest.mark.long
async def test_where_nothing_can_be_fetched_the_error_is_one_line(server: sshd.Sshd, run: Path) -> None:
    assert await failure(f"shared:{run}/none*") == f"shared:{run}/none*: no match there"
    assert await failure(f"shared:{run}/none/*") == f"shared:{run}/none/*: no such file there"
    closed = server.home / "closed"
    closed.mkdir(mode=0o700)
    (closed / "rank0.json").touch()
    for below in ("*", "rank0.*"):
        assert await failure(f"nobody:{closed}/{below}") == f"nobody:{closed}/{below}: no permission to read it there"
    line = await failure("nowhere.invalid:rank0.json", "nowhere.invalid:rank1.json")
    assert line == (
        "nowhere.invalid:rank0.json: there is neither a host nor a local file named nowhere.invalid "
        "(and 1 more that could not be found)"
    )
    assert "sftp connections only" in await failure("sftponly:rank*.json")
    assert "are both of rank 0" in await failure(f"shared:{run}/rank0.json.gz", f"box:{run}/rank0.json.gz")


async def test_many_files_without_rank_numbers_are_not_fetched(server: sshd.Sshd) -> None:
    folder = server.home / "checkpoints"
    folder.mkdir()
    for number in range(MAX_UNNUMBERED_FILES + 1):
        (folder / f"{number}.json").write_text("{}")
    logins = server.logins
    line = await failure(f"box:{folder}/*.json")
    assert f"{MAX_UNNUMBERED_FILES + 1} traces, and {MAX_UNNUMBERED_FILES + 1} of them" in line
    assert "have no rank number in their names" in line
    assert server.logins - logins == 1


async def test_ranks_that_only_their_text_numbers(server: sshd.Sshd, tmp_path: Path) -> None:
    """tensorboard's handler names traces by host and process."""
    folder = server.home / "tensorboard"
    folder.mkdir()
    for path, process in zip(late_rank(2).write(tmp_path), (812, 811), strict=True):
        shutil.copy(path, folder / f"node1_{process}.1700000000.pt.trace.json")
    trace, _, _ = await opened(f"shared:{folder}/*.json")
    assert numbers(trace) == [0, 1]
    assert trace.merged_ranks is not None
    assert trace.merged_ranks.all[0].file.endswith("node1_812.1700000000.pt.trace.json")


async def test_cancelling_ends_all_connections(server: sshd.Sshd, run: Path, tmp_path: Path) -> None:
    others = set(server.clients())
    for host in ("stuck", "session"):
        large = server.home / "large"
        large.mkdir(exist_ok=True)
        for rank in range(3):
            (large / f"rank{rank}.json.gz").write_bytes(os.urandom(3_000_000))
        opener = resolve_specs([f"{host}:{large}/rank*"]).create_opener()
        opener.start()
        task = asyncio.ensure_future(opener.load_trace(lambda _: None))
        while not set(server.clients()) - others:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        until = time.monotonic() + 60
        while set(server.clients()) - others and time.monotonic() < until:
            await asyncio.sleep(0.01)
        assert not set(server.clients()) - others
    assert list((tmp_path / "cache").glob(".draft*")) == []


@pytest.mark.long
def test_a_killed_program_leaves_no_connection(server: sshd.Sshd, run: Path) -> None:
    """Neither one that sends nothing nor one that is held, without a terminal whose hang-up would end their process."""
    text = b'{"a":"' + os.urandom(600_000).hex().encode() + b'"}'
    (server.home / "still.json.gz").write_bytes(gzip.compress(text))
    specs = [f"stuck:{server.home}/still.json.gz", f"session:{run}/rank1.json.gz"]
    others = set(server.clients())
    program = subprocess.Popen([sys.executable, "-m", "torchprof_tui", "info", *specs], cwd=ROOT)
    try:
        until = time.monotonic() + 60
        while cache_usage()[0] == 0 and time.monotonic() < until:  # one rank is stored, the other never arrives
            time.sleep(0.01)
        time.sleep(0.5)  # all that arrived is decoded, no message follows
        assert len(set(server.clients()) - others) >= 2
    finally:
        program.kill()
        program.wait()
    server.wait_for_no_clients(others)


@pytest.mark.long
def test_one_passphrase_prompt_for_all_ranks(server: sshd.Sshd, run: Path) -> None:
    program = [sys.executable, "-m", "torchprof_tui", f"locked_once:{run}/rank*"]
    logins = server.logins
    with Terminal(program, folder=ROOT) as terminal:
        terminal.wait_for("Enter passphrase for key")
        terminal.send("open sesame\r")
        terminal.wait_for("rank 0", "rank 1", "rank 2")
        terminal.send("q")
        assert terminal.wait_for_end() == 0
    assert server.logins - logins == 1


@pytest.mark.long
@pytest.mark.parametrize("command", ["check", "info"])
def test_one_passphrase_opens_a_folder_in_a_command(server: sshd.Sshd, run: Path, command: str) -> None:
    program = [sys.executable, "-m", "torchprof_tui", command, f"locked:{run}/", "--json"]
    logins = server.logins
    with Terminal(program, columns=400, folder=ROOT) as terminal:
        terminal.wait_for("Enter passphrase for key")
        terminal.send("open sesame\r")
        assert terminal.wait_for_end() == 0
    assert server.logins - logins == 1
    assert server.clients("locked") == []


@pytest.mark.long
def test_without_a_terminal_one_line_says_what_helps(
    server: sshd.Sshd, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for spec in (f"locked:{run}/rank0.json.gz", f"locked:{run}/", f"locked:{run}/rank*"):
        assert main(["check", "--json", spec]) == 2
        out, err = capfd.readouterr()
        assert (out, err) == ("", f"torchprof-tui: {spec}: ssh needs a passphrase: load the key into ssh-agent\n")
    assert main(["info", "--json", f"locked:{run}/rank1.json.gz", f"shared:{run}/rank0.json.gz"]) == 0
    out, err = capfd.readouterr()
    assert [rank["rank"] for rank in json.loads(out)["ranks"]] == [0]
    assert "left out: rank 1: " in err
    assert "ssh needs a passphrase: load the key into ssh-agent" in err


def open_from_app(terminal: Terminal, spec: str) -> None:
    terminal.send("o")
    terminal.wait_for("enter open")
    terminal.send("~")  # begins to type a path
    terminal.wait_for(" ~")
    terminal.send("\x7f")
    terminal.wait_for(" ~", gone=True)
    terminal.send(spec)
    terminal.wait_for(spec)
    terminal.send("\r")


@pytest.mark.long
def test_a_passphrase_is_asked_from_inside_the_app(server: sshd.Sshd, run: Path) -> None:
    """The screen is suspended for the question, comes back, and later openings use the same connection."""
    program = [sys.executable, "-m", "torchprof_tui", "sample:matmul_add_64_cold_eager"]
    logins = server.logins
    with Terminal(program, folder=ROOT) as terminal:
        terminal.wait_for("CPU", "steps")
        open_from_app(terminal, f"locked:{run}/")
        terminal.wait_for("log in to open locked:", "Enter passphrase for key")
        terminal.send("\x03")  # back to the app, which goes on
        terminal.wait_for("This could not be opened", "load the key into ssh-agent")
        open_from_app(terminal, f"locked:{run}/")
        terminal.wait_for("log in to open locked:", "Enter passphrase for key")
        terminal.send("open sesame\r")
        terminal.wait_for("rank*.json.gz", "all 3 ranks")
        terminal.send("\r")
        terminal.wait_for("GPU busy", "rank 0", "rank 1", "rank 2")
        assert len(server.clients("locked")) == 1
        open_from_app(terminal, f"locked:{run}/rank1.json.gz")
        terminal.wait_for("locked:rank1")
        terminal.send("q")
        assert terminal.wait_for_end() == 0
    assert server.logins - logins == 1
    assert server.clients("locked") == []


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP])
def test_a_question_ends_with_the_program(server: sshd.Sshd, run: Path, end: signal.Signals) -> None:
    program = [sys.executable, "-m", "torchprof_tui", "sample:matmul_add_64_cold_eager"]
    with Terminal(program, folder=ROOT) as terminal:
        terminal.wait_for("CPU", "steps")
        open_from_app(terminal, f"locked:{run}/")
        terminal.wait_for("Enter passphrase for key")
        os.kill(terminal.pid, end)
        terminal.wait_for_end()
    assert server.clients("locked") == []


@pytest.fixture
def listing(server: sshd.Sshd, tmp_path: Path) -> Path:
    """Write two runs of two ranks, and one more trace."""
    folder = server.home / "listing"
    if not folder.exists():
        for age, name in enumerate(("new", "old")):
            (folder / name).mkdir(parents=True)
            for path in late_rank(2).write(folder / name):
                os.utime(path, (1_700_000_000 - 1000 * age, 1_700_000_000 - 1000 * age))
        shutil.copy(folder / "new" / "rank0.json", folder / "single.json")
        os.utime(folder / "single.json", (1_600_000_000, 1_600_000_000))
    return folder


@pytest.mark.long
async def test_the_runs_of_a_remote_folder_are_listed_and_open(server: sshd.Sshd, listing: Path) -> None:
    opener = resolve_specs([f"shared:{listing}/"]).create_opener()
    opener.start()
    app = TorchprofApp(opener)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.lanes_ready.wait()
        await pilot.pause()
        assert isinstance(app.screen, StartScreen)
        lines = [str(option.prompt) for option in app.screen.query_one(OptionList).options]
        assert [line.split()[0] for line in lines[1:4]] == ["new/rank*.json", "old/rank*.json", "new/rank0.json"]
        assert all("all 2 ranks" in line for line in lines[1:3])
        app.lanes_ready.clear()
        await pilot.press("down", "enter")
        await app.lanes_ready.wait()
        await pilot.pause()
        trace = app.screen.trace  # type: ignore[attr-defined]
        assert [rank.file for rank in trace.merged_ranks.all] == [
            f"shared:{listing}/old/rank{k}.json" for k in range(2)
        ]


@pytest.mark.long
def test_commands_with_remote_folders(
    server: sshd.Sshd, listing: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`info` lists a folder; other commands open it where it is one run, and say how to open it otherwise."""
    assert main(["info", f"shared:{listing}/", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["runs"] == [[f"shared:{listing}/{age}/rank{k}.json" for k in range(2)] for age in ("new", "old")]
    assert main(["info", f"shared:{listing}/"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 5
    assert err == "".join(f"all 2 ranks of one run: 'shared:{listing}/{age}/rank*.json'\n" for age in ("new", "old"))
    assert main(["check", f"shared:{listing}/"]) == 2
    err = capsys.readouterr().err
    assert f"3 recordings; name one of them: 'shared:{listing}/new/rank*.json' (2 ranks)" in err
    assert main(["check", f"shared:{run}/", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [rank["rank"] for rank in answer["ranks"]] == [0, 1, 2]
    assert next(pattern for pattern in answer["patterns"] if pattern["id"] == "straggler")["state"] == "fired"
    assert main(["table", f"shared:{run}/", "--of", "arrivals", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]
