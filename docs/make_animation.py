"""Make the README's animation again: `python docs/make_animation.py`. Its frames are snapshots of the real app.

One SVG file without scripts or fonts, so that every browser, repository page and package index plays it. Most of a
screen is the same from one frame to the next: each rectangle and text is written once, in the group of the frames that
show it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

FOLDER = Path(__file__).resolve().parent
SAMPLE = "sample:train_gpt_starved"
SIZE = "120x34"
CAPTION_HEIGHT = 44  # below the screen, in the picture's units: 12.2 is the width of a character
MAX_BYTES = 500_000


@dataclass(frozen=True, slots=True)
class Scene:
    """Keys pressed after those of the scenes before, the caption, and how long it is shown."""

    keys: str
    caption: str
    seconds: float = 3.0


SCENES = (
    Scene("", "torchprof-tui trace.json.gz: CPU and GPU lanes of a training run, and the verdict", 4),
    Scene("c", "c   what an expert sees: where the time goes, what is wrong, what to do", 4),
    Scene("down,enter", "↓ enter   the evidence of a finding, on the lanes", 4),
    Scene("c,0,slash,f,l,a,s,h,enter", "/flash   search: a kernel among thousands of events"),
    Scene("w,w,w,w", "w   zoom in", 1.5),
    Scene("l", "l   the chain: step, annotation, ops, launch, kernel, each with its cost", 4),
    Scene("k", "k   the kernel: its launch, its occupancy, and what limits it", 4),
    Scene("t", "t   the profiler's table at this kernel, equal to key_averages()", 4),
    Scene("enter", "enter   one of its runs, on the lanes"),
)


@dataclass(frozen=True, slots=True)
class Frame:
    """The screen of one snapshot: its size in the picture's units, its rectangles, its texts."""

    width: float
    height: float
    background: str
    rectangles: tuple[str, ...]
    texts: tuple[str, ...]


def local_name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def shorten(number: str | None) -> str:
    """Round a coordinate to a tenth of a unit."""
    return f"{float(number or 0):.1f}".removesuffix(".0")


def read_styles(root: ElementTree.Element) -> dict[str, str]:
    """Return class → style of a snapshot; their numbers differ from one snapshot to the next."""
    sheet = next(element.text or "" for element in root if local_name(element) == "style")
    rules = (rule.partition("{") for rule in sheet.split("}"))
    return {name.strip().removeprefix("."): "".join(style.split("\n")).strip() for name, _, style in rules if style}


def read_frame(picture: str, classes: dict[str, str]) -> Frame:
    """Read a snapshot; `classes`, style → short class name, is extended by the styles that it uses."""
    root = ElementTree.fromstring(picture)
    styles = read_styles(root)
    _, _, width, height = (float(number) for number in root.attrib["viewBox"].split())
    window = next(element for element in root if local_name(element) == "rect")
    screen = next(element for element in root if "clip-path" in element.attrib)
    rectangles, texts = [], []
    for element in screen.iter():
        x, y = shorten(element.get("x")), shorten(element.get("y"))
        if local_name(element) == "rect" and element.get("fill") != window.get("fill"):
            size = f'width="{shorten(element.get("width"))}" height="{shorten(element.get("height"))}"'
            rectangles.append(f'<rect fill="{element.get("fill")}" x="{x}" y="{y}" {size}/>')
        elif local_name(element) == "text" and (element.text or "").strip("\xa0 "):
            name = classes.setdefault(styles[element.attrib["class"]], f"r{len(classes)}")
            length = shorten(element.get("textLength"))
            texts.append(
                f'<text class="{name}" x="{x}" y="{y}" textLength="{length}">{escape(element.text or "")}</text>'
            )
    return Frame(width, height, window.attrib["fill"], tuple(rectangles), tuple(texts))


def group_by_frames(parts: list[tuple[str, ...]]) -> dict[tuple[int, ...], list[str]]:
    """Group the elements of all frames by the frames that show them, in the order in which they are drawn."""
    shown: dict[str, list[int]] = defaultdict(list)
    for number, elements in enumerate(parts):
        for element in dict.fromkeys(elements):
            shown[element].append(number)
    groups: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for element, numbers in shown.items():
        groups[tuple(numbers)].append(element)
    return groups


