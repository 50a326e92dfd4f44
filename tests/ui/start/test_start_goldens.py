"""Goldens at six sizes: the start screen with recent traces and runs, its guide, and a load that failed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.helpers.explorer_app import settled
from tests.helpers.golden_files import at_every_size, cases_at_every_size, compare_golden, text_on_screen
from tests.helpers.long_run import keep_some
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.trace.specs.address import ListedTrace
from torchprof_tui.ui.start import recent_traces, start_screen
from torchprof_tui.ui.start.recent_traces import RecentTrace
from torchprof_tui.ui.start.start_screen import StartScreen

FOLDER = Path("/home/ada/training")
RUN = FOLDER / "torchprof_runs"
TRAIN_TRACE = RUN / "train-20260102-030405" / "train.pt.trace.json.gz"


@pytest.fixture(autouse=True)
def known_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """List the same traces on every machine: a run, its ranks, a file elsewhere, and one on another host."""
    now = time.time()
    recent = [
        RecentTrace(str(TRAIN_TRACE), now - 600, 2_300_000),
        RecentTrace("gpu-box:runs/ddp/rank*.pt.trace.json.gz", now - 5 * 3600, None),
        RecentTrace("/data/experiments/a-rather-long-name-of-a-trace-of-an-ablation.json", now - 3 * 86400, 48 << 20),
    ]
    local = [
        ListedTrace(str(TRAIN_TRACE), 2_300_000, now - 660),
        *(
            ListedTrace(f"{RUN}/ddp-20260101-000000/ddp.rank{k}.pt.trace.json.gz", 3_400_000, now - 9e4)
            for k in range(4)
        ),
        ListedTrace(str(FOLDER / "notes" / "trace.json"), 812, now - 80 * 86400),
    ]
    command = "train.py --config configs/small.yaml --batch-size 32 --workers 4 --epochs 1 --device cuda"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(start_screen, "__version__", "1.2.3")
    monkeypatch.setattr(recent_traces, "list_recent_traces", lambda: recent)
    monkeypatch.setattr(recent_traces, "find_traces", lambda folder, _: local if folder == FOLDER else [])
    monkeypatch.setattr(recent_traces, "read_commands", lambda _: {str(TRAIN_TRACE): f"python {command}"})


@cases_at_every_size("name,keys", [("start", ()), ("start-guide", ("i",)), ("start-last", ("end",))])
async def test_start_screen(name: str, keys: tuple[str, ...], size: tuple[int, int]) -> None:
    app = TorchprofApp()
    async with app.run_test(size=size) as pilot:
        await app.switch_screen(StartScreen(folder=FOLDER))
        await settled(pilot)
        await pilot.press(*keys)
        await settled(pilot)
        drawn = text_on_screen(app.screen)
    compare_golden(name, size, drawn)


@at_every_size
@pytest.mark.parametrize(
    ("name", "text"), keep_some([("failed-missing", None), ("failed-other-json", '{"weights": [1, 2]}')], 1)
)
async def test_a_failed_load(
    name: str, text: str | None, size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("config.json").write_text(text, encoding="utf-8")
    opener = SingleTraceOpener("config.json", cache=False)
    opener.start()
    app = TorchprofApp(opener)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        drawn = text_on_screen(app.screen)
    compare_golden(name, size, drawn)
