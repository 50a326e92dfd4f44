"""Test the pictures of the roofline, the waterfall and the memory curve: what a reader measures in them, and texts."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.helpers.command_line import call_main, read_error_line, read_json_answer
from tests.helpers.memory_fixtures import MEMORY
from tests.helpers.pattern_traces import ADD, GEMM, H200, op_with_work
from tests.helpers.shape_traces import load_entries, op_with_shapes
from tests.helpers.trace_builder import step
from torchprof_tui.answers.pictures.roofline import draw_roofline
from torchprof_tui.answers.pictures.svg import Axis, Canvas
from torchprof_tui.answers.roofline import build_roofline

SVG = "{http://www.w3.org/2000/svg}"
MEMORY_SAMPLE, H = "sample:train_gpt_stack_memory", "c10::BFloat16"
HOSTILE = '</text><script>alert("x")</script>\x1b[31m\x00\ufffe\u202e&amp;'


class DrawnPicture:
    """A picture as its reader sees it: pixels, and the labels of the axes to measure them by."""

    def __init__(self, svg: str) -> None:
        self.root = ElementTree.fromstring(svg)
        texts = list(self.root.iter(f"{SVG}text"))
        self.texts = [text for each in texts if (text := each.text or (each[0].tail if len(each) else None))]

    def find(self, name: str, key: str) -> list[ElementTree.Element]:
        """Find the elements of a name that carry a number."""
        return [each for each in self.root.iter(f"{SVG}{name}") if f"data-{key}" in each.attrib]

    def measure(self, axis: str, pixel: float, is_log: bool = False) -> float:
        """Read the value at a pixel off the labels of an axis, as with a ruler."""
        labels = self.find("text", f"{axis}-value")
        shift = 4 if axis == "y" else 0  # from the baseline of the label to its middle
        pixels = np.array([float(each.attrib[axis]) - shift for each in labels])
        values = np.array([float(each.attrib[f"data-{axis}-value"]) for each in labels])
        slope, base = np.polyfit(pixels, np.log10(values) if is_log else values, 1)
        value = slope * pixel + base
        return float(10**value if is_log else value)


def write_products(folder: Path, device: str = "NVIDIA H200") -> Path:
    """Write a trace of two products and another kernel: 8192³ in 1.5 ms is limited by arithmetic, 16 rows by memory."""
    entries = [step(1, 0, 3000)]
    for at, rows, length in ((10, 8192, 1500), (1600, 16, 40)):
        dims, grid = [[rows, 8192], [8192, 8192]], [rows // 16, 1, 1]
        entries += op_with_shapes("aten::mm", dims, [H, H], at, at + 20, length, GEMM, grid=grid)
    entries += op_with_work("aten::relu", 1700, 1720, 30, ADD)
    load_entries(folder, entries, {**H200, "name": device})
    return folder / "trace.json"


def draw(capsys: pytest.CaptureFixture[str], output: Path, *arguments: str) -> DrawnPicture:
    status, _, err = call_main(capsys, *arguments, "--no-cache", "-o", output)
    assert (status, err) == (0, "")
    return DrawnPicture(output.read_text(encoding="utf-8"))


def test_points_of_a_roofline_lie_at_their_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = draw(capsys, tmp_path / "out.svg", "export", str(write_products(tmp_path)), "--roofline")
    flops = {size: 2 * size * 8192 * 8192 for size in (8192, 16)}
    moved = {size: 2 * (8192 * 8192 + 2 * size * 8192) for size in (8192, 16)}
    expected = [(flops[size] / moved[size], flops[size] / ns / 1e3) for size, ns in ((16, 40e3), (8192, 1500e3))]
    circles = sorted(picture.find("circle", "tflops"), key=lambda each: float(each.attrib["cx"]))
    assert len(circles) == 2
    for circle, (intensity, tflops) in zip(circles, expected, strict=True):
        assert picture.measure("x", float(circle.attrib["cx"]), True) == pytest.approx(intensity, rel=1e-3)
        assert picture.measure("y", float(circle.attrib["cy"]), True) == pytest.approx(tflops, rel=1e-3)
    assert float(circles[1].attrib["r"]) > float(circles[0].attrib["r"])  # it takes more time
    limits = [text for text in picture.texts if text in ("memory", "compute", "neither", "unknown")]
    assert limits[-2:] == ["compute", "memory"]


def test_roofs_are_those_of_the_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An H200 reaches 4,800 GB/s and 989.4 TFLOP/s for bf16, which meet at 206 FLOPs a byte."""
    picture = draw(capsys, tmp_path / "out.svg", "export", str(write_products(tmp_path)), "--roofline")
    (peak,), (slope,) = picture.find("path", "tflops"), picture.find("path", "gb-s")
    x, y = re.findall(r"[\d.]+", peak.attrib["d"])[:2]
    assert picture.measure("x", float(x), True) == pytest.approx(989.4 / 4.8, rel=1e-2)
    assert picture.measure("y", float(y), True) == pytest.approx(989.4, rel=1e-2)
    for x, y in re.findall(r"([\d.]+),([\d.]+)", slope.attrib["d"]):
        ratio = picture.measure("y", float(y), True) / picture.measure("x", float(x), True)
        assert ratio == pytest.approx(4.8, rel=2e-2)