def keyframes(name: str, numbers: tuple[int, ...], ends: list[float]) -> str:
    """Write the rule that shows a group in its frames; `ends` are the ends of all frames in seconds."""
    steps: list[str] = []
    for number in range(len(ends)):
        begin = 100 * (ends[number - 1] if number else 0) / ends[-1]
        visible = number in numbers
        if not steps or visible != (number - 1 in numbers):
            steps.append(f"{begin:.2f}%{{visibility:{'visible' if visible else 'hidden'}}}")
    still = "" if 0 in numbers else f"@media(prefers-reduced-motion){{.{name}{{visibility:hidden}}}}"
    play = (
        f"@media(prefers-reduced-motion:no-preference){{.{name}{{animation:{name} {ends[-1]:g}s step-end infinite}}}}"
    )
    return f"@keyframes {name}{{{''.join(steps)}}}{play}{still}"


def compose(frames: list[Frame], scenes: tuple[Scene, ...], classes: dict[str, str]) -> str:
    """Compose the animation; without motion, where the reader has asked for that, it is the first frame."""
    width, height = frames[0].width, frames[0].height + CAPTION_HEIGHT
    ends = [sum(scene.seconds for scene in scenes[: number + 1]) for number in range(len(scenes))]
    x, y = 20, frames[0].height + 24
    captions: list[tuple[str, ...]] = [
        (f'<text class="caption" x="{x}" y="{y:.0f}">{escape(scene.caption)}</text>',) for scene in scenes
    ]
    rules = [f".{name}{{{style}}}" for style, name in classes.items()]
    names: dict[tuple[int, ...], str] = {}
    body = []
    layers: list[list[tuple[str, ...]]] = [
        [frame.rectangles for frame in frames],
        [frame.texts for frame in frames],
        captions,
    ]
    for layer, translate in zip(layers, ("9,41", "9,41", "0,0"), strict=True):
        for numbers, elements in group_by_frames(layer).items():
            name = ""
            if len(numbers) < len(frames):
                if numbers not in names:
                    names[numbers] = f"f{len(names)}"
                    rules.append(keyframes(names[numbers], numbers, ends))
                name = f' class="{names[numbers]}"'
            body.append(f'<g{name} transform="translate({translate})">{"".join(elements)}</g>')
    font = "font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:20px;white-space:pre"
    sheet = "\n".join([f"text{{{font}}}", "rect{shape-rendering:crispEdges}", ".caption{fill:#feaf5f}", *rules])
    frame = f'<rect fill="{frames[0].background}" width="{width:g}" height="{height:.0f}" rx="8"/>'
    lights = "".join(
        f'<circle cx="{26 + 22 * number}" cy="22" r="7" fill="{colour}"/>'
        for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    start = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:.0f}">'
    return "\n".join([start, f"<style>{sheet}</style>", frame, lights, *body, "</svg>", ""])


def take_snapshots(scenes: tuple[Scene, ...]) -> list[str]:
    """Take the snapshot of each scene, after the keys of all scenes up to it."""
    pictures = []
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "XDG_STATE_HOME": empty}
        for number in range(len(scenes)):
            keys = ",".join(scene.keys for scene in scenes[: number + 1] if scene.keys)
            command = [sys.executable, "-m", "torchprof_tui", "snapshot", SAMPLE, "--size", SIZE, "-o", "frame.svg"]
            subprocess.run([*command, *(["--keys", keys] if keys else [])], check=True, cwd=empty, env=environment)
            pictures.append((Path(empty) / "frame.svg").read_text(encoding="utf-8"))
    return pictures


def main() -> None:
    classes: dict[str, str] = {}
    frames = [read_frame(picture, classes) for picture in take_snapshots(SCENES)]
    target = FOLDER / "animation.svg"
    target.write_text(compose(frames, SCENES, classes), encoding="utf-8")
    print(f"docs/{target.name}: {target.stat().st_size / 1000:.0f} KB, {len(frames)} frames")
    if target.stat().st_size > MAX_BYTES:
        sys.exit(f"larger than {MAX_BYTES / 1000:.0f} KB: show fewer scenes")


if __name__ == "__main__":
    main()
