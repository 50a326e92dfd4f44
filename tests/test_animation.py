"""Tests of the README's animation: its frames from snapshots, and the file that is shipped."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from docs.make_animation import MAX_BYTES, SCENES, Frame, Scene, compose, group_by_frames, read_frame
from tests.helpers.paths import ROOT

PICTURE = (ROOT / "docs" / "animation.svg").read_text(encoding="utf-8")
SNAPSHOT = """<svg viewBox="0 0 100 60" xmlns="http://www.w3.org/2000/svg"><style>
.terminal-1-r1 { fill: #dadada;font-weight: bold }
.terminal-1-r2 { fill: #87d75f }
</style><rect fill="#121212" width="98" height="58"/><text>title</text>
<g transform="translate(9, 41)" clip-path="url(#c)"><rect fill="#121212" x="0" y="1.5" width="12.2" height="24.65"/>
<rect fill="#5fafd7" x="12.2000001" y="1.5" width="12.2" height="24.65"/><g>
<text class="terminal-1-r2" x="0" y="20" textLength="48.8">a&#160;&lt;b</text>
<text class="terminal-1-r1" x="48.8" y="20" textLength="12.2">&#160;</text></g></g></svg>"""


def frame(*texts: str) -> Frame:
    return Frame(100, 60, "#121212", (), texts)


def test_a_snapshot_is_read_without_what_is_not_seen() -> None:
    classes: dict[str, str] = {}
    found = read_frame(SNAPSHOT, classes)
    assert found.rectangles == ('<rect fill="#5fafd7" x="12.2" y="1.5" width="12.2" height="24.6"/>',)
    assert found.texts == ('<text class="r0" x="0" y="20" textLength="48.8">a\xa0&lt;b</text>',)
    assert classes == {"fill: #87d75f": "r0"}


def test_each_element_is_written_once_for_all_of_its_frames() -> None:
    groups = group_by_frames([("a", "b"), ("a", "c"), ("a", "b")])
    assert groups == {(0, 1, 2): ["a"], (0, 2): ["b"], (1,): ["c"]}


def test_a_group_is_visible_in_its_frames_and_stays_where_motion_is_unwanted() -> None:
    scenes = (Scene("", "one", 1), Scene("c", "two", 3))
    text = compose([frame("<text>a</text>"), frame("<text>b</text>")], scenes, {})
    first, second = re.findall(r"@keyframes (\w+)\{(.*?)\}\}?@media", text, re.DOTALL)[:2]
    assert first[1].startswith("0.00%{visibility:visible}25.00%{visibility:hidden")
    assert second[1].startswith("0.00%{visibility:hidden}25.00%{visibility:visible")
    assert f"@media(prefers-reduced-motion){{.{second[0]}{{visibility:hidden}}}}" in text
    assert f"@media(prefers-reduced-motion){{.{first[0]}" not in text


def test_the_shipped_animation_is_small_complete_and_needs_nothing_else() -> None:
    assert len(PICTURE.encode()) < MAX_BYTES
    root = ElementTree.fromstring(PICTURE)
    texts = [element.text for element in root.iter() if element.get("class") == "caption"]
    assert texts == [scene.caption for scene in SCENES]
    assert not re.search(r"<script|<image|href=|@import|@font-face|url\(", PICTURE)
    for word in ("input-starved", "aten::scaled_dot_product_attention", "occupancy", "CPU total"):
        assert word in PICTURE.replace("\xa0", " "), word
