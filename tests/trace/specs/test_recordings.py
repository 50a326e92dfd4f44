"""Folders as serving and training tools write them: which files are one recording, and which are left out and named."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.helpers.rank_traces import late_rank
from torchprof_tui.cli import main
from torchprof_tui.trace.loading.resolve import ResolvedInput, resolve_specs
from torchprof_tui.trace.specs.address import rank_in_name
from torchprof_tui.trace.specs.runs_by_name import FolderError
from torchprof_tui.ui.start.start_screen import StartScreen


def write_traces(folder: Path, *names: str) -> Path:
    """Write a trace of each name, without a rank inside."""
    text = json.dumps(
        {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}
    )
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return folder


def ranks_of(resolved: ResolvedInput, folder: Path) -> list[tuple[str, int | None]]:
    return [(str(Path(file.spec).relative_to(folder)), file.rank) for file in resolved.rank_files]


SGLANG = tuple(f"1763000000.1234567-TP-{k}-{stage}.trace.json.gz" for stage in ("DECODE", "EXTEND") for k in range(2))
VLLM = (
    *(f"dp0_pp0_tp{k}_dcp0_ep{k}_rank{k}.176300000000000{k}.pt.trace.json.gz" for k in range(2)),
    "gpu-box_77.async_llm.1763000000000009.pt.trace.json.gz",
)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        (SGLANG[3], 1),
        (VLLM[1], 1),
        (VLLM[2], None),
        ("1763000000.5-TP-3-DP-1-EP-3.trace.json.gz", 3),  # DP attention: TP counts all GPUs
        ("1763000000.5-TP-3-PP-1.trace.json.gz", None),  # TP is the rank within a pipeline stage
        ("HTTP-3.json", None),
        ("runs/rank_3/trace.json", 3),
        ("runs/rank_3/loss.json", None),
        ("runs/rank_3/trace_view.json", 3),
        ("iteration_10/rank0_trace.json", 0),
    ],
)
def test_rank_in_names_of_tools(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


def test_sglang_by_stage_is_two_recordings(tmp_path: Path) -> None:
    folder = write_traces(tmp_path, *SGLANG)
    with pytest.raises(FolderError) as caught:
        resolve_specs([str(folder)])
    patterns = [f"{folder}/*-TP-*-{stage}.trace.json.gz" for stage in ("DECODE", "EXTEND")]
    line = str(caught.value)
    assert line.startswith(f"{folder}: a folder with 2 recordings; name one of them: ")
    for pattern in patterns:
        assert f"'{pattern}' (2 ranks)" in line
    assert len(caught.value.traces) == 4
    assert ranks_of(resolve_specs([patterns[1]]), folder) == [(SGLANG[2], 0), (SGLANG[3], 1)]


def test_sglang_one_gpu_by_stage(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="2 recordings"):
        resolve_specs([str(write_traces(tmp_path, SGLANG[0], SGLANG[2]))])


def test_sglang_with_its_other_files(tmp_path: Path) -> None:
    folder = write_traces(tmp_path, SGLANG[0], SGLANG[1], "merged-1763000000.1234567.trace.json.gz")
    (folder / "server_args.json").write_text('{"model_path": "x"}')
    (folder / "1763000000.2-TP-0-memory.pickle").write_bytes(b"\x80\x04")
    resolved = resolve_specs([str(folder)])
    assert ranks_of(resolved, folder) == [(SGLANG[0], 0), (SGLANG[1], 1)]
    assert resolved.left_out == ("merged-1763000000.1234567.trace.json.gz: says no rank, and the others do",)


def test_sglang_recorded_twice(tmp_path: Path) -> None:
    names = [f"17630000{run}.123-TP-{k}.trace.json.gz" for run in ("00", "77") for k in range(2)]
    with pytest.raises(FolderError) as caught:
        resolve_specs([str(write_traces(tmp_path, *names))])
    for run in ("00", "77"):
        assert f"'{tmp_path}/17630000{run}.123-TP-*.trace.json.gz' (2 ranks)" in str(caught.value)


def test_vllm_leaves_out_its_frontend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_traces(tmp_path / "v", *VLLM)
    assert ranks_of(resolve_specs([str(folder)]), folder) == [(VLLM[0], 0), (VLLM[1], 1)]
    line = f"{VLLM[2]}: says no rank, and the others do"
    for specs in ([str(folder)], [f"{folder}/*"], sorted(map(str, folder.iterdir()))):
        assert resolve_specs(specs).left_out == (line,)
    (folder / VLLM[1]).unlink()  # one GPU
    resolved = resolve_specs([str(folder)])
    assert (Path(resolved.path).name, resolved.left_out) == (VLLM[0], (line,))
    assert main(["info", str(folder)]) == 0
    assert f"torchprof-tui: left out: {line}\n" in capsys.readouterr().err


def test_torchtitan_iterations(tmp_path: Path) -> None:
    names = [f"profile_traces/iteration_{step}/rank{k}_trace.json" for step in (10, 20) for k in range(2)]
    folder = write_traces(tmp_path, *names)
    with pytest.raises(FolderError) as caught:
        resolve_specs([str(folder)])
    for step in (10, 20):
        assert f"'{folder}/profile_traces/iteration_{step}/rank*_trace.json' (2 ranks)" in str(caught.value)
    inside = folder / "profile_traces" / "iteration_20"
    assert ranks_of(resolve_specs([str(inside)]), inside) == [("rank0_trace.json", 0), ("rank1_trace.json", 1)]


def test_folder_of_each_rank(tmp_path: Path) -> None:
    folder = write_traces(tmp_path, *(f"rank_{k}/trace.json" for k in (0, 1, 10)))
    expected = [(f"rank_{k}/trace.json", k) for k in (0, 1, 10)]
    assert ranks_of(resolve_specs([str(folder)]), folder) == expected
    assert ranks_of(resolve_specs([f"{folder}/rank_*/trace.json"]), folder) == expected


def test_jax(tmp_path: Path) -> None:
    date = "plugins/profile/2026_01_02_03_04_05"
    folder = write_traces(tmp_path, f"{date}/gpu-box.trace.json.gz", f"{date}/perfetto_trace.json.gz")
    (folder / date / "gpu-box.xplane.pb").write_bytes(b"\n\x07/host:x")
    resolved = resolve_specs([str(folder)])
    assert Path(resolved.path).name == "gpu-box.trace.json.gz"
    assert resolved.left_out == ("perfetto_trace.json.gz: the same recording again",)
    write_traces(folder, "plugins/profile/2026_01_02_09_00_00/gpu-box.trace.json.gz")
    with pytest.raises(FolderError, match="2 recordings"):
        resolve_specs([str(folder)])


def test_ascend(tmp_path: Path) -> None:
    names = [f"box_{77 + k}_20260102030405{k:03}_ascend_pt" for k in range(2)]
    for k, name in enumerate(names):
        write_traces(
            tmp_path,
            f"{name}/ASCEND_PROFILER_OUTPUT/trace_view.json",
            f"{name}/PROF_01/mindstudio_profiler_output/msprof_2026.json",  # raw data, which is no recording of its own
        )
        (tmp_path / name / f"profiler_info_{1 - k}.json").write_text("{}")
        (tmp_path / name / "ASCEND_PROFILER_OUTPUT" / "communication.json").write_text('{"p2p": {}}')
    expected = [(f"{names[1 - k]}/ASCEND_PROFILER_OUTPUT/trace_view.json", k) for k in range(2)]
    assert ranks_of(resolve_specs([str(tmp_path)]), tmp_path) == expected
    for inside in (tmp_path / names[0], tmp_path / names[0] / "ASCEND_PROFILER_OUTPUT"):
        assert resolve_specs([str(inside)]).path == str(tmp_path / expected[1][0])


def test_captures_are_no_recordings(tmp_path: Path) -> None:
    folder = write_traces(tmp_path, "decode.json.gz", "capture_traces/bs_32_rank0.json.gz")
    assert resolve_specs([str(folder)]).path == str(folder / "decode.json.gz")


def test_command_names_the_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_traces(tmp_path, *SGLANG)
    assert main(["check", str(folder)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "2 recordings; name one of them" in err
    assert main(["info", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 4
    assert f"all 2 ranks of one run: '{folder}/*-TP-*-DECODE.trace.json.gz'" in err


async def test_app_lists_the_recordings(tmp_path: Path) -> None:
    """Opening a folder with several recordings shows them in the list, one row for the ranks of each."""
    from torchprof_tui.app import TorchprofApp

    folder = write_traces(tmp_path, *SGLANG)
    app = TorchprofApp(resolve_specs([str(folder)], list_folders=True).create_opener())
    async with app.run_test(size=(120, 40)) as pilot:
        while not isinstance(app.screen, StartScreen):
            await pilot.pause(0.01)
        await pilot.pause()
        rows = [row for row in app.screen._rows.values() if row.spec.startswith(str(folder))]
        assert sorted(row.name for row in rows[:2]) == ["*-TP-*-DECODE.trace.json.gz", "*-TP-*-EXTEND.trace.json.gz"]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's own word)
        """Log nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.long
def test_the_same_names_on_a_server(site: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "vllm").mkdir()
    for name, path in zip(VLLM, late_rank(2).write(tmp_path, packed=True), strict=False):
        path.rename(tmp_path / "vllm" / name)
    write_traces(tmp_path / "vllm", VLLM[2])
    for name in (f"{site}/vllm/", f"{site}/vllm/*.json.gz"):
        assert main(["info", name, "--json"] if "*" in name else ["check", name]) in (0, 1)
        err = capsys.readouterr().err
        assert f"torchprof-tui: left out: {VLLM[2]}: says no rank, and the others do\n" in err, name
    write_traces(tmp_path / "sglang", *SGLANG)
    for name in (f"{site}/sglang/", f"{site}/sglang/*.json.gz"):
        assert main(["check", name]) == 2
        err = capsys.readouterr().err
        assert f"'{site}/sglang/*-TP-*-DECODE.trace.json.gz' (2 ranks)" in err
        assert err.count("\n") == 1
