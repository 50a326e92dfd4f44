"""Sessions of checks; `nox -l` lists them.

`.ci/run` runs lint, types, contracts and wheel, and the tests by the README's own command, which leaves out those of
`long`. The workflows run all of them. With `--no-venv` a session uses the tools that are installed beside nox. uv is
used where it is installed; `UV_TORCH_BACKEND=cpu` then spares the gigabytes of CUDA that torch brings on Linux.
"""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|venv"
nox.options.sessions = ["lint", "types", "contracts", "wheel"]

ROOT = Path(__file__).parent
PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
LOWEST_PYTHON = PYTHONS[0]
CONSTRAINTS = ("-c", "constraints.txt")
SAMPLE = "sample:matmul_add_64_cold_eager"

CUDA_PACKAGES = ("cuda-", "nvidia-", "triton==")
"""What torch pins itself; constraints.txt leaves it out, as the CPU build needs none of it."""


def group(*names: str) -> list[str]:
    """Return the requirements of dependency groups; older pips know no `--group`."""
    return [need for name in names for need in nox.project.dependency_groups(PROJECT, name)]


def install(session: nox.Session, *needs: str) -> None:
    """Install into the environment of the session; with `--no-venv` everything is there."""
    if session.venv_backend != "none":
        session.install(*needs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting."""
    install(session, *CONSTRAINTS, "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types, strictly."""
    install(session, *CONSTRAINTS, "-e", ".", *group("dev"))
    session.run("mypy")


@nox.session
def contracts(session: nox.Session) -> None:
    """Check which package imports which."""
    install(session, *CONSTRAINTS, "-e", ".", "import-linter")
    session.run("lint-imports")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests on each Python at hand; arguments after `--` go to pytest."""
    install(session, *CONSTRAINTS, "-e", ".", *group("dev", "ci", "docs"))
    session.run("pytest", *session.posargs)


@nox.session
def long(session: nox.Session) -> None:
    """Run the tests that each push leaves out, and more examples of every property."""
    install(session, *CONSTRAINTS, "-e", ".", *group("dev", "ci", "docs"))
    session.run("pytest", "-m", "long or hypothesis", "--hypothesis-profile=thorough", *session.posargs)


@nox.session(python=PYTHONS)
def without_torch(session: nox.Session) -> None:
    """Run the tests with what the README's command installs: without torch and S3, whose tests are skipped."""
    install(session, *CONSTRAINTS, "-e", ".", *group("dev"))
    session.run("pytest", *session.posargs)


@nox.session(python=LOWEST_PYTHON)
def lowest(session: nox.Session) -> None:
    """Run the tests with the lowest versions that pyproject.toml allows, on the lowest Python."""
    session.install("uv")
    pins = str(session.cache_dir / "lowest.txt")  # no folder of temporary files: its length would reach the tests
    resolve = ("uv", "pip", "compile", "-q", "pyproject.toml", "--resolution", "lowest-direct", "--extra", "remote")
    session.run(*resolve, "--python-version", LOWEST_PYTHON, "--no-header", "--no-annotate", "-o", pins)
    session.install("-c", pins, "-e", ".", *group("dev"))
    session.run("pytest", *session.posargs)


@nox.session(python=PYTHONS[-1])
def newest(session: nox.Session) -> None:
    """Run the tests with the newest versions; without goldens, which hold for one version of Textual."""
    session.install("-U", "-e", ".", *group("dev"))
    session.run("pytest", "-k", "not golden", *session.posargs)


@nox.session
@nox.parametrize("version", ["2.11", "2.13", "newest"])
def torch(session: nox.Session, version: str) -> None:
    """Compare the table with live `key_averages()` of a torch, and run the recorder's tests with it."""
    session.install(*([] if version == "newest" else [f"torch=={version}.0"]), "torch", "-e", ".", *group("dev"))
    live = ("tests/analysis/table/test_live_key_averages.py", "tests/profiler_runs")
    session.run("pytest", *(session.posargs or live))


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the package, check its metadata, and use the wheel outside of the checkout beside a foreign `tui/`."""
    install(session, *CONSTRAINTS, *group("publish"))
    session.run("validate-pyproject", "pyproject.toml")
    folder = Path(session.create_tmp()).resolve()
    packages = folder / "dist"
    shutil.rmtree(packages, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(packages), str(ROOT))
    (built,), (source,) = packages.glob("*.whl"), packages.glob("*.tar.gz")
    session.run("twine", "check", "--strict", str(built), str(source))
    session.run("check-wheel-contents", str(built))
    with zipfile.ZipFile(built) as archive:
        check_contents(session, built.name, archive.namelist(), ".dist-info/licenses/")
    with tarfile.open(source) as sources:
        check_contents(session, source.name, sources.getnames(), f"{source.name.removesuffix('.tar.gz')}/")
    use_elsewhere(session, built, folder / "elsewhere")


def check_contents(session: nox.Session, archive: str, names: Iterable[str], folder: str) -> None:
    """End the session where the licence, the notice of the samples or a sample is missing."""
    for need in (f"{folder}LICENSE", f"{folder}NOTICE", f"{SAMPLE.removeprefix('sample:')}.pt.trace.json.gz"):
        if not any(name.endswith(need) for name in names):
            session.error(f"{archive} has no {need}")


def use_elsewhere(session: nox.Session, built: Path, folder: Path) -> None:
    """Install the wheel into an environment of its own and run it from a folder that has a foreign package `tui`."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tui").mkdir(parents=True)
    (folder / "tui" / "__init__.py").write_text('raise ImportError("another package of this name was imported")\n')
    session.run("python", "-m", "venv", str(folder / "venv"))
    scripts = folder / "venv" / "bin"
    session.run(str(scripts / "pip"), "install", "-q", *CONSTRAINTS, str(built), external=True)
    program, python = str(scripts / "torchprof-tui"), str(scripts / "python")
    session.chdir(folder)
    outside = {"PYTHONPATH": None, "XDG_CACHE_HOME": str(folder / "cache")}
    session.run(program, "--version", external=True, env=outside)
    session.run(program, "check", SAMPLE, external=True, silent=True, env=outside)
    session.run(python, "-m", "torchprof_tui", "info", SAMPLE, external=True, silent=True, env=outside)
    imports = "import torchprof_tui, torchprof_runs, torchprof_samples as samples"
    session.run(python, "-c", f"{imports}; assert 'site-packages' in samples.__file__", external=True, env=outside)


@nox.session
def constraints(session: nox.Session) -> None:
    """Write constraints.txt for all Pythons: adds what is missing; `-- --upgrade` raises every version."""
    session.install("uv")
    path = ROOT / "constraints.txt"
    comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    resolve = ("uv", "pip", "compile", "-q", "pyproject.toml", "--universal", "--python-version", LOWEST_PYTHON)
    extras = [f"--extra={name}" for name in ("remote", "s3", "arrow")]  # those that CI installs
    needs = (*extras, *(f"--group={name}" for name in ("dev", "ci", "docs", "publish")))
    session.run(*resolve, *needs, "--no-header", "--no-annotate", "-o", str(path), *session.posargs)
    pins = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*comments, *(pin for pin in pins if not pin.startswith(CUDA_PACKAGES)), ""]))
