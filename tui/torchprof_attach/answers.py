"""The answer of `attach`: the processes that can be recorded, and what was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from torchprof_attach.hang_watch import Dumped
from torchprof_attach.session import Job, Recorded, find_same_iterations
from torchprof_tui.answers.record import Answer, Record, about, fill


class AttachJob(Record, frozen=True, kw_only=True):
    """One process of the user that uses torch."""

    host: Annotated[str, about("as named; localhost: this one")]
    pid: Annotated[int, about("its number", "")]
    rank: Annotated[int | None, about("by the environment at its start; null: none is set", "")]
    world_size: Annotated[int | None, about("ranks of the job; null: unknown", "")]
    job: Annotated[str, about("what its ranks have in common: Slurm's number, or where they meet")]
    command: Annotated[str, about("its command line")]
    launcher: Annotated[bool, about("it starts ranks, and runs no iterations")]
    way: Annotated[str, about("of recording: kineto, remote_exec, server, dynolog, signal; empty: there is none")]
    why: Annotated[str, about("about the way, or why there is none; one line")]
    gpus: Annotated[list[int], about("indexes of the GPUs that it uses")]
    gpu_memory_bytes: Annotated[int | None, about("that it holds on GPUs; null: unknown")]
    gpu_load_share: Annotated[float | None, about("of its busiest GPU; null: unknown", "share")]
    iterations_per_second: Annotated[float | None, about("in its last recording of this session; null: none yet", "")]


class AttachRecording(Record, frozen=True, kw_only=True):
    """What became of one request."""

    host: Annotated[str, about("of the process")]
    pid: Annotated[int, about("of the process", "")]
    rank: Annotated[int | None, about("of the process", "")]
    way: Annotated[str, about("that was used")]
    files: Annotated[list[str], about("traces; [] where it failed")]
    iterations: Annotated[int, about("in the first file", "")]
    first_iteration: Annotated[int | None, about("its number, where the job says it; null: unknown", "")]
    begin_ns: Annotated[
        int | None, about("end of its first iteration since 1970, by the clock of its host; null: none")
    ]
    kernels: Annotated[int | None, about("in the first file; null: not counted", "")]
    bytes: Annotated[int | None, about("of the first file; null: not counted", "bytes")]
    notes: Annotated[list[str], about("what differs from what was asked for")]
    problem: Annotated[str, about("why there is no trace; empty: there is one")]


class UnreachableHost(Record, frozen=True, kw_only=True):
    """A host that could not be asked."""

    host: Annotated[str, about("as named")]
    reason: Annotated[str, about("why, one line")]


class AttachHang(Record, frozen=True, kw_only=True):
    """A job that made no progress, and what was taken of it."""

    evidence: Annotated[str, about("what showed that the process makes no progress")]
    sentence: Annotated[str, about("which rank did not come, as `hang` reads it; or why that cannot be told")]
    folder: Annotated[str, about("of the files")]
    command: Annotated[str, about("that opens them; empty: nothing could be taken")]
    problems: Annotated[list[str], about("of which ranks less than all was taken, and why")]


class Attach(Answer, frozen=True, kw_only=True, tag="torchprof-tui/attach/1"):
    """Running jobs of the user, and what was recorded of them."""

    jobs: Annotated[list[AttachJob], about("of all hosts, ranks of a job together")]
    recordings: Annotated[list[AttachRecording], about("one of each process; [] with --list")]
    same_iterations: Annotated[
        bool | None, about("several ranks began at the same iteration; null: one rank, or it cannot be told")
    ]
    hangs: Annotated[list[AttachHang], about("jobs that made no progress; [] without --watch-hang")]
    unreachable: Annotated[list[UnreachableHost], about("hosts that were left out; [] for none")]


ANSWERS = (Attach,)  # what `--json` prints


def build_attach(
    jobs: Sequence[Job], done: Sequence[Recorded], problems: Mapping[str, str], hangs: Sequence[Dumped] = ()
) -> Attach:
    """Build the answer of what was listed, recorded and dumped."""
    return Attach(
        jobs=[
            fill(
                AttachJob,
                job,
                gpus=list(job.gpus),
                iterations_per_second=round(1 / job.step_seconds, 3) if job.step_seconds else None,
            )
            for job in jobs
        ],
        recordings=[
            fill(
                AttachRecording,
                each.job,
                way=each.way,
                files=list(each.paths),
                iterations=len(each.steps),
                first_iteration=each.content.get("first_step"),
                begin_ns=each.steps[0] if each.steps else None,
                kernels=each.content.get("kernels"),
                bytes=each.content.get("size"),
                notes=list(each.notes),
                problem=each.problem,
            )
            for each in done
        ],
        same_iterations=find_same_iterations(done),
        hangs=[fill(AttachHang, each, folder=str(each.folder)) for each in hangs],
        unreachable=[UnreachableHost(host=host, reason=reason) for host, reason in sorted(problems.items())],
    )
