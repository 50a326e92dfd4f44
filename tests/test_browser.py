"""Serve the app to a browser: textual's driver over pipes, and textual-serve with a real browser, if installed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.helpers.command_line import PROGRAM
from tests.helpers.long_run import keep_some
from torchprof_samples import find

SAMPLE = find("matmul_add_64_cold_eager").path
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

WEB_DRIVER = {
    "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
    "TEXTUAL_COLOR_SYSTEM": "truecolor",
    "COLUMNS": "120",
    "ROWS": "40",
}
"""What textual-serve sets for the program that it starts."""

SHOWN = os.environ.get("BROWSER_PICTURE")
"""Where to keep the picture of the page, for a look."""

MIN_PICTURE_BYTES = 30_000
"""Of a page that shows lanes, as PNG; an empty one takes less than 10 kB."""

SERVE = """
import sys
from textual_serve.server import Server
port, *command = sys.argv[1:]
Server(" ".join(command), host="127.0.0.1", port=int(port)).serve()
"""


def read_packets(stream: IO[bytes], until: bytes) -> bytes:
    """Read packets (kind, length, payload) until a text has been drawn, or to the end; return all payloads."""
    drawn = b""
    while until not in drawn or not until:
        if not stream.read(1):
            break
        drawn += stream.read(int.from_bytes(stream.read(4), "big"))
    return drawn


def start(*words: str | Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **WEB_DRIVER, **environment},
    )


def send(process: subprocess.Popen[bytes], kind: bytes, payload: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(kind + len(payload).to_bytes(4, "big") + payload)
    process.stdin.flush()


@pytest.mark.long
@pytest.mark.parametrize("end", keep_some(["a closed page", "the key q"], 1))
def test_the_app_talks_to_a_server_over_pipes(end: str) -> None:
    process = start(SAMPLE, "--no-cache", TERM="dumb")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"__GANGLION__\n"  # nothing is printed before the driver's first line
    read_packets(process.stdout, b"stream 7")
    if end == "the key q":
        send(process, b"D", b"q")
    else:
        send(process, b"M", b'{"type": "quit"}')
    assert b'{"type": "exit"}' in read_packets(process.stdout, b"")
    assert process.stderr.read() == b""
    assert process.wait(60) == 0


def find_free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def browse(url: str, folder: Path) -> AsyncIterator[Any]:
    """Open a page in a headless browser; yield a function that calls a method of its debugging protocol."""
    aiohttp = pytest.importorskip("aiohttp")
    assert BROWSER is not None
    port = find_free_port()
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,800", f"--user-data-dir={folder}"]
    browser = subprocess.Popen(
        [BROWSER, *options, f"--remote-debugging-port={port}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as session:
            pages = await fetch_json(session, f"http://127.0.0.1:{port}/json")
            page = next(page for page in pages if page["type"] == "page")
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as connection:
                count = 0

                async def call(method: str, **parameters: object) -> Any:
                    nonlocal count
                    count += 1
                    await connection.send_json({"id": count, "method": method, "params": parameters})
                    while (answer := await connection.receive_json()).get("id") != count:
                        pass
                    return answer["result"]

                await call("Page.navigate", url=url)
                yield call
    finally:
        browser.kill()
        browser.wait()


async def fetch_json(session: Any, url: str) -> Any:
    """Fetch from a server that may just be starting."""
    for _ in range(600):
        with contextlib.suppress(OSError):
            async with session.get(url) as response:
                return await response.json(content_type=None)
        await asyncio.sleep(0.1)
    raise AssertionError(f"{url} does not answer")


async def wait_for_script(call: Any, expression: str) -> None:
    for _ in range(600):
        answer = await call("Runtime.evaluate", expression=expression, returnByValue=True)
        if answer["result"].get("value"):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"never true on the page: {expression}")


@pytest.mark.long
@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
async def test_a_browser_shows_the_app_and_sends_keys(tmp_path: Path) -> None:
    pytest.importorskip("textual_serve")
    port = find_free_port()
    log = tmp_path / "log.txt"
    command = f"{sys.executable} -m torchprof_tui {SAMPLE} --no-cache --log {log}"
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(port), command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        await wait_for_server(port)
        async with browse(f"http://127.0.0.1:{port}", tmp_path / "browser") as call:
            await wait_for_log(log, "lanes on screen")
            await wait_for_script(call, "document.querySelector('.xterm-screen') !== null")
            picture = base64.b64decode((await call("Page.captureScreenshot"))["data"])
            assert len(picture) > MIN_PICTURE_BYTES
            if SHOWN:
                Path(SHOWN).write_bytes(picture)
            await call("Runtime.evaluate", expression="document.querySelector('.xterm-helper-textarea').focus()")
            for kind in ("keyDown", "keyUp"):
                await call("Input.dispatchKeyEvent", type=kind, key="q", text="q" if kind == "keyDown" else "")
            await wait_for_log(log, "end status=0")
    finally:
        server.terminate()
        server.wait()


async def wait_for_server(port: int) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the server does not listen")


async def wait_for_log(log: Path, phase: str) -> None:
    for _ in range(600):
        if log.is_file() and phase in log.read_text(encoding="utf-8"):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{phase} is not in {log.read_text(encoding='utf-8') if log.is_file() else 'the log'}")
