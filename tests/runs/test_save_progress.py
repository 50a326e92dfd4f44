"""The progress of a save: bytes so far, bytes expected, time left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchprof_tui.runs.status_channel import SaveProgress, StatusMessage

MEGA = 10**6


def message(phase: str = "exporting", **details: Any) -> StatusMessage:
    return StatusMessage(0.0, 0, phase, **details)


def grow(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        file.truncate(size)


def test_while_torch_writes_the_file_is_measured(tmp_path: Path) -> None:
    raw = tmp_path / "raw.json"
    progress = SaveProgress()
    progress.update(message(raw=str(raw), expected=400 * MEGA, cycle=1))
    assert progress.text(0.0) == "saving: 0 of about 400 MB"
    grow(raw, 20 * MEGA)
    assert progress.text(100.0) == "saving: 20 of about 400 MB"  # its rate is not known yet
    grow(raw, 120 * MEGA)
    assert progress.text(106.0) == "saving: 120 of about 400 MB, 14 s left"
    assert progress.text(160.0) == "saving: 120 of about 400 MB, 2 min left"
    grow(raw, 410 * MEGA)
    assert progress.text(180.0) == "saving: 410 of about 400 MB, nearly done"


def test_a_file_that_is_not_complete_has_another_name(tmp_path: Path) -> None:
    grow(tmp_path / "raw.json.tmp", 3_400_000)
    progress = SaveProgress()
    progress.update(message(raw=str(tmp_path / "raw.json"), expected=None))
    assert progress.text(0.0) == "saving: 3.4 MB written"


def test_compressing_begins_a_rate_of_its_own() -> None:
    progress = SaveProgress()
    progress.update(message(raw="/nonexistent", expected=400 * MEGA, cycle=1))
    progress.update(message(compressed=0, total=200 * MEGA, cycle=1))
    assert progress.text(10.0) == "compressing: 0 of 200 MB"
    progress.update(message(compressed=50 * MEGA, total=200 * MEGA, cycle=1))
    assert progress.text(11.0) == "compressing: 50 of 200 MB"
    progress.update(message(compressed=100 * MEGA, total=200 * MEGA, cycle=1))
    assert progress.text(13.0) == "compressing: 100 of 200 MB, 2 s left"
    progress.update(message("tabulating"))
    assert progress.text(14.0) == ""  # that of a small trace needs no line
    assert progress.text(26.0) == "torch's table: 12 s so far, ctrl+c skips it"
    progress.update(message("done"))
    assert progress.text(27.0) == ""
