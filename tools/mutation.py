"""Change one operator or number at a time and run the tests of its module: ``python -m tools.mutation --seed 1``

Prints which changes (mutants) the tests catch, the difference of each that survives, and the share that was caught.
Mutants are drawn at random from the modules in TOPICS. Each is imported from a copy of the package, so the working tree
stays as it is. A survivor needs a test, or changes nothing that can be observed.

mutmut and cosmic-ray run one test command for all mutants; here that would be all of the tests, minutes for each.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tui" / "torchprof_tui"

TOPICS: dict[str, tuple[str, str]] = {
    "decoder": (
        "trace/decode/timestamps.py trace/decode/chunker.py trace/decode/json_document.py "
        "trace/decode/entry_decoder.py trace/decode/template/*.py",
        "tests/trace/decode --ignore=tests/trace/decode/test_real_traces.py",
    ),
    "nesting": (
        "trace/build/nesting.py trace/build/pushed_events.py trace/build/lane_*.py",
        "tests/trace/build/test_nesting.py tests/trace/build/test_lane_order.py tests/trace/build "
        "--ignore=tests/trace/build/test_threads.py",
    ),
    "idle time": (
        "analysis/patterns/engine/gpu_idle_causes.py analysis/patterns/engine/host_activity.py "
        "analysis/time/intervals.py",
        "tests/analysis/patterns/engine tests/analysis/time tests/analysis/patterns/verdict",
    ),
    "diff": (
        "analysis/compare/account.py analysis/compare/ste*.py",
        "tests/analysis/compare",
    ),
    "replay": (
        "analysis/critical_path/*.py",
        "tests/analysis/critical_path tests/analysis/what_if tests/analysis/rank_path",
    ),
    "memory": ("analysis/memory/*.py", "tests/analysis/memory"),
    "clocks": ("trace/ranks/*.py", "tests/trace/ranks"),
    "cache": ("trace/core/checksum.py trace/storage/*.py", "tests/trace/core/test_checksum.py tests/trace/storage"),
    "redaction": (
        "analysis/completeness/private_metadata.py trace/core/printable.py",
        "tests/analysis/completeness tests/trace/core/test_printable.py tests/analysis/slicing",
    ),
    "keys": (
        "ui/common/debounced_worker.py ui/common/*keys.py",
        "tests/ui/common/test_debounced_worker.py tests/ui/common/test_ordered_keys.py "
        "tests/ui/common/test_remapped_keys.py tests/ui/explorer/test_keys.py",
    ),
}
"""Topic -> (its modules, below the package; its tests, those that catch most first)."""

SECONDS = 600
"""Time limit of the tests of one mutant, which may never end; that counts as caught."""

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_NAMES = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
    "median": "mean",
}
_STRINGS = {"left": "right", "right": "left"}


@dataclass(frozen=True)
class Mutant:
    """A module (its path below the package) and its text with one change; `line` counts from 1."""

    topic: str
    module: str
    line: int
    text: str

    @property
    def difference(self) -> str:
        """The changed lines."""
        before = (PACKAGE / self.module).read_text(encoding="utf-8").splitlines()
        lines = difflib.unified_diff(before, self.text.splitlines(), lineterm="", n=0)
        return "\n".join(line for line in lines if line[:3] not in ("---", "+++"))


def list_mutants() -> list[Mutant]:
    """List every mutant of every module, in a fixed order."""
    mutants = []
    for topic, (patterns, _) in TOPICS.items():
        for path in sorted({path for pattern in patterns.split() for path in PACKAGE.glob(pattern)}):
            text = path.read_text(encoding="utf-8")
            for node, changed in _list_changes(ast.parse(text), is_function=False):
                mutant = _replace(text, node, ast.unparse(changed))
                mutants.append(Mutant(topic, str(path.relative_to(PACKAGE)), node.lineno, mutant))
    return mutants


def _list_changes(node: ast.AST, is_function: bool) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """List nodes below one with what replaces them. Only functions: constants of modules are mostly tuned sizes."""
    is_function = is_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.arguments):
        return
    if is_function and isinstance(node, ast.expr | ast.stmt):
        yield from _change(node)
    for name, value in ast.iter_fields(node):
        if name in ("decorator_list", "annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _list_changes(child, is_function)


def _change(node: Any) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """List the changes of one node: what is replaced, and by what."""
    changed = copy.copy(node)
    if isinstance(node, ast.Compare):
        changed.ops = [_COMPARED[type(node.ops[0])](), *node.ops[1:]]
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _COMPUTED:
        changed.op = _COMPUTED[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        changed = node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
        changed.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.Constant) and node.value in _STRINGS:
        changed.value = _STRINGS[node.value]
    elif isinstance(node, ast.Name) and node.id in _NAMES:
        changed.id = _NAMES[node.id]
    elif isinstance(node, ast.Attribute) and node.attr in _NAMES:
        changed.attr = _NAMES[node.attr]
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        node, changed = node.test, ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        changed = ast.Pass()
    else:
        return
    yield node, changed


def _replace(text: str, node: ast.expr | ast.stmt, by: str) -> str:
    """Replace the text of a node; columns of ast count bytes."""
    lines = text.encode().splitlines(keepends=True)
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    is_statement = isinstance(node, ast.stmt)
    lines[first : last + 1] = [before + (by if is_statement else f"({by})").encode() + after]
    return b"".join(lines).decode()


def run_tests(topic: str, mutant: Mutant | None) -> str:
    """Run the tests of a topic with one mutant, or none, in a copy of the package; returns "caught" or "survived"."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        shutil.copytree(PACKAGE, Path(folder) / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            (Path(folder) / PACKAGE.name / mutant.module).write_text(mutant.text, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        command += ["-m", "not slow and not long", *TOPICS[topic][1].split()]
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            status = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=SECONDS, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return "caught"
    return {0: "survived", 1: "caught", 2: "caught"}.get(status, f"pytest ended with {status}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--topic", choices=TOPICS, action="append", help="only mutants of this topic; may be repeated")
    options = parser.parse_args()
    mutants = [mutant for mutant in list_mutants() if mutant.topic in (options.topic or TOPICS)]
    drawn = random.Random(options.seed).sample(mutants, min(options.count, len(mutants)))
    print(f"{len(drawn)} of {len(mutants):,} mutants, seed {options.seed}", flush=True)
    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        topics = sorted({mutant.topic for mutant in drawn})
        for topic, result in zip(topics, pool.map(lambda topic: run_tests(topic, None), topics), strict=True):
            if result != "survived":
                print(f"the tests of {topic} fail without a mutant")
                return 2
        results = pool.map(lambda mutant: run_tests(mutant.topic, mutant), drawn)
        for number, (mutant, result) in enumerate(zip(drawn, results, strict=True), start=1):
            counts[result] += 1
            print(f"{number:3} {result:8} {mutant.topic}: {mutant.module}:{mutant.line}", flush=True)
            if result != "caught":
                print(mutant.difference, flush=True)
    print(f"{counts['caught']} of {len(drawn)} caught ({counts['caught'] / max(len(drawn), 1):.0%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
