"""Notes on events: inside a wide bar, else after it, else before it; and the classes of kernels."""

from __future__ import annotations

import pytest

from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, memcpy, overhead, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common.name_display import DisplayNames
from torchprof_tui.ui.lanes.event_labels import EventNotes

REQUEST = "Activity Buffer Request"
SAYS = "the profiler allocates memory for its records"


def event_of(made: Trace, name: str) -> int:
    return next(row for row in range(len(made)) if made.names[int(made.name[row])] == name)


def notes_of(*entries: Entry) -> tuple[Trace, EventNotes]:
    made = trace(*entries)
    return made, EventNotes(made, Checker(made).find_event_notes())


def line(made: Trace, notes: EventNotes, event: int, t0: float, t1: float, width: int) -> str:
    """Return the text of the notes in the event's row."""
    viewport = Viewport(int(t0 * 1000), int(t1 * 1000), width, made.span)
    written = notes.draw_notes(viewport).get((int(made.lane[event]), int(made.row[event])), [])
    shown = [" "] * width
    for x, character in written:
        assert 0 <= x < width
        assert shown[x] == " "
        shown[x] = character
    return "".join(shown)


def test_a_narrow_bar_has_its_note_behind_it() -> None:
    made, notes = notes_of(cpu("aten::mm", 0, 200), overhead(REQUEST, 10, 3))
    event = event_of(made, REQUEST)
    assert notes.get_note(event) == SAYS
    assert line(made, notes, event, 0, 200, 200) == f"{' ' * 14}‹{SAYS}›".ljust(200)
    cut = line(made, notes, event, 0, 40, 40)  # one cell is 1 µs: 24 are left
    assert cut.rstrip() == f"{' ' * 14}‹the profiler allocates …"


def test_at_the_right_edge_it_stands_before_the_bar_and_leaves_others_alone() -> None:
    made, notes = notes_of(cpu("aten::mm", 0, 200), overhead(REQUEST, 10, 3), overhead("Buffer Flush", 190, 8))
    shown = line(made, notes, event_of(made, REQUEST), 0, 200, 200)
    assert shown.startswith(f"{' ' * 14}‹{SAYS}› ")
    assert shown.rstrip().endswith("‹the profiler empties its buffers of records›")
    assert shown[189:] == " " * 11


def test_a_wide_bar_has_its_note_inside() -> None:
    made, notes = notes_of(cpu("aten::mm", 0, 200), overhead(REQUEST, 10, 150))
    event = event_of(made, REQUEST)
    assert notes.format_bar_text(event, REQUEST, 149) == f"{REQUEST} · {SAYS}"
    assert not line(made, notes, event, 0, 200, 200).strip()
    assert notes.format_bar_text(event, REQUEST, 30) == ""  # no room for both
    assert notes.format_bar_text(event_of(made, "aten::mm"), "aten::mm", 149) == ""


def test_only_the_profilers_own_events_say_what_the_profiler_does() -> None:
    made, notes = notes_of(annotation("Resource", 0, 50), overhead("Resource", 100, 5))
    notes_by_kind = {made.event(row).kind.name: notes.get_note(row) for row in range(len(made))}
    assert notes_by_kind["ANNOTATION"] == ""
    assert notes_by_kind["OVERHEAD"] == "the profiler registers contexts and streams"


def test_the_trailing_sync_says_what_it_covered() -> None:
    made, notes = notes_of(
        step(1, 0, 50),
        cpu("aten::add", 5, 10),
        runtime("cudaLaunchKernel", 6, 4, 1),
        kernel("k", 100, 26, 1),
        runtime("cudaDeviceSynchronize", 20, 5, 2),
        runtime("cudaDeviceSynchronize", 60, 1780, 3),
    )
    sync_notes = [notes.get_note(row) for row in range(len(made)) if "Synchronize" in made.event(row).name]
    assert sync_notes == ["", "covers 26.0 µs of GPU work: 99 % idle"]


@pytest.mark.parametrize(
    ("name", "width", "shown"),
    [
        ("nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT", 60, "gemm · nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT"),
        ("nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT", 20, "gemm bf16 64×8"),
        ("nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT", 10, "gemm bf16…"),
        ("nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT", 5, "gemm"),
        ("nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT", 3, "ge…"),
        ("triton_poi_fused_gelu_mul_0", 60, "triton fused · triton_poi_fused_gelu_mul_0"),
        ("my_kernel(int)", 60, "my_kernel(int)"),  # no class is known
        ("Memcpy DtoD (Device -> Device)", 60, "Memcpy DtoD (Device -> Device)"),
    ],
)
def test_kernels_carry_their_class(name: str, width: int, shown: str) -> None:
    assert DisplayNames([name]).fit_name_with_class(0, width) == shown


def test_every_piece_of_gpu_work_fits_its_bar() -> None:
    made = trace(memcpy("Memcpy DtoD (Device -> Device)", 0, 5), kernel("void at::native::foo<int>(int)", 10, 5))
    names = DisplayNames(made.names)
    for number in range(len(made.names)):
        for width in range(1, 50):
            assert len(names.fit_name_with_class(number, width)) <= width
