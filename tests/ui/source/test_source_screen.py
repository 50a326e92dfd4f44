"""The source screen over ssh: a real sshd and ssh client."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.helpers import sshd
from tests.helpers.explorer_app import event_of, explorer, settled, until
from tests.helpers.remote_traces import opened
from tests.helpers.trace_builder import cpu, kernel, python, runtime, step
from torchprof_tui.analysis.dispatch.source_line import SourceLine
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.ui.explorer.panels.chain_panel import ChainPanel
from torchprof_tui.ui.source.source_screen import SourceScreen

pytestmark = [
    pytest.mark.skipif(not (sshd.SSHD and sshd.SSH), reason="needs OpenSSH's server and client"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    with sshd.running(tmp_path_factory.mktemp("sshd")) as server:
        entries = [
            step(0, 0, 100),
            python("train.py(2): forward", 5, 80),
            cpu("aten::mm", 10, 60),
            runtime("cudaLaunchKernel", 20, 5, corr=1),
            kernel("gemm", 30, 50, corr=1),
        ]
        (server.home / "runs").mkdir()
        (server.home / "runs" / "t.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": entries}))
        (server.home / "train.py").write_text("import torch\ndef forward(x):\n    return x\n")
        yield server


@pytest.mark.long
async def test_enter_reads_the_file_on_the_host_of_the_trace(server: sshd.Sshd) -> None:
    opening = SingleTraceOpener(f"shared:{server.home}/runs/t.json", cache=False)
    shown, _ = await opened(opening)
    try:
        async with explorer(shown, (120, 40)) as (screen, pilot):
            screen.view_state.select(event_of(shown, "gemm"))
            screen._refresh_widgets()
            await pilot.press("l")
            await until(pilot, lambda: screen.query_one(ChainPanel).chain is not None)
            await pilot.press("down", "enter")
            await settled(pilot)
            text = "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())
            assert "▶2  def forward(x):" in text
            assert f"shared:{server.home}/train.py" in text
    finally:
        opening.close()


@pytest.mark.long
async def test_closing_the_screen_ends_the_connection(server: sshd.Sshd) -> None:
    opening = SingleTraceOpener(f"shared:{server.home}/runs/t.json", cache=False)
    shown, _ = await opened(opening)
    line = SourceLine("frame", "train.py", 2, "forward", "train.py(2): forward")
    try:
        async with explorer(shown, (120, 40)) as (_, pilot):
            before = set(server.clients())
            pilot.app.push_screen(SourceScreen(line, "silent:runs/t.json", lambda: 0))
            await until(pilot, lambda: bool(set(server.clients()) - before))
            await pilot.press("escape")
            await until(pilot, lambda: not set(server.clients()) - before)
            await settled(pilot)
    finally:
        opening.close()
