"""The tables of keys: how they are parsed, and that no screen declares keys elsewhere."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from textual.binding import ActiveBinding, Binding

from tests.helpers.paths import ROOT
from tools import keys_page
from torchprof_tui.app import TorchprofApp
from torchprof_tui.ui.all_bindings import find_bindings
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.bindings import (
    find_remappable_ids,
    format_key_name,
    group_by_section,
    list_bindings,
    rename_hints,
    style_hints,
)
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen

FIELDS = {"LessonPanel", "PathInput", "Prompt"}
"""Classes that take keys as a text field does: the answer of a case, a path, a prompt."""


def parse(table: str) -> list[Binding]:
    bindings = keys.parse_keys(table)
    assert all(isinstance(binding, Binding) for binding in bindings)
    return [binding for binding in bindings if isinstance(binding, Binding)]


def test_a_line_is_a_verb_with_its_keys_and_what_it_does_here() -> None:
    (binding,) = parse("move.left  sort(-1)  sort: sort by the column\n    to the left: back\n")
    assert (binding.key, binding.id, binding.action) == ("left,comma", "move.left", "sort(-1)")
    assert (binding.description, binding.tooltip) == ("sort", "sort by the column to the left: back")
    assert not binding.priority


def test_a_line_without_a_sentence_has_that_of_the_verb() -> None:
    (own,) = parse("write.copy  copy(True)\n")
    (shared,) = parse("= write.copy\n")
    assert (own.action, shared.action) == ("copy(True)", "copy(False)")
    assert own.tooltip == shared.tooltip == "copy the row"


def test_a_verb_may_also_act_in_text_fields() -> None:
    assert [binding.priority for binding in parse("move.clear !  back\n= program.help-f1 move.clear\n")] == [
        True,
        True,
        False,
    ]


def test_nine_keys_have_their_number() -> None:
    bindings = parse("panels.number  cause({})  cause {}: open it\n")
    assert [(binding.key, binding.action, binding.description) for binding in bindings] == [
        (str(number), f"cause({number})", f"cause {number}") for number in range(1, 10)
    ]


def test_a_line_of_the_verbs_has_keys_id_action_and_sentence() -> None:
    table = "left,comma !  move.left  step(-1)  left: the event\n    before\n1..9  a.b  go({})  go {}: open it\n"
    first, *nine, last = keys._parse_verbs(f"{table}x  c.d  x  x")
    assert first == Binding("left,comma", "step(-1)", "left", id="move.left", tooltip="the event before", priority=True)
    assert nine == [Binding(str(k), f"go({k})", f"go {k}", id="a.b", tooltip="open it") for k in range(1, 10)]
    assert last == Binding("x", "x", "x", id="c.d", tooltip="")


def test_a_screen_cannot_declare_a_key_or_a_verb_of_its_own() -> None:
    with pytest.raises(KeyError):
        parse("g  table.own  own  own: a verb that the table does not have\n")


def test_the_help_lists_enabled_bindings_with_a_sentence_by_section() -> None:
    node: Any = object()

    def make(key: str, name: str | None, tooltip: str, enabled: bool = True, shown: str | None = None) -> ActiveBinding:
        binding = Binding(key, f"do_{key}", "label", id=name, tooltip=tooltip, key_display=shown)
        return ActiveBinding(node, binding, enabled, tooltip)

    bindings = [
        make("q", "program.quit", "quit"),
        make("b", "move.b", "go"),
        make("slash", "move.a", "find"),
        make("x", "move.x", ""),
        make("y", "move.y", "not now", enabled=False),
        make("z", None, "has no id"),
        make("left", "move.b", "go"),
        make("w", "other.w", "of no section", shown="W W"),
    ]
    found = {
        title: [(key.keys, key.description, key.action) for key in listed]
        for title, listed in group_by_section(bindings).items()
    }
    assert found == {
        "Move and open": [("b ←", "go", "do_b"), ("/", "find", "do_slash")],
        "Program": [("q", "quit", "do_q"), ("z", "has no id", "do_z"), ("W W", "of no section", "do_w")],
    }
    assert list(found) == ["Move and open", "Program"]


def test_an_id_with_several_actions_on_one_screen_cannot_be_remapped() -> None:
    first = [Binding("a", "x", id="m.a"), Binding("b", "y", id="m.b"), Binding("c", "z", id="m.b"), Binding("d", "w")]
    second = [Binding("a", "q", id="m.a"), Binding("e", "r", id="m.e"), Binding("f", "r", id="m.e"), Binding("g", "v")]
    assert find_remappable_ids([first, second]) == {"m.a", "m.e"}


def test_hints_name_the_first_of_the_users_keys() -> None:
    bindings = [
        Binding("w", "a", id="m.w"),
        Binding("slash", "b", id="m.f"),
        Binding("x", "c", id="m.x"),
        Binding("enter", "d"),
    ]
    hints = [("wasd", "move"), ("/", "find"), ("x", "gone"), ("enter", "open")]
    keymap = {"m.w": "e,k", "m.f": "ctrl+f", "m.x": "", "m.q": "z"}
    assert rename_hints(hints, bindings, keymap) == [
        ("easd", "move"),
        ("ctrl+f", "find"),
        ("", "gone"),
        ("enter", "open"),
    ]
    assert rename_hints(hints, bindings, {}) == hints


def test_the_keys_of_hints_are_in_the_accent() -> None:
    hints = style_hints("enter open   q quit   type a name   page up, down rows   ↑ ↓ move   alone")
    assert hints.plain == "enter open   q quit   type a name   page up, down rows   ↑ ↓ move   alone"
    accents = [hints.plain[span.start : span.end] for span in hints.spans if span.style == "$accent bold"]
    assert accents == ["enter", "q", "page up, down", "↑ ↓"]


def test_there_are_few_verbs_and_each_key_is_one_of_them() -> None:
    verbs = keys.list_verbs()
    assert 40 < len(verbs) <= keys.MAX_VERBS == 60
    named = [key for verb in verbs for key in verb.key.split(",")]
    assert len(named) == len(set(named))


def test_a_key_means_the_same_on_all_screens() -> None:
    """Also on those of extensions; `1` to `9` are one verb, and textual's own bindings have no id."""
    screens = {**find_bindings(), "app": list_bindings(TorchprofApp)}
    assert {"explorer", "table", "diff", "fleet", "hang", "attach", "memory"} <= screens.keys()
    verbs_by_key: dict[str, set[str]] = defaultdict(set)
    for name, bindings in screens.items():
        for binding in bindings:
            if binding.id and name not in FIELDS:
                verbs_by_key[binding.key].add(binding.id)
    assert {key: sorted(verbs) for key, verbs in verbs_by_key.items() if len(verbs) > 1} == {}
    known = {verb.id for verb in keys.list_verbs()} | {
        "program.help-f1",
        "program.quit",
        "program.suspend",
        "program.start",
    }
    assert {verb for verbs in verbs_by_key.values() for verb in verbs} <= known


