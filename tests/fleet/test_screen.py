"""The fleet screen by its keys: the command's numbers, groups, marks, finding, and ranks that come one by one."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest
from textual.pilot import Pilot

from tests.helpers.explorer_app import settled, until
from tests.helpers.fleet_app import FleetScreenApp, fleet_screen, make_source, sketch_job
from tests.helpers.fleet_sketches import make_sketch
from tests.helpers.golden_files import text_on_screen
from torchprof_fleet.analysis.heat_map import Measure
from torchprof_fleet.analysis.report import compare_fleet
from torchprof_fleet.answers import build_fleet
from torchprof_fleet.ui.fleet_lists import FleetList, format_factor
from torchprof_fleet.ui.fleet_screen import FleetScreen
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.help_screen import HelpScreen
from torchprof_tui.ui.common.status_line import StatusLine


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settled(pilot)


def status(screen: FleetScreen) -> str:
    return screen.query_one("#fleet-status", StatusLine).message


def labels(screen: FleetScreen) -> tuple[str, ...]:
    assert screen.map.content is not None
    return screen.map.content.labels


def map_measure(screen: FleetScreen) -> Measure:
    assert screen.map.content is not None
    return screen.map.content.measure


def app_of(screen: FleetScreen) -> FleetScreenApp:
    app: Any = screen.app
    assert isinstance(app, FleetScreenApp)
    return app


async def show(screen: FleetScreen, pilot: Pilot[None], which: FleetList) -> list[str]:
    while screen.which is not which:
        await press(pilot, "tab")
    return [row.text for row in screen._list.rows]


async def test_the_lists_have_the_numbers_of_the_command() -> None:
    document = build_fleet(compare_fleet(sketch_job()), 100)
    async with fleet_screen(make_source(sketch_job()), (240, 60)) as (screen, pilot):
        findings = " ".join(text.strip() for text in await show(screen, pilot, FleetList.FINDINGS))
        assert len(document.faults) == 4
        for finding in document.faults:
            assert finding.why in findings
            assert f"takes {finding.share:.1%} less" in findings
        ranks = await show(screen, pilot, FleetList.RANKS)
        assert [int(line.split()[0]) for line in ranks] == [each.rank for each in document.slowest_ranks]
        for line, each in zip(ranks, document.slowest_ranks, strict=True):
            assert format_factor(each.gpu_factor) in line
            assert format_factor(each.cpu_factor) in line
            assert format_duration(each.delay_us * 1000) in line
        hosts = await show(screen, pilot, FleetList.HOSTS)
        assert [line.split()[-1] for line in hosts] == [each.host for each in document.slowest_hosts]
        steps = await show(screen, pilot, FleetList.STEPS)
        assert [int(line.split()[0]) for line in steps] == [each.step for each in document.slowest_steps]
        what_ifs = await show(screen, pilot, FleetList.WHAT_IF)
        for row in document.what_if:
            assert any(
                f"without {row.without}" in line and format_duration(row.step_us * 1000) in line for line in what_ifs
            )


async def test_the_map_has_a_cell_for_each_rank_and_step_at_any_zoom() -> None:
    async with fleet_screen(make_source(sketch_job())) as (screen, pilot):
        content = screen.map.content
        assert content is not None
        assert content.values.shape == (8, 8)
        report = compare_fleet(sketch_job())
        assert np.array_equal(content.values, report.checker.late_share, equal_nan=True)
        drawn = []
        await press(pilot, "s", "s", "s")
        for _ in range(3):
            drawn.append(text_on_screen(screen))
            await press(pilot, "w")

        def read_cells(text: str) -> str:
            rows = (line.partition("│") for line in text.splitlines())
            return next(cells for name, bar, cells in rows if bar and "rank 4 " in name).strip()

        cells, wide = map(read_cells, drawn[:2])
        assert len(cells) == 8
        assert wide == "".join(sign * 2 for sign in cells)
        await press(pilot, "w")
        assert status(screen) == "the widest cells"


async def test_measures_and_groups() -> None:
    async with fleet_screen(make_source(sketch_job())) as (screen, pilot):
        by_rank = screen.map.content
        assert by_rank is not None
        await press(pilot, "b")
        by_host = screen.map.content
        assert by_host is not None
        assert by_host.labels == ("node000", "node001", "node002", "node003")
        assert np.array_equal(by_host.values, np.fmax(by_rank.values[::2], by_rank.values[1::2]), equal_nan=True)
        await press(pilot, "b")
        assert labels(screen) == ("DP 0", "DP 1", "DP 2", "DP 3")
        await press(pilot, "b")
        assert labels(screen) == ("PP 0", "PP 1")
        await press(pilot, "x")
        assert map_measure(screen) is Measure.STEP_TIME
        await press(pilot, "x", "x")
        assert map_measure(screen) is Measure.EXPOSED
        await press(pilot, "home", "enter")
        assert labels(screen) == ("rank 0", "rank 1", "rank 2", "rank 3")
        await press(pilot, "backspace")
        assert labels(screen) == ("PP 0", "PP 1")


async def test_enter_opens_the_rank_of_the_cursor_or_the_marked_ones_at_the_step() -> None:
    async with fleet_screen(make_source(sketch_job())) as (screen, pilot):
        await press(pilot, "home", "down", "right", "enter")
        numbers, step = screen.find_cursor()
        assert numbers == (1,)
        (asked,) = app_of(screen).asked
        assert (asked.specs, asked.step) == ((sketch_job()[1].file,), step)
        await press(pilot, "m", "down", "down", "m")
        assert "*rank 1" in text_on_screen(screen).replace("* rank", "*rank")
        await press(pilot, "enter")
        assert app_of(screen).asked[1].specs == (sketch_job()[1].file, sketch_job()[3].file)
        await press(pilot, "escape")
        assert not screen.chosen


async def test_finding_a_rank_or_a_host() -> None:
    async with fleet_screen(make_source(sketch_job())) as (screen, pilot):
        await press(pilot, "/", "5", "enter")
        assert screen.find_cursor()[0] == (5,)
        await press(pilot, "/", *"NODE001", "enter")
        assert screen.find_cursor()[0] == (2,)
        await press(pilot, "n")
        assert (screen.find_cursor()[0], status(screen)) == ((3,), "2 of 2 rows with 'NODE001'")
        await press(pilot, "n")
        assert screen.find_cursor()[0] == (2,)
        await press(pilot, "N")
        assert screen.find_cursor()[0] == (3,)
        await press(pilot, "/", *"nowhere", "enter")
        assert "no row with 'nowhere'" in status(screen)


async def test_entries_of_the_list_move_the_cursor() -> None:
    report = compare_fleet(sketch_job())
    async with fleet_screen(make_source(sketch_job())) as (screen, pilot):
        found = []
        for finding in report.findings:
            numbers, step = screen.find_cursor()
            assert numbers[0] == report.fleet.ranks[finding.ranks[0]]
            found.append(step)
            await press(pilot, "n")
        stall = next(index for index, finding in enumerate(report.findings) if finding.step is not None)
        assert found[stall] == report.findings[stall].step
        assert status(screen) == "the last entry"


async def test_a_slow_gpu_and_a_slow_cpu_are_told_apart() -> None:
    async with fleet_screen(make_source(sketch_job())) as (screen, pilot):
        await press(pilot, "/", "2", "enter")
        slow_gpu = " ".join(await show(screen, pilot, FleetList.SPEED))
        await press(pilot, "/", "6", "enter")
        slow_cpu = " ".join(row.text for row in screen._list.rows)
        await press(pilot, "/", "0", "enter")
        usual = " ".join(row.text for row in screen._list.rows)
        assert ": slow GPU" in slow_gpu
        assert ": slow CPU" in slow_cpu
        assert "as fast as the others vary" in usual


async def test_the_speed_of_a_group_is_the_factor_in_the_list_of_hosts() -> None:
    """Of an even number of ranks the median lies between the two middle ones."""
    async with fleet_screen(make_source(sketch_job()), (240, 60)) as (screen, pilot):
        hosts = {line.split()[-1]: line for line in await show(screen, pilot, FleetList.HOSTS)}
        while screen.grouping_name != "host":
            await press(pilot, "b")
        for row, host in enumerate(labels(screen)):
            screen._move_to(row, 0, "")
            await settled(pilot)
            speed = " ".join(await show(screen, pilot, FleetList.SPEED))
            for title in ("GPU", "CPU"):
                factor = speed.partition(f"its {title} takes ")[2].partition(" the time")[0]
                assert factor
                assert factor in hosts[host]


async def test_names_of_hosts_are_escaped_wherever_they_are_shown() -> None:
    hosts = ["a\x1b[2Jb", "a\x1b[2Jb", "other", "other"]
    sketches = [make_sketch(rank, np.array([10.0, 10.0]), host=host) for rank, host in enumerate(hosts)]
    async with fleet_screen(make_source(sketches)) as (screen, pilot):
        while screen.grouping_name != "host":
            await press(pilot, "b")
        await press(pilot, "home", "enter")
        assert screen.inside
        assert "a·[2Jb: rank" in screen.map.render_line(0).text
        for widget in screen.query("*"):
            lines = [widget.render_line(y).text for y in range(widget.size.height)]
            assert not any("\x1b" in line for line in lines)


async def test_rows_fill_as_ranks_come_and_reading_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchprof_fleet.ui.fleet_worker.MIN_COMPARE_SECONDS", 0.0)
    monkeypatch.setattr("torchprof_fleet.ui.fleet_worker.COMPARE_FACTOR", 0.0)
    source = make_source(sketch_job(), gate=threading.Event())
    async with fleet_screen(source, is_complete=False) as (screen, pilot):
        await until(pilot, lambda: screen.report is not None and len(screen.report.fleet) == 4)
        await settled(pilot)
        assert "sketched" in text_on_screen(screen)
        await press(pilot, "home", "down", "down")
        await press(pilot, "escape")
        await until(pilot, lambda: not screen.is_reading)
        assert "stopped" in text_on_screen(screen)
        assert screen.report is not None
        assert len(screen.report.fleet) == 4
        assert screen.find_cursor()[0] == (2,)


async def test_the_cursor_stays_on_its_rank_while_others_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchprof_fleet.ui.fleet_worker.MIN_COMPARE_SECONDS", 0.0)
    monkeypatch.setattr("torchprof_fleet.ui.fleet_worker.COMPARE_FACTOR", 0.0)
    gate, late_first = threading.Event(), tuple(reversed(sketch_job()))
    async with fleet_screen(make_source(late_first, gate=gate), is_complete=False) as (screen, pilot):
        await until(pilot, lambda: screen.report is not None and len(screen.report.fleet) == 4)
        await press(pilot, "home", "down", "right")
        before = screen.find_cursor()
        gate.set()
        await until(pilot, lambda: not screen.is_reading)
        await settled(pilot)
        assert screen.find_cursor() == before
        assert before[0] == (5,)


async def test_files_without_a_rank_are_explained() -> None:
    nameless = [make_sketch(-1, np.array([10.0]))]
    async with fleet_screen(make_source(nameless)) as (screen, pilot):
        assert "no rank number" in text_on_screen(screen)
        await press(pilot, "down", "enter", "x", "y", "/")
        assert "no rank number" in status(screen)


async def test_an_error_is_a_line() -> None:
    def fail(*_: object) -> tuple[str, ...]:
        raise OSError("the disk is gone")

    source = dataclasses.replace(make_source(sketch_job()), sketch=fail)
    async with fleet_screen(source) as (screen, _):
        assert "the disk is gone" in text_on_screen(screen)


async def test_ranks_of_two_steps_each_and_missing_steps() -> None:
    """A rank that lacks a step has a blank there, and a job without groups says so."""
    sketches = [make_sketch(0, np.array([10.0, 10.0])), make_sketch(1, np.array([10.0]))]
    async with fleet_screen(make_source(sketches)) as (screen, pilot):
        await press(pilot, "x", "b")
        assert "no groups are known" in status(screen)
        content = screen.map.content
        assert content is not None
        assert content.levels.tolist() == [[0, 0], [0, -1]]


async def test_copying() -> None:
    async with fleet_screen(make_source(sketch_job())) as (screen, pilot):
        await press(pilot, "home", "y")
        assert app_of(screen).copied.startswith("rank 0 node000\t")
        await press(pilot, "tab", "Y")
        assert app_of(screen).copied.splitlines()[0] == screen._list.header
        await press(pilot, "question_mark")
        assert isinstance(screen.app.screen, HelpScreen)
