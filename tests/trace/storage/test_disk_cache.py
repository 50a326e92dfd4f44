"""The cache: found again, never stale, bounded, safe to share, and never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchprof_tui.trace.storage import disk_cache


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(folder))
    return folder


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_text("[]")
    return path


def fill(spec: Path, text: str = "columns") -> disk_cache.CacheEntry:
    place = disk_cache.find_or_create_entry(str(spec))
    (place.folder / "columns").write_text(text)
    place.publish()
    return place


def test_what_was_published_is_found_again(trace: Path) -> None:
    first = disk_cache.find_or_create_entry(str(trace))
    assert not first.ready
    (first.folder / "columns").write_text("here")
    first.publish()
    first.close()
    again = disk_cache.find_or_create_entry(str(trace))
    assert again.ready
    assert (again.folder / "columns").read_text() == "here"


def test_a_draft_that_is_not_published_leaves_nothing(trace: Path, home: Path) -> None:
    place = disk_cache.find_or_create_entry(str(trace))
    (place.folder / "columns").write_text("half")
    assert place.folder.parent == home
    place.close()
    place.close()
    assert list(home.iterdir()) == []
    assert not disk_cache.find_or_create_entry(str(trace)).ready


@pytest.mark.parametrize("change", ["size", "mtime", "content", "path"])
def test_another_file_is_not_taken_for_it(trace: Path, change: str) -> None:
    fill(trace).close()
    status = trace.stat()
    if change == "size":
        trace.write_text("[ ]")
        os.utime(trace, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif change == "content":
        text = trace.read_bytes()
        trace.write_bytes(text[:-1] + b" ")
        while trace.stat().st_ctime_ns == status.st_ctime_ns or trace.stat().st_mtime_ns != status.st_mtime_ns:
            os.utime(trace, ns=(status.st_atime_ns, status.st_mtime_ns))  # the kernel's clock ticks every few ms
    elif change == "mtime":
        os.utime(trace, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    else:
        moved = trace.with_name("other.json")
        trace.rename(moved)
        trace = moved
    assert not disk_cache.find_or_create_entry(str(trace)).ready


def test_another_version_of_the_program_builds_its_own(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(trace).close()
    monkeypatch.setattr(disk_cache, "__version__", "0.0.0")
    assert not disk_cache.find_or_create_entry(str(trace)).ready


def test_a_link_and_a_relative_path_are_the_same_file(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(trace).close()
    link = trace.with_name("link.json")
    link.symlink_to(trace)
    monkeypatch.chdir(trace.parent)
    assert disk_cache.find_or_create_entry(str(link)).ready
    assert disk_cache.find_or_create_entry(trace.name).ready


def test_a_file_that_changed_while_it_was_read_is_not_kept(trace: Path) -> None:
    place = disk_cache.find_or_create_entry(str(trace))
    trace.write_text("[1, 2]")
    place.publish()
    assert not place.ready
    place.close()
    assert not disk_cache.find_or_create_entry(str(trace)).ready
    assert disk_cache.cache_usage() == (0, 0)


def test_two_openers_at_once_both_get_theirs(trace: Path) -> None:
    slow, fast = disk_cache.find_or_create_entry(str(trace)), disk_cache.find_or_create_entry(str(trace))
    assert slow.folder != fast.folder
    for place in (fast, slow):
        (place.folder / "columns").write_text("same")
        place.publish()
    assert fast.ready
    assert (slow.folder / "columns").read_text() == "same"
    slow.close()
    assert (fast.folder / "columns").read_text() == "same"
    assert disk_cache.cache_usage()[0] == 1


def test_a_discarded_one_is_built_anew(trace: Path) -> None:
    place = fill(trace)
    place.close()
    found = disk_cache.find_or_create_entry(str(trace))
    found.discard()
    assert not disk_cache.find_or_create_entry(str(trace)).ready


def test_a_pipe_is_never_kept(home: Path) -> None:
    place = disk_cache.find_or_create_entry("-")
    assert place.key is None
    place.publish()
    assert not place.ready
    place.close()
    assert list(home.iterdir()) == []


def test_turned_off_it_neither_reads_nor_writes(trace: Path, home: Path) -> None:
    fill(trace).close()
    before = sorted(home.iterdir())
    place = disk_cache.find_or_create_entry(str(trace), cache=False)
    assert not place.ready
    assert home not in place.folder.parents
    place.publish()
    folder = place.folder
    place.close()
    assert not folder.exists()
    assert sorted(home.iterdir()) == before


def test_a_folder_that_cannot_be_written_only_costs_the_cache(trace: Path, home: Path) -> None:
    home.write_text("a file lies where the folder should be")
    place = disk_cache.find_or_create_entry(str(trace))
    assert place.folder.is_dir()
    place.publish()
    assert not place.ready
    place.close()
    assert disk_cache.prune_cache() == 0
    assert disk_cache.clear_cache() == (0, 0)


def test_the_oldest_go_first(tmp_path: Path) -> None:
    for age in (3, 1, 2):
        path = tmp_path / f"{age}.json"
        path.write_text("[]")
        place = fill(path, "x" * 1000)
        os.utime(place.folder / "lock", (time.time() - age, time.time() - age))
        place.close()
    assert disk_cache.prune_cache(limit=2500) == 1000
    ready = []
    for age in (1, 2, 3):
        place = disk_cache.find_or_create_entry(str(tmp_path / f"{age}.json"))
        ready.append(place.ready)
        place.close()
    assert ready == [True, True, False]


def test_what_somebody_has_open_stays(trace: Path) -> None:
    place = fill(trace)
    other = (
        "from torchprof_tui.trace.storage import disk_cache as cache; import sys; "
        "print(cache.prune(limit=0), *cache.clear(), cache.find(sys.argv[1]).ready)"
    )
    command = [sys.executable, "-c", other, str(trace)]
    in_use = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert in_use == ["0", "0", "0", "True"]
    place.close()
    free = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert free == ["7", "0", "0", "False"]


def test_drafts_of_the_dead_are_swept_those_of_the_living_are_not(trace: Path, home: Path) -> None:
    living = disk_cache.find_or_create_entry(str(trace))
    dead = disk_cache.create_draft("gone")
    assert dead.lock_descriptor is not None
    os.close(dead.lock_descriptor)  # what the kernel does for a process that is killed
    dead.lock_descriptor = None
    long_ago = time.time() - 2 * disk_cache.ORPHAN_SECONDS
    for place in (living, dead):
        os.utime(place.folder / "lock", (long_ago, long_ago))
    disk_cache.prune_cache()
    assert living.folder.exists()
    assert not dead.folder.exists()


def test_nothing_but_our_own_folders_is_touched(home: Path) -> None:
    (home / "somebody-elses").mkdir(parents=True)
    (home / "somebody-elses" / "thesis.tex").write_text("years of work")
    (home / "notes.txt").write_text("more")
    disk_cache.prune_cache(limit=0)
    disk_cache.clear_cache()
    assert (home / "somebody-elses" / "thesis.tex").exists()
    assert (home / "notes.txt").exists()


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TORCHPROF_TUI_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert disk_cache.cache_folder() == tmp_path / "torchprof-tui"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the standard says: ignore
    monkeypatch.setenv("HOME", str(tmp_path))
    assert disk_cache.cache_folder() == tmp_path / ".cache" / "torchprof-tui"
