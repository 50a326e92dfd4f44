"""What all tests share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.helpers.paths import STORE_VARIABLE
from torchprof_tui.trace.core.extensions import list_command_names

if "fleet" not in list_command_names():
    raise pytest.UsageError("the installed entry points are older than pyproject.toml; run again: pip install -e .")

# Machines that run tests are busy ones: how long an example takes says nothing about it.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=25)
settings.register_profile("quick", settings.get_profile("untimed"), max_examples=15)  # --hypothesis-profile=quick
settings.register_profile("thorough", settings.get_profile("untimed"), max_examples=1000)
settings.load_profile("untimed")


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


# Tests make and drop many objects: at Python's own 700 a seventh of their time goes into looking for garbage.
gc.set_threshold(10_000, 10, 10)


def pytest_collection_finish() -> None:
    """Exclude what the tests are made of from collections: half a million objects."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Give all processes of the tests one folder of decoded traces."""
    if STORE_VARIABLE not in os.environ:
        os.environ[STORE_VARIABLE] = folder = tempfile.mkdtemp(prefix="torchprof-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


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
