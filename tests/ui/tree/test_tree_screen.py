"""The tree screen by its keys: searching, folding, copying, and the way back."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from tests.analysis.graphs.test_captured_nodes import replays
from tests.helpers.explorer_app import event_of, explorer, settled, two_steps, until
from tests.helpers.literal_text import readable_trace
from tests.helpers.long_run import keep_some
from tests.helpers.trace_builder import cpu, kernel, python, runtime, trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.tree.tree_screen import TreeScreen


def lines(tree: TreeScreen) -> list[str]:
    return [strip.text.rstrip() for strip in tree._compositor.render_strips()]


def cursor_line(tree: TreeScreen) -> str:
    return next(line for line in lines(tree) if line.startswith("▶"))


def signs(tree: TreeScreen) -> list[str]:
    return [letter for line in lines(tree)[:-1] for letter in line if letter in "▾▸"]


async def opened(screen: ExplorerScreen, pilot: Pilot[None]) -> TreeScreen:
    await pilot.press("T")
    tree = screen.app.screen
    assert isinstance(tree, TreeScreen)
    await until(pilot, lambda: tree.call_tree is not None)
    await settled(pilot)
    return tree


def model() -> Trace:
    """Build a tree with two copies; times in µs. See `test_fold_state`."""
    return trace(
        cpu("train", 0, 100),
        cpu("forward", 0, 60),
        cpu("aten::mm", 0, 50),
        cpu("aten::copy_", 10, 5),
        cpu("backward", 60, 35),
        cpu("aten::copy_", 70, 10),
        cpu("aten::add", 80, 10),
    )


async def test_a_search_selects_the_first_match_and_n_walks_on() -> None:
    async with explorer(model(), (120, 40)) as (screen, pilot):
        tree = await opened(screen, pilot)
        await pilot.press("n")
        assert "no search yet" in lines(tree)[-1]
        await pilot.press("slash", *"copy", "enter")
        assert not tree._prompt.is_open
        assert "aten::copy_" in cursor_line(tree)
        assert "match 1 of 2 for 'copy' · filtered: 7 of 8 nodes, esc shows all" in lines(tree)[-1]
        assert not any("aten::add" in line for line in lines(tree))
        first = tree._cursor_node
        await pilot.press("n")
        assert "match 2 of 2" in lines(tree)[-1]
        assert tree._cursor_node > first
        await pilot.press("n")
        assert tree._cursor_node == first
        await tree.run_action("all(False)")  # a command of the palette
        await pilot.press("N")
        assert "aten::copy_" in cursor_line(tree)  # what hides it is unfolded
        await pilot.press("escape")
        assert "nodes" in lines(tree)[-1]
        assert "aten::copy_" in cursor_line(tree)  # among its siblings, which the search had hidden
        assert any("aten::add" in line for line in lines(tree))
        assert tree.is_current
        await pilot.press("escape")
        assert screen.app.screen is screen


async def test_the_row_of_the_cursor_has_one_background() -> None:
    async with explorer(model(), (120, 40)) as (screen, pilot):
        tree = await opened(screen, pilot)
        strip = next(strip for strip in tree._compositor.render_strips() if strip.text.startswith("▶"))
        cells = [segment for segment in strip.crop(3, 100) if segment.style is not None]
        assert {segment.style.bgcolor for segment in cells if segment.style} == {tree.rows.palette.active.bgcolor}


@pytest.mark.long
async def test_arrows_and_space_fold_within_a_search() -> None:
    async with explorer(model(), (120, 40)) as (screen, pilot):
        tree = await opened(screen, pilot)
        await pilot.press("slash", *"copy", "enter")
        assert signs(tree) == ["▾"] * 5
        await pilot.press("home", "down", "down", "space")
        assert signs(tree) == ["▾", "▾", "▸", "▾"]
        await pilot.press("right")
        assert signs(tree) == ["▾"] * 5
        await pilot.press("left", "left", "left")
        assert not any("forward" in line for line in lines(tree))
        await pilot.press("backspace")
        assert "forward" in cursor_line(tree)  # as before the jump to the parent, still folded
        assert signs(tree) == ["▾", "▾", "▸", "▾"]


@pytest.mark.long
async def test_a_search_that_finds_nothing_says_so_and_escape_restores_all() -> None:
    async with explorer(model(), (120, 40)) as (screen, pilot):
        tree = await opened(screen, pilot)
        before = lines(tree)[1:-1]
        await pilot.press("down", "slash", *"zzz", "enter")
        assert "no match for 'zzz'" in lines(tree)[-1]
        assert "esc: all nodes" in "".join(lines(tree))
        await pilot.press("enter", "space", "left", "right", "y", "n")  # nothing to act on
        assert tree.is_current
        await pilot.press("escape")
        assert [line.replace("▶", " ") for line in lines(tree)[1:-1]] == [line.replace("▶", " ") for line in before]
        await pilot.press("slash", "up", "up")
        assert tree._prompt._input.value == "zzz"
        tree._prompt._input.value = "/(/"
        await pilot.press("enter")
        assert "regular expression" in lines(tree)[-1]
        await pilot.press("q", "T")
        assert tree._prompt._input.value.endswith("qT")
        await pilot.press("ctrl+c")
        assert not tree._prompt.is_open
        assert [line.replace("▶", " ") for line in lines(tree)[1:-1]] == [line.replace("▶", " ") for line in before]


async def test_letters_are_keys_and_no_filter() -> None:
    async with explorer(model(), (120, 40)) as (screen, pilot):
        tree = await opened(screen, pilot)
        await pilot.press("x", "w", "b", "u")
        assert tree._fold_state is not None
        assert tree._fold_state.filter == ""
        await pilot.press("q")
        assert screen.app.screen is screen


async def test_backspace_undoes_unfolding_all() -> None:
    async with explorer(model(), (120, 40)) as (screen, pilot):
        tree = await opened(screen, pilot)
        before = lines(tree)
        await tree.run_action("all(True)")
        assert lines(tree) != before
        await pilot.press("backspace")
        assert lines(tree) == before
        await pilot.press("backspace")
        assert "no earlier view" in lines(tree)[-1]
        assert tree.is_current


async def test_y_copies_the_name_and_shift_y_the_rows_on_screen() -> None:
    copied: list[str] = []
    async with explorer(model(), (200, 40)) as (screen, pilot):
        tree = await opened(screen, pilot)
        tree.app.copy_to_clipboard = copied.append  # type: ignore[method-assign]
        await pilot.press("down", "down", "y", "Y")
        assert copied[0] == "forward"
        rows = copied[1].splitlines()
        assert max(map(len, rows)) <= 120
        assert [name in copied[1] for name in ("dispatch tree", "train", "forward", "backward")] == [True] * 4
        assert "sent to the terminal's clipboard" in lines(tree)[-1]


@pytest.mark.long
async def test_kernels_are_shown_and_found_by_their_decoded_name() -> None:
    shown = trace(
        cpu("aten::mm", 0, 10),
        runtime("cudaLaunchKernel", 2, 3, corr=1),
        kernel("ampere_sgemm_128x64_tn", 9, 9, corr=1),
    )
    async with explorer(shown, (160, 30)) as (screen, pilot):
        tree = await opened(screen, pilot)
        await pilot.press("slash", *"gemm fp32", "enter")
        assert "⇢ gemm fp32 128×64" in cursor_line(tree)
        await pilot.press("enter")
        assert screen.view_state.selected == event_of(shown, "ampere_sgemm_128x64_tn")


@pytest.mark.long
async def test_keys_that_cannot_act_say_why() -> None:
    async with explorer(two_steps(), (160, 40)) as (screen, pilot):
        tree = await opened(screen, pilot)
        await pilot.press("home", "left", "left")
        assert "at the top of the tree" in lines(tree)[-1]
        await pilot.press("enter")
        assert "a thread is not an event" in lines(tree)[-1]
        await tree.run_action("all(True)")
        await pilot.press("end", "right")
        assert "nothing to open" in lines(tree)[-1]
        await pilot.press("up")
        assert "nodes" in lines(tree)[-1]


@pytest.mark.parametrize("width", keep_some([80, 160], 1))
async def test_deep_nodes_keep_their_label_and_their_numbers(width: int) -> None:
    shown = trace(*(python(f"module.py({k}): function_{k}", k, 200 - 2 * k) for k in range(60)))
    async with explorer(shown, (width, 30)) as (screen, pilot):
        tree = await opened(screen, pilot)
        await pilot.press("slash", *"function_59", "enter")
        line = cursor_line(tree)
        assert "function_59" in line
        assert "…60" in line
        assert line.count("µs") == 2  # total and self: nothing ran on a GPU
        assert "? help" in lines(tree)[-1]


async def test_80_columns_show_the_self_time_where_nothing_ran_on_a_gpu() -> None:
    async with explorer(model(), (80, 24)) as (screen, pilot):
        tree = await opened(screen, pilot)
        assert lines(tree)[0].split()[-3:] == ["calls", "total", "self"]
        await pilot.press("asterisk")
        assert next(line for line in lines(tree) if "train" in line).split()[-5:] == ["1", "100.0", "µs", "5.00", "µs"]


async def test_80_columns_show_gpu_time_where_there_is_some() -> None:
    with_gpu = trace(cpu("op", 0, 20), runtime("cudaLaunchKernel", 5, 5, corr=1), kernel("k", 30, 5, corr=1))
    async with explorer(with_gpu, (80, 24)) as (screen, pilot):
        tree = await opened(screen, pilot)
        assert lines(tree)[0].split()[-6:] == ["calls", "total", "GPU", "%", "of", "it"]


@pytest.mark.long
async def test_captured_ops_are_below_the_launch_of_a_graph_and_open_their_longest_kernel() -> None:
    shown = readable_trace(*replays())
    async with explorer(shown, (120, 40)) as (screen, pilot):
        tree = await opened(screen, pilot)
        await tree.run_action("all(True)")
        await pilot.press("slash", *"aten::addmm (", "enter")
        row = cursor_line(tree)
        assert "aten::addmm (captured)" in row
        assert row.split()[-5:] == ["2", "61.0", "µs", "75", "%"]  # calls and GPU time: it has no CPU time
        await pilot.press("enter")
        await settled(pilot)
        assert screen.view_state.selected == event_of(shown, "gemm", 1)