def test_every_verb_is_used_by_a_screen() -> None:
    used = {binding.id for bindings in find_bindings().values() for binding in bindings}
    used |= {binding.id for binding in list_bindings(TorchprofApp)}
    assert {verb.id for verb in keys.list_verbs()} - used == set()


def test_every_binding_is_in_the_page_below_its_screen() -> None:
    page = keys_page.PAGE.read_text(encoding="utf-8")
    for name, heading in keys_page.SCREENS.items():
        section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        for binding in find_bindings()[name]:
            if binding.id:
                shown = "1` … `9" if binding.key in "123456789" else format_key_name(binding.key)
                assert f"`{shown}`" in section, (name, binding.key)


def test_a_name_of_the_prompt_leads_to_an_action_of_the_lanes_or_the_app() -> None:
    named = keys.list_named_commands()
    assert {"doctor", "what-if", "hide", "chain", "memory", "compare", "record"} <= named.keys()
    for action, sentence in named.values():
        owner = TorchprofApp if action.startswith("app.") else ExplorerScreen
        assert hasattr(owner, f"action_{action.removeprefix('app.').partition('(')[0]}"), action
        assert sentence


def test_hints_keep_their_order() -> None:
    assert keys.parse_hints("? = help; n N = next, previous") == (("?", "help"), ("n N", "next, previous"))


def test_no_module_declares_keys_of_its_own() -> None:
    folder = ROOT / "tui" / "torchprof_tui"
    declaring = {path.name for path in folder.rglob("*.py") if " Binding(" in path.read_text(encoding="utf-8")}
    assert declaring == {"keys.py"}
