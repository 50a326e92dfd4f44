"""What all tests share."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, wraps
from itertools import compress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

from tests.helpers.frozen_heap import freeze_heap
from tests.helpers.handler_lookups import remembered_handlers
from tests.helpers.paths import FIXTURES, SAMPLES, SHARED_TRACES, is_long
from tests.helpers.unseen_frames import unseen_frames
from tests.helpers.warm_program import fork_workers
from torchprof_tui.trace.core.extensions import list_command_names
from torchprof_tui.trace.loading import load_in_process
from torchprof_tui.trace.model.trace import Trace

if "fleet" not in list_command_names():
    raise pytest.UsageError("the installed entry points are older than pyproject.toml; run again: pip install -e .")

# Machines that run tests are busy ones: how long an example takes says nothing about it.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=15)
settings.register_profile("thorough", settings.get_profile("untimed"), max_examples=1000)
settings.load_profile("untimed")


def _load_once(load: Callable[..., Trace]) -> Callable[..., Trace]:
    """Keep the last small samples and shared traces: dozens of tests load the same file, and none changes its trace."""

    @lru_cache(maxsize=40)
    def load_kept(spec: str, modified: float) -> Trace:
        return load(spec, cache=False)

    def load_trace(spec: str, report: Any = None, cache: bool = True) -> Trace:
        path = Path(spec)
        is_ours = not {SAMPLES, SHARED_TRACES, FIXTURES}.isdisjoint(path.parents)
        if cache or report is not None or not is_ours or not path.is_file() or is_long(path):
            return load(spec, report, cache)
        return load_kept(spec, path.stat().st_mtime)

    return load_trace


load_in_process.load_trace = _load_once(load_in_process.load_trace)  # before the tests import it
fork_workers()


gc.disable()  # until the tests are collected: all that this makes stays; going through it takes a sixth of the time

# Else the first test that asks may do so while its own folder is the temporary one, and all later ones get that.
tempfile.gettempdir()

# Many containers turn bytecode off; then each of the hundreds of programs that tests start compiles all its modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# pytest-xdist sets these for its workers; programs in the tests' own terminals would believe them.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# Started in the background (`&`, nohup, some CI), we ignore ctrl+c and hang-ups, and so would every program that a test
# ends with them.
for _sign, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_sign) is signal.SIG_IGN:
        signal.signal(_sign, _usual)


@pytest.hookimpl(tryfirst=True)  # before the cases of fixtures are made
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make no tests of the cases that a push leaves to the long run: a seventh of all, in each of the workers."""
    if metafunc.config.option.markexpr != "not long":  # of pyproject.toml
        return
    make_tests = metafunc.parametrize

    def leave_out_long_cases(names: Any, cases: Iterable[Any], *arguments: Any, **options: Any) -> None:
        listed = list(cases)
        kept = [not any(mark.name == "long" for mark in getattr(case, "marks", ())) for case in listed]
        if any(kept):
            listed = list(compress(listed, kept))
            if isinstance(options.get("ids"), Iterable):
                options["ids"] = list(compress(options["ids"], kept))
        make_tests(names, listed, *arguments, **options)

    metafunc.parametrize = leave_out_long_cases  # type: ignore[method-assign]


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection, which would go through all of them again and again.

    For good: the app thaws everything when it ends, and each full collection would take most of a second from then on.
    And less often than usual: the full ones took an eighth of the time of the screens' tests.
    """
    freeze_heap()
    gc.freeze = gc.unfreeze = lambda: None  # type: ignore[assignment]
    gc.set_threshold(5_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _parse_style_sheets_once() -> Iterator[None]:
    """The apps of a worker share the rules of style sheets, which are only read: a tenth of what starting one takes."""
    parse, parsed = Stylesheet._parse_rules, dict[Any, list[RuleSet]]()

    @wraps(parse)
    def find_rules(sheet: Stylesheet, css: str, read_from: Any, *place: Any, **named: Any) -> list[RuleSet]:
        key = (css, read_from, place, *named.items(), *sheet._variables.items())
        if key not in parsed:
            parsed[key] = parse(sheet, css, read_from, *place, **named)
        return parsed[key]

    Stylesheet._parse_rules = find_rules  # type: ignore[method-assign]
    with remembered_handlers():
        yield
    Stylesheet._parse_rules = parse  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def _paint_what_is_looked_at(request: pytest.FixtureRequest) -> Iterator[None]:
    """On a push, most tests of screens paint only what they look at; those marked `painted` and the long run, all."""
    is_push = request.config.option.markexpr == "not long"
    with contextlib.nullcontext() if request.node.get_closest_marker("painted") or not is_push else unseen_frames():
        yield


@pytest.fixture(autouse=True, scope="session")
def _own_homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests, and the programs that they start, keep out of the user's cache, configuration and recent traces."""
    home = tmp_path_factory.mktemp("home")
    ours = {"TORCHPROF_TUI_CACHE": str(home / "cache"), "XDG_STATE_HOME": str(home / "state")}
    ours["XDG_CONFIG_HOME"] = str(home / "config")
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    yield
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
