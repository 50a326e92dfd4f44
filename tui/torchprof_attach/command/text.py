"""Print the processes that can be recorded, or what was recorded, as text."""

from __future__ import annotations

from rich.console import Console

from torchprof_attach.answers import Attach
from torchprof_tui.commands.common.tables import ConsoleTable, create_console
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.ui.common.number_format import format_file_size, format_share

UNKNOWN = "–"


def print_attach(answer: Attach, next_time: str) -> None:
    """Print the list, or the recordings. `next_time`: what to set where there is no way in."""
    console = create_console()
    for host in answer.unreachable:
        console.print(f"left out: {clean(host.host)}: {clean(host.reason)}", style="yellow")
    if answer.recordings:
        _print_recordings(console, answer)
        return
    if answer.hangs:
        for each in answer.hangs:
            console.print(clean(f"{each.sentence}: {each.command}" if each.command else each.sentence), soft_wrap=True)
            for problem in each.problems:
                console.print(f"  {clean(problem)}", style="yellow")
            if not each.command:
                console.print(next_time)
        return
    if not answer.jobs:
        console.print("no process of yours uses torch here")
    else:
        table = ConsoleTable("", "host", ">pid", ">rank", "way", ">it/s", ">GPU", ">memory", "command")
        for job in answer.jobs:
            table.add_cells(
                clean(job.host),
                str(job.pid),
                "launcher" if job.launcher else UNKNOWN if job.rank is None else str(job.rank),
                job.way or clean(job.why),
                UNKNOWN if job.iterations_per_second is None else f"{job.iterations_per_second:.3g}",
                UNKNOWN if job.gpu_load_share is None else format_share(job.gpu_load_share),
                UNKNOWN if job.gpu_memory_bytes is None else format_file_size(job.gpu_memory_bytes),
                clean(job.command),
            )
        console.print(table)
    if not any(job.way for job in answer.jobs):
        console.print(next_time)


def _print_recordings(console: Console, answer: Attach) -> None:
    for each in answer.recordings:
        where = f"{clean(each.host)} " if each.host != "localhost" else ""
        label = f"{where}pid {each.pid}" if each.rank is None else f"{where}rank {each.rank} (pid {each.pid})"
        if each.problem:
            console.print(f"{label}: {clean(each.problem)}", style="yellow")
        for file in each.files:
            kernels = f", {each.kernels:,} kernels" if each.kernels else ""
            count = f"{each.iterations} iteration{'s'[: each.iterations != 1]}" if each.iterations else "recorded"
            console.print(f"{label}: {count}{kernels}: {clean(file)}")
        for note in each.notes:
            console.print(f"  {clean(note)}", style="yellow")
    if answer.same_iterations is not None:
        console.print("all ranks: the same iterations" if answer.same_iterations else "the iterations differ")
