"""Tests of traces on an ssh host: a real sshd and ssh client, with lost connections."""

from __future__ import annotations

import asyncio
import gzip
import json
import lzma
import os
import random
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import OptionList

from tests.helpers import sshd
from tests.helpers.long_run import keep_some
from tests.helpers.paths import ROOT, list_cache
from tests.helpers.remote_traces import opened, read, refusal, same
from tests.helpers.terminal import Terminal
from torchprof_tui.app import TorchprofApp
from torchprof_tui.cli import main
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import CUT_CONNECTION
from torchprof_tui.trace.loading.load_in_process import load_opened_trace
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.trace.loading.progress import LoadError
from torchprof_tui.trace.sources.source import open_source
from torchprof_tui.trace.sources.ssh_stream import SshStream
from torchprof_tui.trace.sources.zstd_codec import zstd
from torchprof_tui.trace.specs.runs_by_name import FolderError
from torchprof_tui.ui.start.start_screen import StartScreen

pytestmark = [
    pytest.mark.skipif(not (sshd.SSHD and sshd.SSH), reason="needs OpenSSH's server and client"),
    pytest.mark.usefixtures("cache_home"),
]

EVENTS = 12_000


def text() -> bytes:
    """Build about 2 MB of events that compress badly enough for a lost connection to fall within them."""
    rng = random.Random(7)
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"op {k % 50}", "pid": 1, "tid": 1, "ts": 10 * k, "dur": 5}
        | {"args": {"External id": k, "key": f"{rng.getrandbits(256):x}"}}
        for k in range(EVENTS)
    ]
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()


TEXT = text()

PACK = {
    ".json": bytes,
    ".json.gz": lambda data: gzip.compress(data, 1),
    ".json.xz": lambda data: lzma.compress(data, preset=0),
    ".json.zst": lambda data: zstd.compress(data, 1),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    with sshd.running(tmp_path_factory.mktemp("sshd")) as server:
        for ending, pack in PACK.items():
            (server.home / f"trace{ending}").write_bytes(pack(TEXT))
        yield server


@pytest.mark.parametrize("ending", PACK)
def test_received_text_equals_the_file(server: sshd.Sshd, ending: str) -> None:
    file = server.home / f"trace{ending}"
    source = open_source(f"shared:{file}")
    assert source.plain_path is None
    assert source.total == file.stat().st_size
    assert read(source) == TEXT
    assert source.consumed == source.total  # bytes as stored, however they were sent
    assert source.problems == []
    assert not source.connection_lost


@pytest.mark.parametrize(("host", "way"), [("shared", "zstd"), ("no_zstd", "gzip"), ("no_packer", "")])
def test_plain_text_is_compressed_by_a_tool_of_the_host(server: sshd.Sshd, host: str, way: str) -> None:
    if way == "zstd" and not shutil.which("zstd"):
        way = "gzip"
    source = open_source(f"{host}:{server.home}/trace.json")
    assert source.compression == way
    assert (read(source), source.consumed, source.total) == (TEXT, len(TEXT), len(TEXT))


def test_small_files_are_sent_uncompressed(server: sshd.Sshd) -> None:
    (server.home / "small.json").write_bytes(b'[{"ph": "X", "name": "a", "ts": 1, "dur": 1}]')
    source = open_source(f"shared:{server.home}/small.json")
    assert source.compression == ""
    assert len(read(source)) == source.consumed == source.total


def test_names_with_shell_characters(server: sshd.Sshd) -> None:
    for name in (
        "a b.json",
        "it's $(touch x) `y`.json",
        '"q" * ? [a].json',
        "-n",
        "ünï\\n.json",
        "a\nb",
        "!x ~ #.json",
    ):
        (server.home / name).write_bytes(name.encode() + b" was read")
        assert read(open_source(f"shared:{server.home}/{name}")) == name.encode() + b" was read"


def test_relative_path_and_login_output(server: sshd.Sshd) -> None:
    assert read(open_source("home:trace.json.gz")) == TEXT


def test_address_with_user_and_port(server: sshd.Sshd) -> None:
    spec = f"ssh://{server.user}@otherport:{server.port}{server.home}/trace.json.gz"
    assert read(open_source(spec)) == TEXT


def test_ipv6_address(server: sshd.Sshd) -> None:
    if not server.has_ipv6:
        pytest.skip("this machine has no ::1")
    assert read(open_source(f"ssh://{server.user}@[::1]:{server.port}{server.home}/trace.json.gz")) == TEXT


def test_jump_host(server: sshd.Sshd) -> None:
    logins = server.logins
    assert read(open_source(f"behind:{server.home}/trace.json.gz")) == TEXT
    assert server.logins == logins + 2


def test_open_connection_is_reused(server: sshd.Sshd) -> None:
    (server.home / "small.json").write_bytes(b"{}")
    read(open_source(f"shared:{server.home}/small.json"))
    logins = server.logins
    read(open_source(f"shared:{server.home}/small.json"))
    assert server.logins == logins


def test_session_options_are_disabled(server: sshd.Sshd) -> None:
    assert read(open_source(f"configured:{server.home}/trace.json.gz")) == TEXT


def test_unreadable_files(server: sshd.Sshd) -> None:
    assert refusal(f"shared:{server.home}/none.json") == "no such file there"
    assert refusal(f"shared:{server.home}/trace.json/below") == "no such file there"
    (server.home / "empty.json").touch()
    assert refusal(f"shared:{server.home}/empty.json") == "the file is empty"
    hidden = server.home / "hidden.json"
    hidden.write_bytes(TEXT[:1000])
    hidden.chmod(0)
    assert refusal(f"nobody:{hidden}") == "no permission to read it there"
    (server.home / "dangling.json").symlink_to("nowhere")
    assert refusal(f"shared:{server.home}/dangling.json") == "no such file there"
    closed = server.home / "closed"
    closed.mkdir(mode=0o700)
    (closed / "t.json").touch()
    for below in ("", "/", "/t.json"):
        assert refusal(f"nobody:{closed}{below}") == "no permission to read it there"


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("nokey", "nokey refused the login (publickey only)"),
        ("locked", "ssh needs a passphrase: load the key into ssh-agent"),
        ("behind_locked", "behind_locked cannot be reached: a jump host refused the login"),
        ("unknown", "the host key of unknown is not known yet; run ssh unknown in a terminal to accept it"),
        ("changed", "the host key of changed has changed: it may be another machine; run ssh changed for details"),
        ("silent", "silent does not answer: the connection timed out"),
        ("behind_nowhere", "your ssh configuration leads to the unknown host nowhere.invalid"),
        ("behind_nothing", "the jump host or proxy command of your ssh configuration ended (ProxyJump, ProxyCommand)"),
        ("refusing", "refused the connection: no ssh server listens there"),
        ("sftponly", "sftponly did not run the requested command (This service allows sftp connections only.)"),
    ],
)
def test_connection_failures(server: sshd.Sshd, host: str, said: str) -> None:
    assert said in refusal(f"{host}:trace.json")


