"""Write the schemas of `--json` and their page: ``python -m tools.json_pages [--check]``

The schemas in the package and `docs/json.md` are generated from the records in `answers/`; the examples
are what the commands print for samples. `--check` writes nothing and fails if a file differs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.answer_schemas import build_schema, find_unit, find_version, format_schema, list_answers
from torchprof_attach.answers import build_attach
from torchprof_attach.session import Job, Recorded
from torchprof_try.answers import build_tried
from torchprof_try.estimates import Saving
from torchprof_try.trials import BASELINE, TrialRequest, TrialRow, Trials
from torchprof_tui.answers.files import CacheUse
from torchprof_tui.answers.record import as_fields
from torchprof_tui.answers.recording import build_recording
from torchprof_tui.cli import main as run_program
from torchprof_tui.runs.run_result import RunResult

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "json.md"
SCHEMAS = ROOT / "tui" / "torchprof_tui" / "schemas"

EXAMPLES = {
    "info": "info sample:train_gpt_starved --json",
    "table": "table sample:train_gpt_starved --json --sort self_gpu --limit 1",
    "check": "check sample:train_gpt_starved --json",
    "chain": "chain sample:geglu_mlp_eager --event aten::mm --json",
    "critical-path": "critical-path sample:train_gpt_eager --json",
    "what-if": "what-if sample:train_gpt_eager --set launch=graph --json",
    "diff": "diff sample:geglu_mlp_eager sample:geglu_mlp_compile --json",
    "attach": "attach 71022 --steps 5 -o trace.json --json",
    "fleet": "fleet sample:train_gpt_2ranks --top 1 --json",
    "hang": f"hang {ROOT}/tests/fixtures/hang/skip_all_reduce.tar.xz --top 1 --json",
    "memory": "memory sample:train_gpt_stack_memory --top 1 --json",
    "slice": "slice sample:geglu_mlp_eager --range 0ms:0.5ms -o small.json --json",
    "export": "export sample:geglu_mlp_eager -o events.csv --json",
    "run": "run --json --active 3 -- python train.py",
    "try": "try --json -- train.py",
    "learn": "learn wide-step --json",
    "cache": "cache --json",
}
"""The command whose answer is shown for each schema."""

MACHINE = ("attach", "cache", "run", "try")
"""Commands whose answer depends on the machine."""

MAX_TEXT = 90
"""Characters of a text in an example."""

_COMMAND = "python -m tools.json_pages"
_INTRODUCTION = f"""# The answers of `--json`

Written by `{_COMMAND}` from the records that the program prints; a test keeps it up to date.

- Every answer is one JSON object on stdout, on one line. Its first field is `schema`: `torchprof-tui/COMMAND/VERSION`.
- Fields keep their names, types and units within a version; new fields may be added, so ignore those that you do not
  know. A field that may be missing is marked `?`.
- Times end in `_ns` or `_us`, sizes in `_bytes`; shares are 0 to 1; starts count from the trace's first event. Rates
  in `gb_s` are 10⁹ bytes per second, `tflops` 10¹² operations per second.
- `cannot_tell` says why an answer is missing. It is left out where there is one: an empty list without it is an answer.
- On an error stdout is empty, stderr has one line that starts with `torchprof-tui:`, and the exit status is 2. Only
  `run` prints what was recorded whenever the program was started, with the program's own exit status.

The schemas (JSON Schema, draft 2020-12) are part of the package; the units are in their keyword `x-unit`:

```python
import json
from importlib.resources import files

schema = json.loads((files("torchprof_tui") / "schemas" / "check.json").read_text())
```

In the examples lists are cut to their first entry and long texts end in `…`.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    options = parser.parse_args()
    if options.check:
        differing = find_differences()
        for path in differing:
            print(f"{path.relative_to(ROOT)}: run `{_COMMAND}`", file=sys.stderr)
        return int(bool(differing))
    SCHEMAS.mkdir(exist_ok=True)
    for path, text in render_files().items():
        path.write_text(text, encoding="utf-8")
    for path in _find_orphans():
        path.unlink()
    return 0


