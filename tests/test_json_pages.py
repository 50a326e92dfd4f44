"""The schemas in the package and `docs/json.md`: as the records have them, complete, and valid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.helpers.command_line import read_json_answer
from tests.helpers.json_schemas import find_violation
from tests.helpers.long_run import keep_some
from tools import json_pages
from tools.answer_schemas import build_schema, find_unit, find_version, list_answers, read_schema
from torchprof_tui.commands.common.parsers import build_parser, list_commands

UNITS = {"ns", "µs", "bytes", "share", "s", "GB/s", "TFLOP/s", "FLOP", "%", "blocks", ""}


def records(command: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects that a schema defines, by name."""
    for name, definition in read_schema(command)["$defs"].items():
        if "properties" in definition:
            yield name, definition


def test_the_files_are_as_the_records_have_them() -> None:
    assert json_pages.find_differences() == [], "run: python -m tools.json_pages"


@pytest.mark.parametrize("root", [Path("/repo"), Path("/home") / ("checkout" * 15)], ids=["short", "long"])
def test_examples_are_cut_alike_wherever_the_checkout_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pages, "ROOT", root)
    long_path = f"{root}/samples/{'a' * json_pages.MAX_TEXT}"
    shown = json_pages._shorten(
        {"path": f"{root}/samples/a.json", "paths": [f"{root}/a", f"{root}/b"], "long": long_path}
    )
    assert shown == {"path": "samples/a.json", "paths": ["a", "b"], "long": f"{long_path[len(str(root)) + 1 :][:89]}…"}


def test_every_command_with_json_has_a_schema() -> None:
    with_json = set()
    for name in list_commands():
        if "--json" in build_parser(name).format_help():
            with_json.add(name)
    assert with_json == set(list_answers())


@pytest.mark.parametrize("command", keep_some(list_answers(), 4))
def test_a_schema_is_valid_and_describes_every_field(command: str) -> None:
    schema = read_schema(command)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for record, definition in records(command):
        assert definition["description"], record
        assert "additionalProperties" not in definition, record
        for name, field in definition["properties"].items():
            if name == "schema":
                assert field == {"enum": [f"torchprof-tui/{command}/{find_version(command)}"]}
                continue
            assert field.get("description"), f"{record}.{name}"
            assert {"type", "anyOf", "enum", "$ref"} & field.keys(), f"{record}.{name}"
            assert find_unit(name, field) in UNITS
            is_text = field.get("type") == "string"
            assert not (is_text and re.search(r"_(ns|us|bytes)$", name)), f"{record}.{name}"


@pytest.mark.parametrize("command", list_answers())
def test_the_page_has_every_field_and_a_valid_example(command: str) -> None:
    text = json_pages.PAGE.read_text(encoding="utf-8")
    section = text[text.index(f"\n## {command}\n") :].split("\n## ", 2)[1]
    for record, definition in records(command):
        for name in definition["properties"]:
            assert re.search(rf"`[\w.\[\]]*\b{re.escape(name)}(\[\])*`", section), f"{record}.{name}"
    example = json.loads(section[section.index("```json") + 7 : section.rindex("```")])
    assert find_violation(example) == ""


@pytest.mark.long
def test_a_field_that_no_schema_describes_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    """The validator of these tests can fail: for a new field, a missing one, a wrong type and a wrong state."""
    example = read_json_answer(capsys, "check", "sample:train_gpt_2ranks", "--json")
    assert find_violation(example) == ""
    assert "surprise" in find_violation({**example, "surprise": 1}, "Check")
    assert find_violation({**example, "verdict": {**example["verdict"], "surprise": 1}}, "Check")
    assert find_violation({key: value for key, value in example.items() if key != "scope"})
    assert find_violation({**example, "scope": {**example["scope"], "start_ns": 1.5}}, "Check")
    pattern = {**example["patterns"][0], "state": "maybe"}
    assert find_violation({**example, "patterns": [pattern]}, "Check")
    open_schema = Draft202012Validator(build_schema("check"))
    assert open_schema.is_valid({**example, "surprise": 1})  # readers must expect new fields