@pytest.mark.parametrize("device", [H200, None], ids=["H200", "unknown"])
def test_work_that_took_no_time_has_no_rate(tmp_path: Path, device: dict[str, object] | None) -> None:
    """The analysis gives NaN for it, which a picture has no place for."""
    dims, types = [[64, 64], [64, 64]], [H, H]
    entries = op_with_shapes("aten::mm", dims, types, 0, 20, 0, GEMM)
    entries += op_with_shapes("aten::mm", dims, types, 40, 60, 10, GEMM, grid=[7, 1, 1])
    roofline = build_roofline(load_entries(tmp_path, entries, device))
    assert [group.tflops is None for group in roofline.groups] == [False, True]
    assert len(DrawnPicture(draw_roofline(roofline)).find("circle", "tflops")) == 1


@pytest.mark.long
def test_the_waterfall_has_the_parts_of_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = "sample:geglu_mlp_eager", "sample:geglu_mlp_compile"
    picture = draw(capsys, tmp_path / "out.svg", "diff", *sides)
    answer = read_json_answer(capsys, "diff", *sides, "--json", "--no-cache")
    bars = picture.find("rect", "delta-ns")
    parts = {part["name"]: part["delta_us"] for part in answer["parts"]}
    drawn = [(each.find(f"{SVG}title").text.partition(":  ")[0], each) for each in bars]  # type: ignore[union-attr]
    for title, bar in drawn:
        left, width = float(bar.attrib["x"]), float(bar.attrib["width"])
        length = picture.measure("x", left + width) - picture.measure("x", left)
        delta = float(bar.attrib["data-delta-ns"])
        assert width == 1 or length == pytest.approx(abs(delta), rel=1e-3)
        name = next((name for name in parts if title.startswith(f"{name}: ")), None)
        assert name is None or delta == pytest.approx(parts[name] * 1000)
        assert ("~" in title) == (bar.attrib.get("fill-opacity") == "0.4")
    assert sum(float(bar.attrib["data-delta-ns"]) for bar in bars) == pytest.approx(answer["step_us"]["delta"] * 1000)
    assert answer["a"]["label"] in " ".join(picture.texts)
    assert len(bars) > 3


@pytest.mark.parametrize("device", ["GPU0", "CPU"])
def test_the_memory_curve_is_what_is_allocated(tmp_path: Path, capsys: pytest.CaptureFixture[str], device: str) -> None:
    picture = draw(capsys, tmp_path / "out.svg", "memory", MEMORY_SAMPLE, "--device", device)
    answer = read_json_answer(capsys, "memory", MEMORY_SAMPLE, "--device", device, "--json")
    peak = answer["peak"]
    (mark,) = picture.find("circle", "bytes")
    high = 0.01 * peak["allocated_bytes"]
    assert picture.measure("x", float(mark.attrib["cx"])) == pytest.approx(peak["time_ns"], rel=1e-3)
    assert picture.measure("y", float(mark.attrib["cy"])) == pytest.approx(peak["allocated_bytes"], abs=high)
    bands = picture.find("polygon", "band")
    assert {each.attrib["data-band"] for each in bands} >= {name for name, size in answer["categories"].items() if size}
    top = min(float(y) for band in bands for y in re.findall(r",([\d.]+)", band.attrib["points"]))
    assert picture.measure("y", top) == pytest.approx(peak["allocated_bytes"], abs=high)


def test_names_from_a_trace_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """XML has no form for some characters, so that a picture with one could not be opened."""
    path = write_products(tmp_path, f"NVIDIA H200{HOSTILE}")
    renamed = tmp_path / "a<b>&'\".json"
    path.rename(renamed)
    picture = draw(capsys, tmp_path / "out.svg", "export", str(renamed), "--roofline")
    tags = {each.tag.removeprefix(SVG) for each in picture.root.iter()}
    assert tags == {"svg", "title", "style", "rect", "text", "path", "circle"}
    shown = 'NVIDIA H200</text><script>alert("x")</script>·[31m···&amp;'
    assert picture.texts[1] == f"a<b>&'\".json · {shown}"
    titles = [each.text or "" for each in picture.root.iter(f"{SVG}title")]
    assert f"{shown}: memory 4,800 GB/s" in titles
    assert "\x1b" not in (tmp_path / "out.svg").read_text()


