"""The recording screen while a run asks, and while it saves."""

from __future__ import annotations

import pytest

from tests.helpers.golden_files import SIZES
from tests.helpers.long_run import keep_some
from tests.ui.record.test_record_screen import alone, output, shown, started, until
from torchprof_tui.app import TorchprofApp

__all__ = ["alone"]  # a fixture


ASKING = """
import json, os, time
channel = os.open(os.environ["TORCHPROF_STATUS"], os.O_WRONLY)
def say(**fields):
    os.write(channel, json.dumps({"time": time.time(), "pid": 1, "rank": 0, **fields}).encode() + b"\\n")
say(phase="asking", choices={"y": "record 3 steps, about 2,100 MB", "f": "record 1 step, about 700 MB", "n": "stop"})
print("answer", os.read(os.open(os.environ["TORCHPROF_ANSWERS"], os.O_RDONLY), 1), flush=True)
say(phase="recording", step=1, of=1)
time.sleep(60)
"""


@pytest.mark.parametrize("size", keep_some(map(pytest.param, SIZES[:5]), 1))
async def test_a_large_recording_asks_and_a_key_answers(size: tuple[int, int]) -> None:
    app = TorchprofApp()
    async with app.run_test(size=size) as pilot:
        screen = await started(pilot, ASKING)
        await until(pilot, lambda: screen.has_class("asked"))
        await pilot.pause()
        text = " ".join(strip.text for strip in screen._compositor.render_strips())
        for word in ("1 record 3 steps, about 2,100 MB", "2 record 1 step, about 700 MB", "3 stop"):
            assert word in " ".join(text.split())
        assert "answer" not in output(app)
        await pilot.press("n", "4", "2", "1")  # only the first answer counts
        await until(pilot, lambda: "answer b'f'" in output(app))
        assert not screen.has_class("asked")
        await until(pilot, lambda: "recording, step 1 of 1" in shown(app, "#running-phase"))


@pytest.mark.long
async def test_saving_shows_how_much_is_written_of_how_much() -> None:
    saving = (
        ASKING.partition('say(phase="asking"')[0]
        + """
with open("raw.json", "wb") as file:
    file.truncate(120_000_000)
say(phase="exporting", raw=os.path.abspath("raw.json"), expected=400_000_000)
time.sleep(60)
"""
    )
    app = TorchprofApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await started(pilot, saving)
        await until(pilot, lambda: "saving: 120 of about 400 MB, " in shown(app, "#running-phase"))
        await until(pilot, lambda: " left" in shown(app, "#running-phase"))