def test_unknown_host(server: sshd.Sshd) -> None:
    assert refusal("nowhere.invalid:t.json") == "there is neither a host nor a local file named nowhere.invalid"


def test_missing_ssh_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal("box:t.json") == "needs the ssh command (OpenSSH client), which is not installed"


@pytest.mark.parametrize("ending", keep_some([".json", ".json.gz"], 1))
def test_lost_connection_is_resumed(server: sshd.Sshd, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file, logins = server.home / f"trace{ending}", server.logins
    source = open_source(f"cut:{file}")
    assert read(source) == TEXT
    assert source.problems == []
    assert source.consumed == source.total
    assert server.logins > logins + 1
    restart = SshStream.restart

    def change(stream: SshStream, script: str) -> str:
        os.utime(file, ns=(1, 1))
        return restart(stream, script)

    monkeypatch.setattr(SshStream, "restart", change)
    source = open_source(f"cut:{file}")
    assert TEXT.startswith(read(source))
    (cut,) = source.problems
    assert cut.example.endswith("; the rest of the file was not taken: it has changed since")


@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_lost_connection_keeps_the_received_part(server: sshd.Sshd, ending: str, cache_home: Path) -> None:
    file = server.home / f"trace{ending}"
    loaded = load_opened_trace(f"cut_off:{file}")
    trace = loaded.trace
    assert 500 < trace.counts.drawn < EVENTS * 0.9
    cut = next(problem for problem in trace.problems if problem.kind == CUT_CONNECTION)
    size = file.stat().st_size
    total = f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.1f} kB"
    assert re.match(rf"connection to cut_off lost at [0-9.,]+ of {re.escape(total)}; ", cut.example)
    assert [problem.count for problem in trace.problems] == [1]  # the truncated text is not counted again
    assert trace.names[trace.name[0]] == "op 0"
    loaded.cache_entry.close()
    assert list_cache(cache_home) == []  # an incomplete trace is not cached


def test_connection_lost_before_the_first_byte(server: sshd.Sshd) -> None:
    line = refusal(f"nothing:{server.home}/trace.json.gz")
    assert "the connection to nothing ended early" in line
    assert "before anything arrived" in line


@pytest.mark.long
async def test_reopening_uses_the_cache(server: sshd.Sshd) -> None:
    file = server.home / "again.json"
    file.write_bytes(TEXT)
    opening = SingleTraceOpener(f"shared:{file}")
    first, reports = await opened(opening)
    assert reports[0].phase == "connecting"
    last = reports[-1]
    assert (last.bytes, last.total, last.events) == (len(TEXT), len(TEXT), EVENTS)
    args = first.event(5).read_args()
    assert args is not None
    assert args["External id"] == 5
    again = SingleTraceOpener(f"shared:{file}")
    second, reports = await opened(again)
    assert max(progress.bytes for progress in reports) == 0
    same(first, second)
    same(first, load_opened_trace(str(file), cache=False).trace)
    assert load_opened_trace(f"shared:{file}").cached
    assert second.event(5).read_args() == args
    os.utime(file, ns=(1, 1))  # changed, with the same size
    assert not load_opened_trace(f"shared:{file}").cached
    opening.close()
    again.close()


