"""Test what the screens above the lanes do with keys and prompts, call by call, without an app."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torchprof_tui.ui.common import child_screen
from torchprof_tui.ui.common.child_screen import SEARCH_HINT, SearchScreen, cycle, find_adjacent, write_new_file
from torchprof_tui.ui.common.comparison_prompt import GO_TO, GO_TO_HINT
from torchprof_tui.ui.common.comparison_request import COMPARE
from torchprof_tui.ui.common.keys import EXPORT
from torchprof_tui.ui.common.status_line import PromptChanged, PromptClosed, PromptSubmitted, format_copy_message


class Recorder:
    """Records each call as text; `values`: its attributes that are no methods."""

    def __init__(self, calls: list[str], name: str, **values: Any) -> None:
        self._calls, self._name = calls, name
        vars(self).update(values)

    def __getattr__(self, method: str) -> Any:
        def call(*arguments: Any, **named: Any) -> list[str]:
            words = [*map(self._format, arguments), *(f"{key}={value!r}" for key, value in named.items())]
            self._calls.append(f"{self._name}.{method}({', '.join(words)})")
            return [f"{self._name}.{method}"]

        return call

    @staticmethod
    def _format(value: Any) -> str:
        return getattr(value, "__name__", None) or repr(value)


class Searching(SearchScreen):
    """`wrong`: what `search` and `submit` answer."""

    def __init__(self, calls: list[str], screens: list[Any]) -> None:
        super().__init__()
        self.calls, self.wrong, made = calls, "", partial(Recorder, calls)
        self._status, self._prompt = made("status"), made("prompt", is_open=True)  # type: ignore[assignment]
        self._comparison, self._worker = made("comparison"), made("worker")  # type: ignore[assignment]
        self.recorded_app = made("app", screen_stack=screens)

    @property
    def app(self) -> Any:  # type: ignore[override]
        return self.recorded_app

    def add_class(self, *names: str, update: bool = True) -> Any:
        self.calls.append(f"+{names}")

    def remove_class(self, *names: str, update: bool = True) -> Any:
        self.calls.append(f"-{names}")

    def dismiss(self, result: Any = None) -> Any:
        self.calls.append(f"dismiss({result})")

    def search(self, text: str) -> str:
        self.calls.append(f"search({text})")
        return self.wrong

    def submit(self, text: str) -> str:
        self.calls.append(f"submit({text})")
        return self.wrong

    def describe_found(self, text: str) -> str:
        return f"{text}: 3 found"

    def finish_search(self, text: str) -> None:
        self.calls.append(f"finish({text})")


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def screen(calls: list[str]) -> Searching:
    lanes = Recorder(calls, "lanes", TITLE="explorer")
    return Searching(calls, [Recorder(calls, "start", TITLE="start"), lanes, None])


CLOSED = ["-('asking',)", "prompt.close()"]


def test_the_status_line_shows_messages_keys_and_what_was_copied(
    screen: Searching, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_screen, "follow_theme", lambda each: calls.append(f"theme {each is screen}"))
    screen.follow_theme([("q", "quit")])
    screen.copy_text("a b", "a row")
    assert screen.report_written("wrote it", True) == ""
    assert screen.report_written("no room", False) == "no room"
    screen.action_leave()
    assert calls == [
        *("theme True", "status.show_keys([('q', 'quit')])", "app.copy_to_clipboard('a b')"),
        f"status.show_message({format_copy_message('a row')!r})",
        *("status.show_message('wrote it')", "dismiss(None)"),
    ]


def test_a_search_shows_what_it_finds_while_it_is_typed(screen: Searching, calls: list[str]) -> None:
    screen.on_prompt_changed(PromptChanged("search", "mm"))
    assert calls.pop().startswith("worker.debounce('search', functools.partial(")
    for text, wrong, hint in (("mm", "", "mm: 3 found"), ("", "", SEARCH_HINT), ("(", "no regex", "no regex")):
        screen.wrong = wrong
        screen._preview_search(text)
        assert calls == [f"search({text})", f"prompt.show_hint({hint!r})"]
        calls.clear()
    screen._prompt.is_open = False  # type: ignore[misc]
    screen._preview_search("late")
    screen.on_prompt_changed(PromptChanged("other", "mm"))
    screen.on_prompt_closed(PromptClosed("other"))
    assert calls == []
    screen.on_prompt_closed(PromptClosed("search"))
    assert calls == ["search()"]


def test_a_prompt_stays_open_until_its_text_is_right(screen: Searching, calls: list[str]) -> None:
    for purpose, done in (("search", ["finish(x)"]), ("write", [])):
        verb = "search" if purpose == "search" else "submit"
        screen.wrong = "not so"
        SearchScreen.on_prompt_submitted(screen, PromptSubmitted(purpose, "x"))
        assert calls == [f"{verb}(x)", "prompt.show_hint('not so')"]
        calls.clear()
        screen.wrong = ""
        SearchScreen.on_prompt_submitted(screen, PromptSubmitted(purpose, "x"))
        assert calls == [f"{verb}(x)", *CLOSED, *done]
        calls.clear()
    for purpose in (GO_TO, COMPARE):
        SearchScreen.on_prompt_submitted(screen, PromptSubmitted(purpose, "x"))
    assert calls == []


def test_the_lanes_below_are_asked_for_places_and_comparisons(screen: Searching, calls: list[str]) -> None:
    base = child_screen.ChildScreen
    screen.action_go_to()
    opened = f"prompt.open({GO_TO!r}, {GO_TO_HINT!r}, '', True, ['lanes.list_places'])"
    assert calls == ["lanes.list_places()", "+('asking',)", opened]
    calls.clear()
    screen.action_compare()
    assert calls[0] == "lanes.list_comparisons()"
    assert calls[1].startswith("comparison.open(")
    assert calls[1].endswith("['lanes.list_comparisons'])")
    calls.clear()
    base.on_prompt_changed(screen, PromptChanged(COMPARE, "b"))
    base.on_prompt_changed(screen, PromptChanged(GO_TO, "b"))
    base.on_prompt_submitted(screen, PromptSubmitted(COMPARE, "b"))
    assert calls == ["comparison.show_hint('b')", "comparison.submit('b')"]
    calls.clear()
    base.on_prompt_submitted(screen, PromptSubmitted(GO_TO, "10 ms"))
    base.on_prompt_submitted(screen, PromptSubmitted(GO_TO, f" {EXPORT} "))
    base.on_prompt_submitted(screen, PromptSubmitted("other", "x"))
    left = [*CLOSED, "dismiss(None)"]
    assert calls == [*left, "lanes.call_later(call, '10 ms')", *CLOSED, f"app.call_later(call, 'app.{EXPORT}')"]
    calls.clear()
    request: Any = "a request"
    screen.compare(request)
    screen.action_child("flame")
    base.on_prompt_closed(screen, PromptClosed(GO_TO))
    child = ["dismiss(None)", "lanes.call_later(call, \"child('flame')\")"]
    assert calls == [*left, "lanes.call_later(call, 'a request')", *child, *CLOSED]


def test_without_lanes_that_is_said(calls: list[str]) -> None:
    screen = Searching(calls, [])
    screen.action_go_to()
    screen.action_compare()
    assert calls == ["status.show_message('there are no lanes below this screen')"] * 2
    calls.clear()
    child_screen.ChildScreen.on_prompt_submitted(screen, PromptSubmitted(GO_TO, "10 ms"))
    request: Any = None
    screen.compare(request)
    assert "dismiss(None)" not in calls


def test_choices_are_cycled_in_both_directions() -> None:
    assert [cycle("abc", each, way) for each in "abc" for way in (1, -1)] == ["b", "c", "c", "a", "a", "b"]


@pytest.mark.parametrize("found", [[], [4], [1, 4, 7]])
def test_the_next_and_the_previous_of_ascending_numbers_are_found_cyclically(found: list[int]) -> None:
    for current in range(9):
        later, earlier = ([each for each in found if (each > current, each < current)[k]] for k in (0, 1))
        following = found.index((later or found)[0]) if found else -1
        before = found.index((earlier or found)[-1]) if found else -1
        numbers = np.array(found, np.int64)
        assert [find_adjacent(numbers, current, distance) for distance in (1, -1)] == [following, before]


def test_a_new_file_is_written_once_and_by_its_suffix(tmp_path: Path) -> None:
    formatters = {".txt": lambda: "text", ".csv": lambda: "a,b", ".md": lambda: "# a"}
    path = tmp_path / "rows.CSV"
    assert write_new_file(str(path), formatters, "3 rows") == (f"wrote 3 rows to {path}", True)
    assert path.read_text() == "a,b"
    again = f"{path} exists already and was not overwritten; choose another name"
    assert write_new_file(str(path), formatters, "3 rows") == (again, False)
    wrong = "rows.png: the name must end in .txt, .csv or .md"
    assert write_new_file(str(tmp_path / "rows.png"), formatters, "3 rows") == (wrong, False)
    line, is_written = write_new_file(str(tmp_path / "missing" / "rows.md"), formatters, "3 rows")
    assert not is_written
    assert "missing" in line