def find_differences() -> list[Path]:
    """List the files that are missing, differ from the records, or belong to no command."""
    wrong = [
        path for path, text in render_files().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    return sorted([*wrong, *_find_orphans()])


def _find_orphans() -> list[Path]:
    return [path for path in SCHEMAS.iterdir() if path.stem not in list_answers()]


def render_files() -> dict[Path, str]:
    """Render the schemas and the page: path → text."""
    return {**{SCHEMAS / f"{name}.json": format_schema(name) for name in list_answers()}, PAGE: render_page()}


# -- page -------------------------------------------------------------------------------------------------------


def render_page() -> str:
    examples = collect_examples()
    return "\n".join([_INTRODUCTION, *(_render_command(command, examples[command]) for command in list_answers())])


def _render_command(command: str, example: dict[str, Any]) -> str:
    schema = build_schema(command)
    lines = [
        f"## {command}",
        "",
        f"`torchprof-tui/{command}/{find_version(command)}`, schema `schemas/{command}.json`.",
        "",
    ]
    for document in list_answers()[command]:
        definition = schema["$defs"][document.__name__]
        lines += [definition["description"], "", "| field | type | unit | meaning |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(row)} |" for row in _list_fields(definition, schema["$defs"], "", {})]
        lines.append("")
    shown = json.dumps(_shorten(example), indent=1, ensure_ascii=False)
    asked = EXAMPLES[command].replace(f"{ROOT}/", "")
    lines += [f"`torchprof-tui {asked}`:", "", "```json", shown, "```", ""]
    return "\n".join(lines)


def _list_fields(
    record: dict[str, Any], definitions: dict[str, Any], prefix: str, shown: dict[str, str]
) -> Iterator[tuple[str, str, str, str]]:
    """List the fields of a record and of what lies in it: (path, type, unit, meaning).

    `shown`: record → the path below which its fields are listed already.
    """
    for name, schema in record["properties"].items():
        mark = "" if name in record["required"] else "?"
        inner, brackets = _find_record(schema, definitions)
        path = f"{prefix}{name}{brackets}"
        meaning = schema.get("description", "name and version of this form of answer" if name == "schema" else "")
        known = shown.get(inner) if inner else None
        if known is not None:
            meaning = f"{meaning}; fields as in `{known}`"
        yield f"`{path}`{mark}", _describe_type(schema, definitions), find_unit(name, schema), _escape(meaning)
        if inner and known is None:
            shown[inner] = path
            yield from _list_fields(definitions[inner], definitions, f"{path}.", shown)


def _find_record(schema: dict[str, Any], definitions: dict[str, Any]) -> tuple[str, str]:
    """Find the record that a field holds: (its name, "[]" for each list around it); ("", …) for none."""
    for option in schema.get("anyOf", [schema]):
        if "$ref" in option:
            name = option["$ref"].rpartition("/")[2]
            return (name, "") if "properties" in definitions[name] else ("", "")
        if option.get("type") == "array":
            name, brackets = _find_record(option.get("items", {}), definitions)
            return name, f"[]{brackets}" if name else ""
    return "", ""


def _describe_type(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Describe a type: `integer or null`, `list of text`, `"a", "b"`."""
    if "anyOf" in schema:
        return " or ".join(_describe_type(option, definitions) for option in schema["anyOf"])
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        return _describe_type(target, definitions) if "enum" in target else "object"
    if "enum" in schema:
        return ", ".join(f'"{value}"' for value in schema["enum"])
    if schema.get("type") == "array":
        items = schema.get("items", {})
        return f"list of {_describe_type(items, definitions)}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_describe_type(schema['additionalProperties'], definitions)}"
    return {"string": "text", "boolean": "true or false"}.get(str(schema.get("type")), str(schema.get("type", "any")))


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


# -- examples ---------------------------------------------------------------------------------------------------


def collect_examples() -> dict[str, dict[str, Any]]:
    """Collect an answer of every command. Those of MACHINE, which depend on the machine, are examples."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            examples = {command: _run(words) for command, words in EXAMPLES.items() if command not in MACHINE}
        finally:
            os.chdir(before)
    examples["info"] |= {"seconds": 0.0123, "cached": False}
    folder_of_run = "/home/me/runs/2026-11-02T10-15-00"
    result = RunResult(
        folder=folder_of_run,
        traces=(f"{folder_of_run}/trace.json.gz",),
        tables=(f"{folder_of_run}/table.txt",),
        exit_status=0,
        seconds=8.214,
        end_reason="finished",
        command=("python", "train.py"),
    )
    examples["run"] = as_fields(build_recording(result))
    job = Job("localhost", 71022, 0, 0, 2, "10.0.0.1:29500", "python train.py", "kineto", step_seconds=0.0031)
    content = {"steps": [1795465489561267697] * 5, "kernels": 299, "size": 981_865}
    recorded = Recorded(job, "kineto", ("trace.json",), content=content)
    examples["attach"] = as_fields(build_attach([job], [recorded], {}))
    cache = CacheUse(folder="/home/me/.cache/torchprof-tui", traces=12, bytes=48_213_004, limit_bytes=2_000_000_000)
    examples["cache"] = as_fields(cache)
    baseline = TrialRow(BASELINE, state="measured", step=0.022, memory=169_869_312)
    won = TrialRow(
        "no-anomaly-mode",
        "autograd's anomaly mode off",
        "torch.autograd.set_detect_anomaly(False)",
        "measured",
        saving=Saving(0.776, 0.643, 0.859),
        step=0.00482,
        memory=168_820_736,
        loss="equal",
    )
    trials = Trials(TrialRequest(("train.py",)), [baseline, won], device="NVIDIA H100 80GB HBM3", torch="2.11.0+cu130")
    examples["try"] = as_fields(build_tried(trials))
    return examples


def _run(words: str) -> dict[str, Any]:
    out = io.StringIO()
    has_cache = words.startswith(
        ("info", "table", "check", "chain", "critical-path", "what-if", "diff", "fleet", "memory", "slice")
    )
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        status = run_program([*words.split(), *(["--no-cache"] if has_cache else [])])
    if status:
        raise SystemExit(f"{words}: exit status {status}")
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def _shorten(value: Any) -> Any:
    """Cut lists to their first entry, and long texts."""
    if isinstance(value, dict):
        return {key: _shorten(each) for key, each in value.items()}
    if isinstance(value, list):
        is_short = len(value) <= 3 and all(isinstance(each, int | float | str) for each in value)
        shown = [_shorten(each) for each in value]
        return shown if is_short and len(str(shown)) <= MAX_TEXT else shown[:1]
    if isinstance(value, str):
        text = value.replace(f"{ROOT}/", "")  # before its length is measured: the page is the same in every checkout
        return f"{text[: MAX_TEXT - 1]}…" if len(text) > MAX_TEXT else text
    return value


if __name__ == "__main__":
    sys.exit(main())
