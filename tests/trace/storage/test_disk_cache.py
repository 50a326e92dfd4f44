"""Test the disk cache: entries are found again, never stale, bounded in size, safe to share, and optional."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.helpers.command_line import read_json_answer
from torchprof_tui.cli import main
from torchprof_tui.trace.storage import disk_cache

OWN_BYTES = len("24 hexadecimal digits and") + 8 + len(disk_cache.LOCK_TEXT)
"""Bytes of the files that bind an entry to its key, and mark it as this program's."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The cache folder of a test. Once all entries are closed, no test may leave a descriptor open."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(folder))
    kept, before = disk_cache.list_open_entries(), count_descriptors()
    yield folder
    disk_cache.close_entries(kept)
    assert count_descriptors() <= before  # a descriptor of an earlier test may have been collected meanwhile


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_text("[]")
    return path


def fill(spec: Path, text: str = "columns") -> disk_cache.CacheEntry:
    entry = disk_cache.find_or_create_entry(str(spec))
    (entry.folder / "columns").write_text(text)
    entry.publish()
    return entry


def test_a_published_entry_is_found_again(trace: Path) -> None:
    first = disk_cache.find_or_create_entry(str(trace))
    assert not first.ready
    (first.folder / "columns").write_text("here")
    first.publish()
    first.close()
    again = disk_cache.find_or_create_entry(str(trace))
    assert again.ready
    assert (again.folder / "columns").read_text() == "here"


def test_all_that_is_made_is_of_the_user_alone(trace: Path, home: Path) -> None:
    home = home / "below"  # another folder has to be made first
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHPROF_TUI_CACHE", str(home))
        umask = os.umask(0)
        try:
            entry, sketches = fill(trace), disk_cache.create_sketches_folder()
        finally:
            os.umask(umask)
        assert entry.ready
        assert sketches is not None
        assert disk_cache.create_sketches_folder() == sketches
        made = (home, entry.folder, sketches, entry.folder / "lock", sketches / "lock", home / disk_cache.TAG_FILE)
        assert [path.stat().st_mode & 0o777 for path in made] == [0o700] * 3 + [0o600] * 3
        assert (sketches / "lock").read_bytes() == disk_cache.LOCK_TEXT


def test_a_draft_that_is_not_published_is_removed(trace: Path, home: Path) -> None:
    entry = disk_cache.find_or_create_entry(str(trace))
    (entry.folder / "columns").write_text("half")
    assert entry.folder.parent == home
    entry.close()
    entry.close()
    assert [path.name for path in home.iterdir()] == [disk_cache.TAG_FILE]
    assert not disk_cache.find_or_create_entry(str(trace)).ready


