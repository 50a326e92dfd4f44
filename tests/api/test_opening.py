"""Test opening from Python: what it accepts, what it raises, what it imports."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import torchprof_tui as tt
from tests.helpers.paths import ROOT, SAMPLES
from tests.helpers.rank_traces import late_rank
from torchprof_tui.trace.storage import disk_cache

LINEAR = SAMPLES / "linear_eager.pt.trace.json.gz"


@pytest.mark.long
def test_the_names_of_the_api_are_imported_on_use() -> None:
    code = (
        "import sys, torchprof_tui as tt\n"
        "print('open' in dir(tt), [name for name in ('numpy', 'torchprof_tui.api') if name in sys.modules])\n"
        "trace = tt.open('sample:linear_eager'); len(trace.events); trace.steps\n"
        "heavy = ('textual', 'rich', 'pyarrow', 'pandas', 'torchprof_tui.commands', 'torchprof_tui.api.checks')\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "trace.check()\n"
        "print([name for name in ('textual', 'rich', 'torchprof_tui.commands') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True []\n[]\n[]\n", "")


@pytest.mark.parametrize("cache", [True, False])
def test_the_cache_is_pruned_only_where_it_is_used(tmp_path: Path, cache: bool) -> None:
    """Measuring thousands of entries takes longer than a small trace."""
    draft = disk_cache.create_draft("gone")
    assert draft.lock_descriptor is not None
    os.close(draft.lock_descriptor)
    draft.lock_descriptor = None
    os.utime(draft.folder / "lock", (1, 1))
    tt.open(shutil.copy(LINEAR, tmp_path), cache=cache)
    assert draft.folder.exists() != cache
    shutil.rmtree(draft.folder, ignore_errors=True)


def test_every_name_of_the_api_exists() -> None:
    assert all(hasattr(tt, name) for name in tt.__all__)
    assert set(tt.__all__) <= set(dir(tt))
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        tt.opne  # noqa: B018


def test_the_package_is_typed() -> None:
    assert (Path(tt.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize("source", [LINEAR, str(LINEAR), [LINEAR], LINEAR.as_uri(), "sample:linear_eager"])
def test_sources(source: str | Path | list[str | Path]) -> None:
    with tt.open(source) as trace:
        assert (len(trace.events), trace.devices, trace.ranks) == (34, ("NVIDIA H200",), ())
    trace.close()


def test_ranks(tmp_path: Path) -> None:
    late_rank(ranks=3).write(tmp_path)
    run = tt.open(tmp_path)
    assert (run.ranks, run.rank, run.lost_ranks) == ((0, 1, 2), None, ())
    assert {step.rank for step in run.steps} == {0, 1, 2}
    assert sorted(set(run.events.rank.tolist())) == [0, 1, 2]
    assert run.table().rank == 0
    one = tt.open(tmp_path, rank=2)
    assert (one.ranks, one.rank, one.table().rank) == ((2,), 2, 2)
    assert len(one.events) * 3 == len(run.events)
    assert one.select_rank(2) is one
    with pytest.raises(tt.TraceError, match=r"no rank 7: .* holds ranks 0, 1, 2"):
        tt.open(tmp_path, rank=7)
    with pytest.raises(tt.TraceError, match=r"no rank 1: .* holds one trace without a rank number"):
        tt.open(LINEAR, rank=1)


def test_ranks_by_the_names_of_their_files(tmp_path: Path) -> None:
    for path in late_rank(ranks=2).write(tmp_path):
        document = json.loads(path.read_text())
        del document["distributedInfo"]
        path.write_text(json.dumps(document))
    run = tt.open(tmp_path)
    assert (run.ranks, run.table().rank) == ((0, 1), 0)
    one = run.select_rank(1)
    assert (one.rank, one.ranks, {step.rank for step in one.steps}) == (1, (1,), {1})
    assert set(one.events.rank.tolist()) == {1}
    assert one.diff(run.select_rank(0)).a.steps == [0, 1, 2]


def test_ranks_open_where_an_event_loop_runs(tmp_path: Path) -> None:
    """A notebook runs a loop on the thread of its cells."""
    late_rank(ranks=2).write(tmp_path)

    async def cell() -> tuple[int, ...]:
        return tt.open(tmp_path, cache=False).ranks

    assert asyncio.run(cell()) == (0, 1)


def test_bad_input_raises_one_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text, empty, damaged = tmp_path / "text.json", tmp_path / "empty.json", tmp_path / "damaged.json.gz"
    text.write_text("hello")
    empty.touch()
    damaged.write_bytes(LINEAR.read_bytes()[:200])
    folder = tmp_path / "folder"
    folder.mkdir()
    sources = [text, empty, folder, tmp_path / "gone.json", "sample:none", "a\0b", "http://127.0.0.1:1/t.json", []]
    sources += [str(tmp_path / "*.nothing"), [text, empty], "host:", "ssh://"]
    for source in sources:
        with pytest.raises(tt.TraceError) as error:
            tt.open(source, cache=False)  # type: ignore[arg-type]
        assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")  # a library prints nothing


def test_bad_questions_raise_the_same_error(tmp_path: Path) -> None:
    trace = tt.open(LINEAR)
    for ask in (
        lambda: trace.table(by="colour"),  # type: ignore[arg-type]
        lambda: trace.table(step=99),
        lambda: trace.table(by="shape"),
        lambda: trace.memory(),
        lambda: trace.chain(34),
        lambda: trace.chain(-1),
        lambda: trace.args(10**9),
        lambda: trace.check(50, 50),
        lambda: trace.events.find("nobody"),
        lambda: trace.diff(trace, by="colour"),  # type: ignore[arg-type]
        lambda: trace.diff(trace, steps=(7, 9)),
        lambda: trace.diff(trace, ranks=(0, 1)),
    ):
        with pytest.raises(tt.TraceError) as error:
            ask()
        assert "\n" not in str(error.value)


def test_a_file_that_is_gone_raises_the_same_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('[{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]')
    trace = tt.open(path, cache=False)
    assert trace.args(0) == {}
    path.write_text("[]")
    with pytest.raises(tt.TraceError, match="changed"):
        trace.args(0)
    path.unlink()
    with pytest.raises(tt.TraceError, match="No such file"):
        trace.args(0)


def test_the_error_survives_a_process_boundary() -> None:
    with pytest.raises(tt.TraceError) as error:
        tt.open("gone.json")
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)


def test_texts_for_people() -> None:
    trace = tt.open(LINEAR)
    shown = io.StringIO()
    print(trace, trace.events, trace.table(), file=shown)
    assert "34 events" in shown.getvalue()
    assert "<table by name: 11 rows>" in shown.getvalue()
