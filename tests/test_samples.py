"""The traces that ship: there, small, described, and found by name."""

from __future__ import annotations

import pytest

from tests.helpers.paths import SAMPLES as FOLDER
from tools.record_samples import RECORDINGS
from torchprof_samples import SAMPLES, find


def test_every_sample_is_listed_and_every_listed_one_is_there() -> None:
    there = {path.name for path in FOLDER.iterdir() if path.suffix == ".gz" or next(path.glob("*.gz"), None)}
    assert {sample.path.name for sample in SAMPLES} == there
    assert len(SAMPLES) >= 6


def test_together_they_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*.gz")) < 2_000_000


def test_one_script_records_them_all() -> None:
    assert [recording.name for recording in RECORDINGS] == [sample.name for sample in SAMPLES]


def test_the_folders_readme_says_the_same() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for sample in SAMPLES:
        assert f"| `{sample.name}` | {sample.ran} | {sample.look} |" in readme


def test_a_beginning_is_enough_where_only_one_has_it() -> None:
    assert find("linear").name == "linear_eager"
    assert find("attention_naive").name == "attention_naive"
    for name, said in (("attention", "several"), ("", "no sample"), ("bert", "no sample")):
        with pytest.raises(LookupError, match=said):
            find(name)