async def test_cancel_ends_ssh_on_an_idle_connection(server: sshd.Sshd, cache_home: Path) -> None:
    others = server.clients()
    moved = asyncio.Event()
    opening = SingleTraceOpener(f"stuck:{server.home}/trace.json.gz")
    opening.start()
    task = asyncio.create_task(opening.load_trace(lambda progress: progress.phase == "reading" and moved.set()))
    await asyncio.wait_for(moved.wait(), 60)
    assert set(server.clients()) - set(others)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    server.wait_for_no_clients(others)
    assert list_cache(cache_home) == []


def test_other_file_closes_the_connection_at_once(server: sshd.Sshd) -> None:
    """Although a thread waits for more data, which never arrives."""
    (server.home / "prose.gz").write_bytes(
        gzip.compress(b"no trace at all " + random.Random(1).randbytes(600_000).hex().encode())
    )
    others = server.clients()
    with pytest.raises(TraceError, match="not a trace, but text that begins with: no trace at all"):
        load_opened_trace(f"drip:{server.home}/prose.gz")
    assert not set(server.clients()) - set(others)


def test_ssh_prompts_before_the_first_frame(server: sshd.Sshd) -> None:
    program = [sys.executable, "-m", "torchprof_tui", f"locked:{server.home}/trace.json.gz"]
    with Terminal(program, folder=ROOT) as terminal:
        terminal.wait_for("Enter passphrase for key")
        terminal.send("open sesame\r")
        terminal.wait_for("12,000 events", "CPU 1")
        terminal.send("q")
        assert terminal.wait_for_end() == 0


@pytest.fixture
def folder(server: sshd.Sshd) -> Path:
    """A folder with three traces and other files, among them a key_averages table."""
    folder = server.home / "runs of today"
    if not folder.exists():
        (folder / "step 2").mkdir(parents=True)
        for age, name in enumerate(
            ("new.json", "step 2/it's.json.gz", "old.json.zst", "notes.txt", "a\nb.json", "new.key_averages.json")
        ):
            (folder / name).write_bytes(PACK[".json.gz"](TEXT[:300_000]) if name.endswith("gz") else b"[]" * (age + 1))
            os.utime(folder / name, (1_700_000_000 - 1000 * age, 1_700_000_000 - 1000 * age))
    return folder


def test_folder_error_lists_its_traces(server: sshd.Sshd, folder: Path) -> None:
    with pytest.raises(FolderError) as caught:
        open_source(f"shared:{folder}")
    specs = [each.spec for each in caught.value.traces]
    assert specs == [f"shared:{folder}/{name}" for name in ("new.json", "step 2/it's.json.gz", "old.json.zst")]
    for each in caught.value.traces:
        status = Path(each.spec.removeprefix("shared:")).stat()
        assert (each.size, each.modified) == (status.st_size, status.st_mtime)
    assert refusal(f"shared:{server.folder}/bin").startswith("a folder, with no .json")


def test_info_lists_a_folder(server: sshd.Sshd, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", f"shared:{folder}/"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[-1] for line in lines] == [
        f"shared:{folder}/{name}" for name in ("new.json", "step 2/it's.json.gz", "old.json.zst")
    ]
    assert "2023-11-1" in lines[0]
    assert main(["info", "--json", f"shared:{folder}/"]) == 0
    listing = json.loads(capsys.readouterr().out)
    assert (listing["traces"][0]["bytes"], listing["traces"][0]["modified"]) == (2, 1_700_000_000)


@pytest.mark.long
async def test_folder_opens_the_start_screen(server: sshd.Sshd, folder: Path) -> None:
    opening = SingleTraceOpener(f"shared:{folder}")
    opening.start()
    app = TorchprofApp(opening)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.lanes_ready.wait()
        await pilot.pause()
        assert isinstance(app.screen, StartScreen)
        options = app.screen.query_one(OptionList)
        lines = [str(option.prompt).split("  ")[1] for option in options.options[1:4]]
        assert lines == ["new.json", "step 2/it's.json.gz", "old.json.zst"]
        app.lanes_ready.clear()
        await pilot.press("down", "enter")
        await app.lanes_ready.wait()
        await pilot.pause()
        assert type(app.screen).__name__ == "ExplorerScreen"


async def test_failure_is_reported_in_one_line(server: sshd.Sshd) -> None:
    opening = SingleTraceOpener(f"shared:{server.home}/none.json")
    opening.start()
    with pytest.raises(LoadError, match=r"none\.json: no such file there"):
        await opening.load_trace(lambda _: None)


@pytest.mark.long
def test_commands_accept_ssh_paths(server: sshd.Sshd, capsys: pytest.CaptureFixture[str]) -> None:
    spec = f"shared:{server.home}/trace.json.gz"
    assert main(["info", "--json", spec]) == 0
    assert json.loads(capsys.readouterr().out)["drawn"] == EVENTS
    assert main(["check", "--json", spec]) == 0
