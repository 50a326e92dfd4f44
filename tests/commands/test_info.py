"""`info` for people: what a narrow terminal cuts, and that a pipe cuts nothing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.helpers.command_line import call_main, read_error_line
from tests.helpers.rank_traces import late_rank
from tests.helpers.trace_builder import cpu, kernel
from torchprof_tui.commands.common import tables
from torchprof_tui.commands.common.tables import ConsoleTable

LONG = "void cutlass::" + "Kernel<" * 30
COUNT = 12_345


def one_line(out: str, word: str) -> str:
    (line,) = [line for line in out.splitlines() if word in line]
    return line


def drawn(width: int, table: ConsoleTable) -> list[str]:
    console = Console(width=width, file=None, record=True, force_terminal=False)
    with console.capture() as caught:
        console.print(table)
    return caught.get().splitlines()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_counts_never_shrink_and_texts_do(width: int) -> None:
    table = ConsoleTable("Odd", ">times", "what", "for example")
    table.add_cells(f"{COUNT:,}", "GPU work without launch", LONG)
    table.add_cells("1", "overlap", "short")
    title, _, first, second = drawn(width, table)
    assert title.strip() == "Odd"
    assert first.startswith(f"{COUNT:,}  ")
    assert first.rstrip().endswith("…")
    assert second.split()[0] == "1"
    assert max(map(len, (first, second))) <= width


def test_a_pipe_cuts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{'rank' * 20}.json"
    entries = [kernel(LONG, k, 2) for k in range(1200)]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [cpu("op", 0, 9), *entries]}))
    _, out, _ = call_main(capsys, "info", path)
    line = one_line(out, "GPU work without launch")
    assert line.startswith("1,200  ")
    assert LONG[:100] in line  # as much as an example has of it
    folder = tmp_path / "ranks"
    folder.mkdir()
    late_rank(2).write(folder, name=f"{'x' * 90}-rank{{}}.json")
    _, out, _ = call_main(capsys, "info", folder)
    assert f"{'x' * 90}-rank1.json" in out
    _, table, _ = call_main(capsys, "table", folder, "--of", "arrivals")
    assert "…" not in out + table


def test_a_terminal_cuts_names_before_anything_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The numbers of every rank are whole at 80 columns, however long the files' names are."""
    from torchprof_tui.answers.info import build_info
    from torchprof_tui.answers.record import as_fields
    from torchprof_tui.commands.common.load import load_specs
    from torchprof_tui.commands.info.text import print_summary

    late_rank(2).write(tmp_path, name=f"{'x' * 90}-rank{{}}.json")
    console = Console(width=80, force_terminal=True, color_system=None, highlight=False, markup=False, emoji=False)
    monkeypatch.setattr("torchprof_tui.commands.info.text.create_console", lambda: console)
    read_json_answer = as_fields(build_info(load_specs([str(tmp_path)], cache=False), None))
    with console.capture() as caught:
        print_summary("ranks", read_json_answer)
    lines = [line for line in caught.get().splitlines() if "xxx" in line]
    assert len(lines) == 2
    for rank, line in zip(read_json_answer["ranks"], lines, strict=True):
        assert line.split()[0] == str(rank["rank"])
        assert f" {rank['drawn']:,}  " in line
        assert "…" in line


def test_without_a_terminal_the_width_is_no_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert tables.create_console().width == tables.PIPE_WIDTH


def test_what_is_cut_before_its_first_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Too little is left to tell what it is, but that it was cut can be told."""
    text = json.dumps({"schemaVersion": 1, "traceEvents": [cpu(f"op {k}", k, 1) for k in range(2000)]}).encode()
    packed = tmp_path / "cut.json.gz"
    packed.write_bytes(gzip.compress(text)[:60])
    said = f"{packed}: cut short before its first event: the gzip data stops at byte 60, before its end mark"
    assert read_error_line(capsys, "info", packed) == f"torchprof-tui: {said}\n"
    plain = tmp_path / "cut.json"
    plain.write_bytes(b'{ "sche')
    assert "cut short after 7 bytes of text, before its first event" in read_error_line(capsys, "info", plain)
    other = tmp_path / "other.json.gz"
    other.write_bytes(gzip.compress(b"<html>" + bytes(range(65, 91)) * 5000)[:60])
    assert "a page of HTML" in read_error_line(capsys, "info", other)


def test_the_communication_of_each_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = late_rank().write(tmp_path)
    _, out, _ = call_main(capsys, "info", "--no-cache", "--json", *paths)
    cards = json.loads(out)["communication"]
    assert [card["rank"] for card in cards] == [0, 1, 2]
    assert all(card["hidden_ns"] + card["exposed_ns"] == card["total_ns"] > 0 for card in cards)
    assert all(card["waiting_ns"] + card["transfer_ns"] == card["total_ns"] for card in cards)
    assert cards[0]["waiting_ns"] > 100 * cards[1]["waiting_ns"]  # rank 1 is late
    assert cards[0]["waiting_source"] == "ranks"
    _, out, _ = call_main(capsys, "info", "--no-cache", *paths)
    table = out.partition("Communication")[2].partition("What was recorded")[0]
    assert "all-reduce (NCCL)" in table
    assert "rank 1: " in table


def test_a_trace_without_communication_has_a_card_and_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [kernel("gemm", 0, 9)]}))
    _, out, _ = call_main(capsys, "info", "--no-cache", "--json", path)
    (card,) = json.loads(out)["communication"]
    assert (card["count"], card["total_ns"], card["operations"]) == (0, 0, [])
    _, out, _ = call_main(capsys, "info", "--no-cache", path)
    assert "Communication" not in out


def test_the_time_of_a_cut_file_without_gpu_work_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check` cannot tell either: the GPU's work may be what was lost."""
    text = json.dumps({"traceEvents": [cpu("aten::mm", 10 * k, 5) for k in range(50)]})
    for name, content, is_known in (("whole.json", text, True), ("cut.json", text[: len(text) // 2], False)):
        path = tmp_path / name
        path.write_text(content)
        _, out, _ = call_main(capsys, "info", path, "--json")
        assert bool(json.loads(out)["time"]) == is_known
