"""The tables of keys: how they are parsed, and that no screen declares keys elsewhere."""

from __future__ import annotations

from textual.binding import Binding

from tests.helpers.paths import ROOT
from torchprof_tui.ui.common import keys


def parse(table: str) -> list[Binding]:
    bindings = keys.parse_keys(table)
    assert all(isinstance(binding, Binding) for binding in bindings)
    return [binding for binding in bindings if isinstance(binding, Binding)]


def test_a_line_is_a_binding_with_a_label_and_a_sentence() -> None:
    (binding,) = parse("w,W  time.zoom  zoom(1)  zoom: zoom in: at the cursor,\n    or the pointer\n")
    assert (binding.key, binding.id, binding.action) == ("w,W", "time.zoom", "zoom(1)")
    assert (binding.description, binding.tooltip) == ("zoom", "zoom in: at the cursor, or the pointer")
    assert not binding.priority


def test_a_key_without_a_sentence_is_not_listed_in_the_help() -> None:
    (binding,) = parse("ctrl+c !  prompt.close  close  close\n")
    assert (binding.key, binding.tooltip, binding.priority) == ("ctrl+c", "", True)


def test_nine_keys_have_their_number() -> None:
    bindings = parse("1..9  panels.finding  finding({})  finding {}: open it\n")
    assert [(binding.key, binding.action, binding.description) for binding in bindings] == [
        (str(number), f"finding({number})", f"finding {number}") for number in range(1, 10)
    ]


def test_shared_keys_are_those_of_their_id() -> None:
    assert [(binding.key, binding.id) for binding in parse("= rows.up rows.down\n")] == [
        ("up", "rows.up"),
        ("down", "rows.down"),
    ]


def test_hints_keep_their_order() -> None:
    assert keys.parse_hints("? = help; n N = next, previous") == (("?", "help"), ("n N", "next, previous"))


def test_no_module_declares_keys_of_its_own() -> None:
    folder = ROOT / "tui" / "torchprof_tui"
    declaring = {path.name for path in folder.rglob("*.py") if " Binding(" in path.read_text(encoding="utf-8")}
    assert declaring == {"keys.py"}
