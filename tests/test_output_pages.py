"""Pages of docs/ with output: every output is what the program prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.paths import ROOT
from tools import output_pages


@pytest.mark.parametrize(
    "page", keep_some(output_pages.find_pages(), 2), ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_the_outputs_of_a_page_are_as_printed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("$ torchprof-tui ") == text.count("<!-- output: ")
    assert output_pages.build_page(text) == text, "run: python -m tools.output_pages"


def test_a_command_that_fails_is_no_output() -> None:
    with pytest.raises(SystemExit, match="exit status 2"):
        output_pages.print_output("info no/such/trace.json")
    with pytest.raises(SystemExit, match="exit status 1"):
        output_pages.print_output("info sample:geglu_mlp_eager | grep nothing-of-this-kind")


def test_filters_and_the_status_are_those_of_a_shell() -> None:
    first, second = output_pages.print_output("check sample:geglu_mlp_eager | head -2").splitlines()
    assert first == "…/geglu_mlp_eager.pt.trace.json.gz"
    assert "GPU busy" in second
    failing = "check sample:train_gpt_starved --problems --fail-on input-starved"
    assert output_pages.print_output(f"{failing}; echo $?").endswith("\n1\n")
    assert output_pages.print_output(f"{failing} | head -1; echo $?").endswith(".gz\n0\n")
