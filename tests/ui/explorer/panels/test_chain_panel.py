"""The chain and kernel panels, the link line on the lanes, and the dispatch tree."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from tests.helpers.explorer_app import event_of, explorer, settled, text_of, two_steps, until
from tests.helpers.golden_files import load_sample
from tests.helpers.literal_text import readable_trace
from tests.helpers.long_run import keep_some
from tests.helpers.paths import FIXTURES, SAMPLES
from tests.helpers.trace_builder import Entry, cpu, kernel, python, runtime, step, trace
from tests.trace.build.test_graph_dependencies import replay
from torchprof_tui.trace.loading.capture_files import CaptureFiles
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.program_file import ProgramFile, ProgramFileReader
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.explorer.panels.chain_panel import ChainPanel
from torchprof_tui.ui.explorer.panels.kernel_panel import KernelPanel
from torchprof_tui.ui.source.source_screen import SourceScreen
from torchprof_tui.ui.tree.tree_screen import TreeScreen

pytestmark = pytest.mark.painted


def select(screen: ExplorerScreen, event: int) -> None:
    screen.view_state.select(event)
    screen._refresh_widgets()


def chained(screen: ExplorerScreen) -> bool:
    return screen.query_one(ChainPanel).chain is not None


async def test_the_chain_is_walked_and_the_lanes_move_along() -> None:
    shown = two_steps()
    mm, gemm = event_of(shown, "aten::mm"), event_of(shown, "gemm")
    async with explorer(shown, (120, 40)) as (screen, pilot):
        select(screen, mm)
        await pilot.press("l")
        await until(pilot, lambda: chained(screen))
        text = text_of(screen)
        assert "[chain ↑↓]" in text
        assert "launch latency 20.0 µs · queue delay 10.0 µs" in text
        hops = ["ProfilerStep#0", "work", "aten::mm", "cudaLaunchKernel", "⇢ gemm"]
        lines = [line for line in text.split("\n") if line.startswith((" ▌", " ▶"))]
        places = [next(k for k, line in enumerate(lines) if hop in line) for hop in hops]
        assert places == sorted(places)
        await pilot.press("down", "down")
        assert screen.view_state.selected == gemm
        assert screen._lanes_area.timeline.highlighted.tolist() == sorted(
            screen.query_one(ChainPanel).chain.events.tolist()
        )  # type: ignore[union-attr]
        await pilot.press("down", "down")  # the annotation stands for the line, which no stack names
        assert screen.view_state.selected == gemm
        assert "the end of the chain" in text_of(screen)
        await pilot.press("up", "up", "up", "up", "up", "enter")
        assert shown.event(screen.view_state.selected).name == "ProfilerStep#0"
        assert screen.view_state.viewport.span == round(100_000 * 1.1)


async def test_an_op_lists_all_that_it_launched() -> None:
    entries: list[Entry] = [step(0, 0, 500), cpu("aten::linear", 10, 300)]
    for k in range(4):
        entries.append(runtime("cudaLaunchKernel", 20 + 20 * k, 5, corr=k + 1))
        entries.append(kernel(f"k{k}", 100 + 50 * k, 10 * (k + 1), corr=k + 1))
    shown = trace(*entries)
    async with explorer(shown, (160, 48)) as (screen, pilot):
        select(screen, event_of(shown, "aten::linear"))
        await pilot.press("l")
        await until(pilot, lambda: chained(screen))
        text = text_of(screen)
        assert "linear launched 4 pieces of GPU work, 100.0 µs together" in text
        shares = [line for line in text.split("\n") if "%  k" in line]
        assert [line.split("%")[0].split()[-1] for line in shares] == ["40", "30", "20", "10"]


@pytest.mark.long
async def test_what_has_no_launch_says_so() -> None:
    shown = trace(cpu("aten::mm", 0, 10), kernel("early", 20, 5, corr=7))
    async with explorer(shown, (120, 40)) as (screen, pilot):
        select(screen, event_of(shown, "early"))
        await pilot.press("l")
        await until(pilot, lambda: chained(screen))
        assert "No launch was recorded" in text_of(screen)
        select(screen, event_of(shown, "aten::mm"))
        await pilot.press("k")
        await until(pilot, lambda: "launched no GPU work" in text_of(screen))
        assert "enter goes to the longest kernel" in text_of(screen)
        await pilot.press("enter")
        assert screen.view_state.selected == event_of(shown, "early")


@pytest.mark.parametrize("size", keep_some([((80, 24),), ((160, 48),), ((240, 60),)], 1))
async def test_a_real_kernel_and_what_limits_it(size: tuple[int, int]) -> None:
    path = SAMPLES / "matmul_add_64_cold_eager.pt.trace.json.gz"
    shown = load_trace(str(path), cache=False)
    async with explorer(shown, size) as (screen, pilot):
        select(screen, event_of(shown, "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT"))
        await pilot.press("k")
        await until(pilot, lambda: screen.query_one(KernelPanel)._kernel is not None)
        panel = screen.query_one(KernelPanel).text()
        for part in (
            "grid 4×2×1 = 8 blocks",
            "168 registers a thread",
            "18.8 %",
            "registers and shared memory",
            "3 of this name",
        ):
            assert part in panel, part
        await pilot.press("l")
        await until(pilot, lambda: "⇢ gemm bf16 64×8" in text_of(screen) or "⇢ nvjet" in text_of(screen))


@pytest.mark.long
async def test_a_replayed_kernel_shows_its_op_in_the_capture() -> None:
    graphs = FIXTURES / "graphs"
    captures = CaptureFiles("-", [str(graphs / "capture_1_bs8.json.gz")])
    shown = replace(load_trace(str(graphs / "replay_1.json.gz")), captures=captures)
    name = next(each for each in shown.names if "cos_kernel" in each)
    async with explorer(shown, (160, 60)) as (screen, pilot):
        select(screen, event_of(shown, name))
        await pilot.press("l")
        await until(pilot, lambda: chained(screen))
        panel = screen.query_one(ChainPanel).text()
        assert "from the capture: aten::cos [[8, 64, 256]] · capture_1_bs8.json.gz" in panel
        assert "line in the capture: " in panel
        await pilot.press("i")
        await until(pilot, lambda: "captured   aten::cos [[8, 64, 256]]" in text_of(screen))


@pytest.mark.long
async def test_a_replayed_kernel_without_a_capture_says_so() -> None:
    shown = load_trace(str(FIXTURES / "graphs" / "replay_1.json.gz"))
    async with explorer(shown, (160, 60)) as (screen, pilot):
        select(screen, event_of(shown, "cudaGraphLaunch"))
        await pilot.press("l")
        await until(pilot, lambda: chained(screen))
        assert "captured op unknown: no trace of its capture was found" in screen.query_one(ChainPanel).text()


async def test_edges_of_a_replayed_graph_are_described_and_lit() -> None:
    shown = readable_trace(*replay(0, 1))
    async with explorer(shown, (160, 48)) as (screen, pilot):
        select(screen, event_of(shown, "d"))
        await pilot.press("l")
        await until(pilot, lambda: chained(screen))
        lit = {shown.event(event).name for event in screen._lanes_area.timeline.highlighted.tolist()}
        assert lit == {"cudaGraphLaunch", "d", "b", "c"}
        await pilot.press("i")
        await until(pilot, lambda: "waits for b, c" in text_of(screen))


async def test_the_link_is_drawn_between_launch_and_kernel() -> None:
    shown = trace(
        cpu("aten::mm", 0, 30),
        runtime("cudaLaunchKernel", 10, 10, corr=1),
        cpu("later", 60, 20),
        kernel("gemm", 80, 40, corr=1),
    )
    async with explorer(shown, (120, 40)) as (screen, pilot):
        select(screen, event_of(shown, "gemm"))
        await pilot.press("l")
        await until(pilot, lambda: "┄" in text_of(screen))
        await pilot.press("escape")
        assert "┄" not in text_of(screen)


@pytest.mark.long
async def test_the_tree_opens_filters_and_leads_back() -> None:
    shown = two_steps()
    async with explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press("T")
        tree = screen.app.screen
        assert isinstance(tree, TreeScreen)
        await until(pilot, lambda: tree.call_tree is not None)

        def text() -> str:
            return "\n".join(strip.text.rstrip() for strip in tree._compositor.render_strips())

        await until(pilot, lambda: "ProfilerStep*" in text())
        assert "gemm" not in text()
        await tree.run_action("all(True)")  # a command of the palette
        await until(pilot, lambda: "⇢ gemm" in text())
        line = next(line for line in text().split("\n") if "⇢ gemm" in line)
        assert "55.0 µs" in line
        assert " 2 " in line
        await tree.run_action("all(False)")
        await until(pilot, lambda: "gemm" not in text())
        await pilot.press("slash", *"gemm", "enter")
        await until(pilot, lambda: "⇢ gemm" in text())
        await pilot.press("enter")
        assert screen.app.screen is screen
        assert screen.view_state.selected == event_of(shown, "gemm")
        await pilot.press("T", "escape")
        assert screen.app.screen is screen
        assert not screen.query_one(Input).has_focus


async def test_the_trees_shares_are_of_all_gpu_time() -> None:
    """Two threads launch kernels, so neither has all GPU time."""
    shown = trace(
        runtime("cudaLaunchKernel", 0, 10, corr=1),
        kernel("gemm", 20, 30, corr=1),
        runtime("cudaLaunchKernel", 60, 10, corr=2, thread=2),
        kernel("add", 80, 10, corr=2),
    )
    async with explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press("T")
        tree = screen.app.screen
        assert isinstance(tree, TreeScreen)
        await until(pilot, lambda: tree.call_tree is not None)
        await pilot.pause()
        lines = [strip.text for strip in tree._compositor.render_strips()]
        shares = [line.split()[-2] for line in lines if "CPU" in line]
        assert shares == ["75", "25"]


@pytest.mark.long
async def test_beside_the_chain_stands_the_gpu_work_that_is_selected() -> None:
    shown = trace(
        cpu("op", 0, 100),
        *(runtime("cudaLaunchKernel", 10 * k, 5, corr=k) for k in (1, 2)),
        *(kernel(f"kernel_{k}", 100 * k, 40 - 10 * k, corr=k) for k in (1, 2)),
    )
    async with explorer(shown, (160, 48)) as (screen, pilot):
        select(screen, event_of(shown, "op"))
        await pilot.press("l")
        await until(pilot, lambda: "launch latency 90.0 µs" in text_of(screen))
        await pilot.press("down", "down", "down")
        assert screen.view_state.selected == event_of(shown, "kernel_2")
        await until(pilot, lambda: "launch latency 180.0 µs" in text_of(screen))
        first = next(line for line in text_of(screen).split("\n") if "launch latency 180.0 µs" in line)
        assert " kernel_2  20.0 µs · " in first
        await pilot.press("up", "up")
        assert shown.event(screen.view_state.selected).name == "cudaLaunchKernel"
        await until(pilot, lambda: "launch latency 90.0 µs" in text_of(screen))


async def test_a_long_name_leaves_room_for_what_is_said_of_it() -> None:
    name = "void " + "".join(f"space_{k}::" for k in range(60)) + "kernel<int>(int)"
    shown = trace(kernel(name, 0, 10, grid=[4, 1, 1], block=[64, 1, 1]))
    async with explorer(shown, (80, 24)) as (screen, pilot):
        select(screen, event_of(shown, name))
        await pilot.press("k")
        await until(pilot, lambda: "grid 4×1×1" in text_of(screen))
        assert "".join(screen.query_one(KernelPanel).text().split()).count("space_59::kernel") == 1


def program(folder: Path) -> tuple[Trace, Path]:
    """Write a script, and build a trace whose kernel comes from its line 42."""
    script = folder / "train.py"
    lines = [f"a{number} = {number}" for number in range(1, 301)]
    lines[41:43] = ["def forward(x):", "\treturn x  # \x1b[31m[bold]red"]
    script.write_text("\n".join(lines) + "\n")
    shown = trace(
        step(0, 0, 100),
        python(f"{script}(42): forward", 5, 80),
        cpu("aten::mm", 10, 60),
        runtime("cudaLaunchKernel", 20, 5, corr=1),
        kernel("gemm", 30, 50, corr=1),
    )
    return shown, script


async def open_source_of(screen: ExplorerScreen, pilot: Pilot[None], shown: Trace) -> str:
    """Select the kernel, move to the line below it, press enter; return the text on the screen."""
    select(screen, event_of(shown, "gemm"))
    await pilot.press("l")
    await until(pilot, lambda: chained(screen))
    await pilot.press("down", "enter")
    await until(pilot, lambda: isinstance(screen.app.screen, SourceScreen))
    await settled(pilot)
    return text_on(pilot)


def text_on(pilot: Pilot[None]) -> str:
    return "\n".join(strip.text.rstrip() for strip in pilot.app.screen._compositor.render_strips())


@pytest.mark.parametrize("size", keep_some([((80, 24),), ((160, 48),), ((240, 60),), ((40, 10),)], 1))
async def test_enter_on_the_line_opens_its_source_above_the_chain(size: tuple[int, int], tmp_path: Path) -> None:
    shown, script = program(tmp_path)
    async with explorer(shown, size) as (screen, pilot):
        text = await open_source_of(screen, pilot, shown)
        assert "train.py(42): forward" in text
        assert "▶ 42  def forward(x):" in text
        assert "43          return x  # ·[31m[bold]red"[: size[0] - 12] in text
        assert size[0] < 160 or "300 lines" in text  # the title leaves out what does not fit
        if size[1] > 20:
            assert "[chain ↑↓]" in text
            assert "▶ line: forward train.py:42" in text
        await pilot.press("end")
        assert "a300 = 300" in text_on(pilot)
        await pilot.press("home", "down")
        assert ["a1 = 1" in text_on(pilot), "  2  a2 = 2" in text_on(pilot)] == [False, True]
        await pilot.press("pagedown", "up", "pageup", "up")
        assert "  1  a1 = 1" in text_on(pilot)
        await pilot.press("escape")
        assert screen.app.screen is screen
        assert shown.event(screen.view_state.selected).name == "gemm"
        assert script.exists()


@pytest.mark.long
async def test_a_file_is_read_only_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, _ = program(tmp_path)
    read: list[str] = []
    original = ProgramFileReader.read

    def record(reader: ProgramFileReader) -> ProgramFile:
        read.append(reader._file)
        return original(reader)

    monkeypatch.setattr(ProgramFileReader, "read", record)
    async with explorer(shown, (120, 40)) as (screen, pilot):
        select(screen, event_of(shown, "gemm"))
        await pilot.press("l")
        await until(pilot, lambda: chained(screen))
        await pilot.press("down")
        assert str(tmp_path)[:20] in text_of(screen)  # the status line says what enter would open
        await pilot.press("up", "enter")
        await settled(pilot)
        assert screen.app.screen is screen
        assert not read
        await pilot.press("down", "enter")
        await settled(pilot)
        assert len(read) == 1


@pytest.mark.long
async def test_a_file_that_is_not_here_says_why(tmp_path: Path) -> None:
    shown, script = program(tmp_path)
    script.unlink()
    async with explorer(shown, (80, 24)) as (screen, pilot):
        text = await open_source_of(screen, pilot, shown)
        assert "no such file here" in re.sub(r"[│\s]+", " ", text)
        await pilot.press("down", "pagedown", "end", "q")
        assert screen.app.screen is screen


@pytest.mark.long
async def test_a_file_that_has_changed_says_so(tmp_path: Path) -> None:
    shown, script = program(tmp_path)
    script.write_text("a = 1\n")
    async with explorer(shown, (160, 48)) as (screen, pilot):
        assert "line 42 is after the end of the file: the file has changed" in await open_source_of(
            screen, pilot, shown
        )


@pytest.mark.long
async def test_an_annotation_is_a_line_without_a_file() -> None:
    shown = two_steps()
    async with explorer(shown, (120, 40)) as (screen, pilot):
        select(screen, event_of(shown, "gemm"))
        await pilot.press("l")
        await until(pilot, lambda: chained(screen))
        assert "▌ annotation: work" in text_of(screen)
        await pilot.press("down", "enter")
        assert "record again with stacks" in text_of(screen)
        assert screen.app.screen is screen
        await pilot.press("down")
        assert "the end of the chain" in text_of(screen)
        await pilot.press("up")
        assert not screen.query_one(ChainPanel).is_on_line


@pytest.mark.long
async def test_an_event_is_compared_over_the_steps() -> None:
    shown = load_trace(str(SAMPLES / "article_64_cold.pt.trace.json.gz"), cache=False)
    second = [k for k in range(len(shown)) if shown.event(k).name == "aten::mm"][1]
    async with explorer(shown, (240, 60)) as (screen, pilot):
        select(screen, second)
        await pilot.press("l")
        await until(pilot, lambda: "ProfilerStep#4  matmul" in text_of(screen))
        text = text_of(screen)
        assert "gap mean 12.5 µs, typical 7.86 µs" in text
        assert re.search(r"  ProfilerStep#2  matmul +22\.1 µs\*", text)
        assert re.search(r"▸ ProfilerStep#3  matmul +7\.86 µs ", text)


@pytest.mark.long
async def test_a_page_down_scrolls_the_chain_away_from_the_cursor_and_a_move_returns() -> None:
    async with explorer(load_sample("train_gpt_stack_memory"), (120, 40)) as (screen, pilot):
        await pilot.press("slash", *"aten::linear", "enter", "l")
        await until(pilot, lambda: "▶                 aten::linear" in text_of(screen))
        await settled(pilot)
        await pilot.press("pagedown")
        await settled(pilot)
        assert "▶" not in text_of(screen).split("[chain")[1]
        assert "launch latency mean" in text_of(screen)
        await pilot.press("down")
        await until(pilot, lambda: "▶                 aten::addmm" in text_of(screen))