def test_names_are_escaped_on_a_part_of_a_screen(tmp_path: Path) -> None:
    """It has the size of its cells, the colours of the theme, and no page."""
    entries = op_with_shapes("aten::mm" + HOSTILE, [[64, 64], [64, 64]], [H, H], 0, 20, 90, GEMM + HOSTILE)
    trace = load_entries(tmp_path, entries, {**H200, "name": f"NVIDIA H200{HOSTILE}"})
    svg = draw_roofline(build_roofline(trace), Canvas(700, 280, 1.25, "#e0e0e0", "#a0a0a0", "#404040", "#121212"))
    picture = DrawnPicture(svg)
    tags = {each.tag.removeprefix(SVG) for each in picture.root.iter()}
    assert tags <= {"svg", "title", "style", "text", "path", "circle"}
    assert (picture.root.attrib["width"], picture.root.attrib["height"]) == ("700", "280")
    assert picture.root.attrib["viewBox"] == "0 0 560 224"
    assert "alert" in svg
    assert "\x1b" not in svg
    inside = [each for each in picture.root.iter(f"{SVG}text") if 0 <= float(each.attrib["x"]) <= 560]
    assert len(inside) == len(list(picture.root.iter(f"{SVG}text"))) > 5


def test_pictures_say_nothing_of_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "secret-project"
    folder.mkdir()
    draw(capsys, tmp_path / "out.svg", "export", str(write_products(folder)), "--roofline")
    assert "secret-project" not in (tmp_path / "out.svg").read_text()
    assert set(re.findall(r"https?://[^\"'\s)<]+", (tmp_path / "out.svg").read_text())) == {SVG.strip("{}")}


def test_a_picture_without_numbers_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.svg"
    for arguments, said in (
        (("export", "sample:attention_flash", "--roofline"), "no roofline: shapes were not recorded"),
        (("export", "sample:attention_flash"), "-o: which picture? --roofline here"),
        (("export", MEMORY_SAMPLE, "--roofline", "--rank", "3"), "--rank 3: no such rank"),
        (("memory", "sample:attention_flash"), "no memory was recorded"),
        (("memory", str(MEMORY / "snapshot.pickle.gz")), "-o: only the curve of a trace is drawn"),
        (("diff", "sample:attention_naive", "sample:attention_flash", "--screen"), "-o: leave --screen out"),
    ):
        assert said in read_error_line(capsys, *arguments, "-o", out)
    assert "-o: 'out.gif' ends in none of .svg, .png" in read_error_line(
        capsys, "memory", MEMORY_SAMPLE, "-o", "out.gif"
    )
    assert not out.exists()


def test_png_without_its_library_names_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    line = read_error_line(capsys, "memory", MEMORY_SAMPLE, "-o", tmp_path / "out.png")
    assert line.endswith("pip install 'torchprof-tui[pictures]'\n")
    assert not (tmp_path / "out.png").exists()


@pytest.mark.long
def test_png_is_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("resvg_py")
    svg = draw(capsys, tmp_path / "out.svg", "memory", MEMORY_SAMPLE)
    assert call_main(capsys, "memory", MEMORY_SAMPLE, "-o", tmp_path / "out.png")[0] == 0
    data = (tmp_path / "out.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == (2 * int(svg.root.attrib["width"]), 2 * int(svg.root.attrib["height"]))


@pytest.mark.parametrize("low", [0.0, 3.0, 99.5])
@pytest.mark.parametrize("span", [0.003, 1.0, 7.3, 4096.0])
def test_ticks_are_round_numbers_inside_the_axis(low: float, span: float) -> None:
    ticks = Axis(low, low + span, 0, 100).find_ticks()
    assert 3 <= len(ticks) <= 9
    assert low - 1e-9 <= ticks[0] <= ticks[-1] <= low + span + 1e-9
    steps = np.diff(ticks)
    assert np.allclose(steps, steps[0])
    assert f"{steps[0]:.0e}"[0] in "125"
    log_ticks = Axis(low + 0.5, (low + 0.5) * 1000, 0, 100, is_log=True).find_ticks()
    assert 3 <= len(log_ticks) <= 9


def test_the_roofline_is_printed_where_no_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1, the longest, is limited by arithmetic: right of the ridge, below the roof. 2 is on the slope's side."""
    path = write_products(tmp_path, f"NVIDIA H200{HOSTILE}")
    status, out, _ = call_main(capsys, "export", path, "--roofline", "--no-cache")
    lines = out.splitlines()
    assert status == 0
    assert max(map(len, lines[1:])) <= 80
    assert lines[0].startswith("trace.json · NVIDIA H200</text>")
    assert lines[0].endswith("·[31m···&amp; · memory 4,800 GB/s · bf16 989.4 TFLOP/s")
    plot = [line.partition("│")[2] for line in lines if "│" in line]
    roof = next(row for row in plot if "─" in row)
    row_of = {mark: number for mark in "12" for number, row in enumerate(plot) if mark in row}
    assert plot.index(roof) < row_of["1"] < row_of["2"]
    assert plot[row_of["1"]].index("1") > roof.index("─") > plot[row_of["2"]].index("2")
    column = plot[row_of["2"]].index("2")
    assert next(number for number, row in enumerate(plot) if row[column : column + 1] == "╱") < row_of["2"]
    rows = [re.split(r"  +", line.strip()) for line in lines if re.match(r"[12] gemm", line)]
    assert [row[1:] for row in rows] == [
        ["1.50 ms", "96 %", "733 TFLOP/s", "74 %", "compute"],
        ["40.0 µs", "2.5 %", "53.7 TFLOP/s", "70 %", "memory"],
    ]
