"""Goldens at six sizes: the source screen on a file, on a file that has changed, and without a file."""

from __future__ import annotations

import pytest

from tests.helpers.explorer_app import explorer, settled
from tests.helpers.golden_files import cases_at_every_size, compare_golden, load_sample, text_on_screen
from torchprof_tui.analysis.dispatch.source_line import SourceLine
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.program_file import ProgramFile, ProgramFileReader
from torchprof_tui.ui.source.source_screen import SourceScreen

pytestmark = pytest.mark.painted

PLACE = "/home/ada/training/models/transformer.py"
MODULE = tuple(
    line
    for k in range(40)
    for line in (
        f"class Block{k}(nn.Module):",
        f"    def forward{k}(self, x):",
        f"        return self.mlp{k}(self.norm2(x + self.attention(self.norm1(x), mask=self.mask)))  # block {k} of 40",
        "",
    )
)
MISSING = f"no {PLACE} on this machine: the trace names it by the path where it was recorded"
CASES = {
    "source": (PLACE, "forward20"),
    "source-changed": (PLACE, "backward"),
    "source-missing": ("", "forward20"),
}


@cases_at_every_size("name", CASES)
async def test_source_screen(name: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    place, function = CASES[name]

    def read(_: ProgramFileReader) -> ProgramFile:
        if not place:
            raise TraceError(MISSING)
        return ProgramFile(place, MODULE)

    monkeypatch.setattr(ProgramFileReader, "read", read)
    line = SourceLine("frame", "transformer.py", 82, function, f"models/transformer.py(82): {function}")
    async with explorer(load_sample("matmul_add_64_cold_eager"), size) as (screen, pilot):
        await screen.app.push_screen(SourceScreen(line, "", lambda: size[1] // 3))
        await settled(pilot)
        drawn = text_on_screen(screen.app.screen)
    compare_golden(name, size, drawn)