@pytest.mark.parametrize("change", ["size", "mtime", "content", "path"])
def test_a_changed_file_is_not_found(trace: Path, change: str) -> None:
    fill(trace).close()
    status = trace.stat()
    if change == "size":
        trace.write_text("[ ]")
        os.utime(trace, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif change == "content":
        text = trace.read_bytes()
        trace.write_bytes(text[:-1] + b" ")
        while trace.stat().st_ctime_ns == status.st_ctime_ns or trace.stat().st_mtime_ns != status.st_mtime_ns:
            os.utime(trace, ns=(status.st_atime_ns, status.st_mtime_ns))  # the kernel updates its clock every few ms
    elif change == "mtime":
        os.utime(trace, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    else:
        moved = trace.with_name("other.json")
        trace.rename(moved)
        trace = moved
    assert not disk_cache.find_or_create_entry(str(trace)).ready


def test_another_version_of_the_program_does_not_find_it(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_file_that_changed_while_it_was_read_is_not_published(trace: Path) -> None:
    entry = disk_cache.find_or_create_entry(str(trace))
    trace.write_text("[1, 2]")
    entry.publish()
    assert not entry.ready
    entry.close()
    assert not disk_cache.find_or_create_entry(str(trace)).ready
    assert disk_cache.cache_usage() == (0, 0)


def test_two_processes_may_build_the_same_trace(trace: Path) -> None:
    slow, fast = disk_cache.find_or_create_entry(str(trace)), disk_cache.find_or_create_entry(str(trace))
    assert slow.folder != fast.folder
    for entry in (fast, slow):
        (entry.folder / "columns").write_text("same")
        entry.publish()
    assert fast.ready
    assert (slow.folder / "columns").read_text() == "same"
    slow.close()
    assert (fast.folder / "columns").read_text() == "same"
    assert disk_cache.cache_usage()[0] == 1


def test_a_discarded_entry_is_not_found(trace: Path) -> None:
    entry = fill(trace)
    entry.close()
    again = disk_cache.find_or_create_entry(str(trace))
    again.discard()
    assert not disk_cache.find_or_create_entry(str(trace)).ready


def test_a_pipe_is_never_published(home: Path) -> None:
    entry = disk_cache.find_or_create_entry("-")
    assert entry.key is None
    entry.publish()
    assert not entry.ready
    entry.close()
    assert [path.name for path in home.iterdir()] == [disk_cache.TAG_FILE]


def test_a_cache_that_is_turned_off_is_neither_read_nor_written(trace: Path, home: Path) -> None:
    fill(trace).close()
    before = sorted(home.iterdir())
    entry = disk_cache.find_or_create_entry(str(trace), cache=False)
    assert not entry.ready
    assert home not in entry.folder.parents
    entry.publish()
    folder = entry.folder
    entry.close()
    assert not folder.exists()
    assert sorted(home.iterdir()) == before


def test_without_a_writable_cache_folder_traces_still_open(trace: Path, home: Path) -> None:
    home.write_text("a file in place of the folder")
    entry = disk_cache.find_or_create_entry(str(trace))
    assert entry.folder.is_dir()
    entry.publish()
    assert not entry.ready
    entry.close()
    assert disk_cache.prune_cache() == 0
    assert disk_cache.clear_cache() == (0, 0)


def test_the_oldest_are_removed_first(tmp_path: Path) -> None:
    for age in (3, 1, 2):
        path = tmp_path / f"{age}.json"
        path.write_text("[]")
        entry = fill(path, "x" * 1000)
        os.utime(entry.folder / "lock", (time.time() - age, time.time() - age))
        entry.close()
    assert disk_cache.prune_cache(limit=2500) == 1000 + OWN_BYTES
    assert disk_cache.prune_cache(limit=2 * (1000 + OWN_BYTES)) == 0  # exactly as large as it may be
    ready = []
    for age in (1, 2, 3):
        entry = disk_cache.find_or_create_entry(str(tmp_path / f"{age}.json"))
        ready.append(entry.ready)
        entry.close()
    assert ready == [True, True, False]


def test_an_entry_that_is_opened_again_is_no_longer_the_oldest(tmp_path: Path) -> None:
    paths = [tmp_path / "opened again.json", tmp_path / "opened once.json"]
    for age, path in zip((7200, 3600), paths, strict=True):
        path.write_text("[]")
        entry = fill(path, "x" * 1000)
        os.utime(entry.folder / "lock", (time.time() - age, time.time() - age))
        entry.close()
    disk_cache.find_or_create_entry(str(paths[0])).close()
    assert disk_cache.prune_cache(limit=1500) == 1000 + OWN_BYTES
    assert [disk_cache.find_or_create_entry(str(path)).ready for path in paths] == [True, False]


def test_an_entry_that_another_process_has_open_is_not_removed(trace: Path) -> None:
    entry = fill(trace)
    other_process = (
        "from torchprof_tui.trace.storage import disk_cache as cache; import sys; "
        "print(cache.prune_cache(limit=0), *cache.clear_cache(), cache.find_or_create_entry(sys.argv[1]).ready)"
    )
    command = [sys.executable, "-c", other_process, str(trace)]
    in_use = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert in_use == ["0", "0", "0", "True"]
    entry.close()
    free = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert free == [str(7 + OWN_BYTES), "0", "0", "False"]


def test_only_orphaned_drafts_are_removed(trace: Path, home: Path) -> None:
    locked = disk_cache.find_or_create_entry(str(trace))
    orphaned = disk_cache.create_draft("gone")
    assert orphaned.lock_descriptor is not None
    os.close(orphaned.lock_descriptor)  # as the kernel does for a process that is killed
    orphaned.lock_descriptor = None
    long_ago = time.time() - 2 * disk_cache.ORPHAN_SECONDS
    spec = trace.with_name("old.json")
    spec.write_text("[]")
    old = fill(spec)
    old.close()
    for entry in (locked, orphaned, old):
        os.utime(entry.folder / "lock", (long_ago, long_ago))
    disk_cache.prune_cache()
    assert [entry.folder.exists() for entry in (locked, orphaned, old)] == [True, False, True]


@pytest.mark.parametrize(("age", "is_kept"), [(-1.1, False), (-0.9, True), (0.9, True), (1.1, False)])
def test_a_draft_is_orphaned_an_hour_before_or_after_its_last_use(age: float, is_kept: bool) -> None:
    draft = disk_cache.create_draft("gone")
    assert draft.lock_descriptor is not None
    os.close(draft.lock_descriptor)
    draft.lock_descriptor = None
    used = time.time() - age * disk_cache.ORPHAN_SECONDS
    os.utime(draft.folder / "lock", (used, used))
    assert bool(disk_cache.prune_cache()) is not is_kept
    assert draft.folder.exists() is is_kept
    assert disk_cache.cache_usage() == (0, 0)
    removed, freed = disk_cache.clear_cache()  # a draft is no trace
    assert (removed, bool(freed)) == (0, is_kept)


def test_the_size_of_an_entry_is_that_of_its_files_and_folders_not_of_what_links_point_to(
    tmp_path: Path, trace: Path
) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "file").write_bytes(b"x" * 100_000)
    entry = disk_cache.find_or_create_entry(str(trace))
    (entry.folder / "sub" / "sub").mkdir(parents=True)
    (entry.folder / "sub" / "sub" / "columns").write_bytes(b"x" * 500)
    (entry.folder / "link to a file").symlink_to(tmp_path / "large" / "file")
    (entry.folder / "link to a folder").symlink_to(tmp_path / "large")
    entry.publish()
    size = sum(path.lstat().st_size for path in entry.folder.rglob("*"))
    assert 500 < size < 100_000
    assert disk_cache.cache_usage() == (1, size)


def test_an_entry_is_open_until_it_is_closed(trace: Path) -> None:
    entry = disk_cache.find_or_create_entry(str(trace))
    assert entry in disk_cache.list_open_entries()
    disk_cache.close_entries(keep=disk_cache.list_open_entries())
    assert entry in disk_cache.list_open_entries()
    disk_cache.close_entries(disk_cache.list_open_entries() - {entry})
    assert entry not in disk_cache.list_open_entries()
    assert not entry.folder.exists()


def write_strange_things(folder: Path) -> dict[str, str]:
    """Write what an earlier version removed, and some that resembles an entry; return the text of each file."""
    texts = {
        "models/lock": "",
        "models/weights.bin": "weeks of training",
        "thesis/lock": "",
        "thesis/thesis.tex": "years of work",
        "0123456789abcdef01234567/lock": "",
        "0123456789abcdef01234567/meta.json": "{}",
        "sketches/lock": "",
        "sketches/face.png": "a picture",
        ".draft-letter/lock": "pid 1",
        ".draft-letter/letter.txt": "Dear editor",
        "0123456789abcdef0123456/lock": disk_cache.LOCK_TEXT.decode(),  # a digit less than a key
        "0123456789abcdef0123456g/lock": disk_cache.LOCK_TEXT.decode(),
        "lock": "",
        "notes.txt": "more",
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        os.utime((folder / name).parent, (0, 0))
        os.utime(folder / name, (0, 0))  # orphaned long ago
    return texts


def read_texts(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def remove_everything(trace: Path) -> None:
    fill(trace).close()
    disk_cache.prune_cache(limit=0)
    fill(trace).close()
    disk_cache.clear_cache()


def test_a_folder_that_holds_other_things_is_no_cache(trace: Path, home: Path) -> None:
    texts = write_strange_things(home)
    entry = fill(trace)
    assert not entry.ready
    assert home not in entry.folder.parents
    entry.close()
    remove_everything(trace)
    assert read_texts(home) == texts
    refusal = disk_cache.explain_refused_folder() or ""
    assert refusal.startswith(f"{home}: holds other things")
    assert disk_cache.cache_usage() == (0, 0)


@pytest.mark.parametrize("is_default", [True, False])
def test_only_entries_are_removed_from_a_cache(
    trace: Path, home: Path, monkeypatch: pytest.MonkeyPatch, is_default: bool
) -> None:
    if is_default:
        monkeypatch.delenv("TORCHPROF_TUI_CACHE")
        monkeypatch.setenv("XDG_CACHE_HOME", str(home))
        home = home / "torchprof-tui"
    else:
        fill(trace).close()
    texts = write_strange_things(home)
    assert disk_cache.explain_refused_folder() is None
    kept = disk_cache.list_open_entries()  # of traces that other tests share
    assert fill(trace).ready
    disk_cache.close_entries(kept)
    assert disk_cache.cache_usage()[0] == 1
    assert disk_cache.create_sketches_folder() is None  # the folder of that name is of somebody else
    remove_everything(trace)
    assert read_texts(home) == {**texts, disk_cache.TAG_FILE: disk_cache.TAG_TEXT.decode()}


def write_untagged_cache(home: Path, specs: Sequence[Path]) -> None:
    """Write a cache as version 0.1 of the folders was: no tag, and lock files that are empty."""
    for spec in specs:
        fill(spec).close()
    orphan = disk_cache.create_draft("gone")
    sketches = disk_cache.create_sketches_folder()
    assert sketches is not None
    for name in ("0123456789abcdef01234567.v2.parquet", f"{'0123456789abcdef' * 4}.v2.parquet"):  # one, several
        (sketches / name).write_text("sketch")
    (home / disk_cache.TAG_FILE).unlink()
    assert orphan.lock_descriptor is not None
    os.close(orphan.lock_descriptor)  # as the kernel does for a process that is killed
    orphan.lock_descriptor = None
    for path in home.glob("*/lock"):
        path.write_bytes(b"")
    os.utime(orphan.folder / "lock", (0, 0))


def test_a_cache_without_tag_is_used_and_emptied(tmp_path: Path, home: Path) -> None:
    specs = [tmp_path / "1.json", tmp_path / "2.json"]
    for spec in specs:
        spec.write_text("[]")
    write_untagged_cache(home, specs)
    entry = disk_cache.find_or_create_entry(str(specs[0]))
    assert entry.ready
    entry.close()
    assert (home / disk_cache.TAG_FILE).read_bytes() == disk_cache.TAG_TEXT
    assert disk_cache.cache_usage()[0] == 3  # the sketches, too
    disk_cache.prune_cache()
    assert not list(home.glob(".draft-*"))
    assert disk_cache.clear_cache()[0] == 3
    assert os.listdir(home) == [disk_cache.TAG_FILE]


@pytest.mark.parametrize(
    ("number", "is_locked"), [(errno.EWOULDBLOCK, False), (errno.EACCES, False), (errno.ENOLCK, True)]
)
def test_a_folder_that_is_being_removed_is_not_opened_and_one_without_locks_is(
    number: int, is_locked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = disk_cache.create_sketches_folder()
    assert folder is not None

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(disk_cache.fcntl, "flock", fail)
    lock = disk_cache._lock_folder(folder)
    assert (lock is not None) == is_locked
    if lock is not None:
        os.close(lock)


@pytest.mark.parametrize("tag", [b"", disk_cache.TAG_TEXT[:40]])
def test_a_tag_that_another_process_is_writing(trace: Path, home: Path, tag: bytes) -> None:
    home.mkdir()
    (home / disk_cache.TAG_FILE).write_bytes(tag)
    assert fill(trace).ready


def test_the_tag_of_another_program_is_not_ours(trace: Path, home: Path) -> None:
    home.mkdir()
    text = "Signature: 8a477f597d28d172789f06886806bc55\n# This file is a cache directory tag created by cargo.\n"
    (home / disk_cache.TAG_FILE).write_text(text)
    assert not fill(trace).ready
    assert (home / disk_cache.TAG_FILE).read_text() == text


def test_links_in_a_cache_are_not_followed(tmp_path: Path, trace: Path, home: Path) -> None:
    fill(trace).close()
    other = tmp_path / "elsewhere" / "0123456789abcdef01234567"
    other.mkdir(parents=True)
    (other / "lock").write_bytes(disk_cache.LOCK_TEXT)
    (home / "fedcba9876543210fedcba98").symlink_to(other)
    inside = home / "0123456789abcdef01234567"
    inside.mkdir()
    (inside / "lock").symlink_to(other / "lock")
    assert disk_cache.cache_usage() == (1, 7 + OWN_BYTES)
    assert disk_cache.clear_cache() == (1, 7 + OWN_BYTES)
    assert (other / "lock").exists()
    assert (home / "fedcba9876543210fedcba98").is_symlink()
    assert inside.exists()


def test_a_link_in_place_of_an_entry_is_discarded_and_not_what_it_points_to(
    tmp_path: Path, trace: Path, home: Path
) -> None:
    entry = fill(trace)
    entry.close()
    other = tmp_path / "elsewhere"
    entry.folder.rename(other)
    texts = read_texts(other)
    entry.folder.symlink_to(other)
    linked = disk_cache.find_or_create_entry(str(trace))
    assert linked.ready
    linked.discard()
    assert os.listdir(home) == [disk_cache.TAG_FILE]
    assert read_texts(other) == texts


def test_a_cache_folder_that_disappears_is_made_again(trace: Path, home: Path) -> None:
    fill(trace).close()
    shutil.rmtree(home)
    assert disk_cache.explain_refused_folder() is None
    assert fill(trace).ready
    assert (home / disk_cache.TAG_FILE).exists()


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TORCHPROF_TUI_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert disk_cache.cache_folder() == tmp_path / "torchprof-tui"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, as the XDG specification says
    monkeypatch.setenv("HOME", str(tmp_path))
    assert disk_cache.cache_folder() == tmp_path / ".cache" / "torchprof-tui"


@pytest.mark.parametrize("home", ["", "relative", None])
def test_without_a_home_folder_nothing_is_cached(
    trace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was cached in `./~/.cache`, or in `/.cache`."""
    for name in ("TORCHPROF_TUI_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def find_nobody(_: int) -> None:
        raise KeyError("nobody")

    monkeypatch.setattr("pwd.getpwuid", find_nobody)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    entry = fill(trace)
    assert not entry.folder.is_relative_to(work)
    assert entry.key is None
    entry.close()
    assert not disk_cache.find_or_create_entry(str(trace)).ready
    assert (disk_cache.clear_cache(), disk_cache.cache_usage()) == ((0, 0), (0, 0))
    assert list(work.iterdir()) == []
    assert main(["cache"]) == 0
    assert "TORCHPROF_TUI_CACHE" in capsys.readouterr().out
    assert read_json_answer(capsys, "cache", "--json")["folder"] is None


def test_the_key_is_of_the_file_or_of_what_names_a_remote_one(trace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_bytes(trace.read_bytes())
    files = [disk_cache.find_sketch_path(str(path), None, 1) for path in (trace, other)]
    remote = [disk_cache.find_sketch_path("host:a.json", identity, 1) for identity in ("1", "2")]
    assert len({*files, *remote} - {None}) == 4
    assert disk_cache.find_sketch_path("host:b.json", "1", 1) == remote[0]
    assert disk_cache.find_sketch_path(str(trace), None, 1) == files[0]
    assert disk_cache.find_sketch_path("host:a.json", None, 1) is None


def test_a_remote_trace_is_found_by_its_identity() -> None:
    draft = disk_cache.create_draft("host:a.json")
    (draft.folder / "columns").write_text("remote")
    assert disk_cache.is_in_cache_folder(draft.folder)
    assert not disk_cache.is_cached("first")
    assert disk_cache.find_by_identity("host:a.json", "first") is None
    draft.publish()  # without an identity it stays a draft
    assert not draft.ready
    draft.publish("first")
    draft.publish("second")  # it has a name
    assert [disk_cache.is_cached(identity) for identity in ("first", "second")] == [True, False]
    found = disk_cache.find_by_identity("other:b.json", "first")
    assert found is not None
    assert (found.folder, found.key, found.ready, found.is_sealed) == (draft.folder, draft.key, True, True)
    assert (found.folder / "columns").read_text() == "remote"


def test_a_draft_outside_of_the_cache_is_not_published() -> None:
    draft = disk_cache.create_draft("host:a.json", cache=False)
    assert not disk_cache.is_in_cache_folder(draft.folder)
    draft.publish("first")
    assert not draft.ready
    assert not disk_cache.is_cached("first")


def test_without_a_free_descriptor_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        disk_cache.create_draft("trace.json", cache=False)


def test_an_entry_without_its_seal_is_not_sealed(trace: Path) -> None:
    entry = fill(trace)
    assert entry.is_sealed
    (entry.folder / "seal").unlink()
    assert not entry.is_sealed


def test_an_entry_without_its_lock_file_is_discarded(trace: Path) -> None:
    entry = fill(trace)
    (entry.folder / "lock").unlink()
    folder = entry.folder
    entry.discard()
    assert not folder.exists()
    assert not entry.ready
    assert entry not in disk_cache.list_open_entries()


def test_a_folder_that_another_process_has_removed_frees_nothing(home: Path) -> None:
    assert disk_cache._remove_folder(disk_cache._FolderInfo(home / "gone", 5, 0.0, is_draft=False)) == 0


def test_sketches_are_stored_in_a_new_cache_folder(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new" / "cache"
    monkeypatch.setenv("TORCHPROF_TUI_CACHE", str(folder))
    path = disk_cache.find_pack_path("0123", 3)
    assert path == folder / "sketches" / "0123.v3.pack"
    disk_cache.store_sketch(path, b"of a job")
    assert disk_cache.read_sketch(path) == b"of a job"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, folder / "sketches")] == [0o700, 0o700]
    lock = folder / "sketches" / "lock"
    os.utime(lock, (0, 0))
    disk_cache.store_sketch(path, b"of a job")
    assert abs(lock.stat().st_mtime - time.time()) < 60  # used now


def test_a_sketch_is_read_as_it_was_stored(trace: Path, home: Path) -> None:
    path = disk_cache.find_sketch_path(str(trace), "identity", 1)
    assert disk_cache.read_sketch(path) == b""
    disk_cache.store_sketch(path, b"of a rank")
    assert disk_cache.read_sketch(path) == b"of a rank"
    disk_cache.store_sketch(None, b"of a pipe")
    assert disk_cache.read_sketch(None) == b""
    assert [file.name for file in (home / disk_cache.SKETCHES_FOLDER).glob("*") if file != path] == ["lock"]
