"""The records of `diff --json`. Times are those of one step, in µs, unless a record says otherwise."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from torchprof_tui.analysis.compare.matched_rows import RowStatus
from torchprof_tui.analysis.patterns.verdict.verdict import Regime
from torchprof_tui.commands.common.json_document import Document, Record, about


class SideRecord(Record, frozen=True, kw_only=True):
    """One of the two recordings and what of it is compared."""

    label: Annotated[str, about("name of the trace")]
    steps: Annotated[list[int], about("numbers of the compared steps; [] for a range or a trace without steps")]
    start_ns: Annotated[int, about("of what is compared, from the trace's first event")]
    duration_ns: Annotated[int, about("of what is compared")]
    left_out: Annotated[list[str], about("steps that are not compared, and why")]


class DifferenceRecord(Record, frozen=True, kw_only=True):
    """A property in which the recordings differ, so that times may not be comparable."""

    what: Annotated[str, about("the property")]
    a: Annotated[str, about("its value in A")]
    b: Annotated[str, about("its value in B")]
    consequence: Annotated[str, about("what that means for the comparison")]


class StepTimeRecord(Record, frozen=True, kw_only=True):
    """How long a step takes."""

    a: Annotated[float, about("in A", "µs")]
    b: Annotated[float, about("in B", "µs")]
    delta: Annotated[float, about("B less A", "µs")]
    noise: Annotated[float | None, about("differences up to this may be chance; null if unknown", "µs")]
    within_noise: Annotated[bool | None, about("the difference may be chance; null if unknown")]
    cannot_tell: Annotated[str | UnsetType, about("why the noise is unknown; only then")] = UNSET


class PartRecord(Record, frozen=True, kw_only=True):
    """A part of the step's time."""

    id: Annotated[str, about("stable name of the part")]
    name: Annotated[str, about("the part in words")]
    a_us: Annotated[float, about("in A")]
    b_us: Annotated[float, about("in B")]
    delta_us: Annotated[float, about("B less A")]
    noise_us: Annotated[float | None, about("differences up to this may be chance; null if unknown")]
    within_noise: Annotated[bool | None, about("the difference may be chance; null if unknown")]


class PerStepRecord(Record, frozen=True, kw_only=True):
    """A number per step on both sides."""

    a: Annotated[float, about("in A")]
    b: Annotated[float, about("in B")]


class SideVerdictRecord(Record, frozen=True, kw_only=True):
    """The verdict on one side, as `check` gives it."""

    regime: Annotated[Regime, about("what limits the program")]
    gpu_busy: Annotated[float | None, about("time in which the GPU works; null without a GPU", "share")]
    first: Annotated[str, about("what costs most and what to do about it")]


class ChangeCauseRecord(Record, frozen=True, kw_only=True):
    """A part of the step that changed, and what explains it."""

    cause: Annotated[str, about("id of the part")]
    name: Annotated[str, about("the part in words")]
    delta_us: Annotated[float, about("B less A")]
    within_noise: Annotated[bool | None, about("the difference may be chance; null if unknown")]
    pattern: Annotated[str | None, about("id of the pattern that explains most of it; null for none")]
    side: Annotated[str, about("side on which the pattern fired: a or b; empty for none")]
    line: Annotated[str | None, about("file:lineno of the code behind it; null if not recorded")]
    line_text: Annotated[str | None, about("the same to show")]


class SidePatternRecord(Record, frozen=True, kw_only=True):
    """A pattern that fired on one side only."""

    id: Annotated[str, about("stable name of the pattern")]
    seen: Annotated[str, about("that trace's numbers")]
    share: Annotated[float, about("time at stake of the compared time")]


class DiffVerdictRecord(Record, frozen=True, kw_only=True):
    """The answer that is read first."""

    first: Annotated[str, about("how much longer or shorter a step is, and whether by chance")]
    launches: Annotated[str | None, about("how the number of launches changed; null if it did not")]
    a: Annotated[SideVerdictRecord, about("verdict on A")]
    b: Annotated[SideVerdictRecord, about("verdict on B")]
    causes: Annotated[list[ChangeCauseRecord], about("largest changes")]
    patterns_a_only: Annotated[list[SidePatternRecord], about("problems of A that B does not have")]
    patterns_b_only: Annotated[list[SidePatternRecord], about("problems of B that A does not have")]


class RankChangeRecord(Record, frozen=True, kw_only=True):
    """The step of one rank."""

    rank: Annotated[int, about("number of the rank")]
    a_us: Annotated[float, about("in A")]
    b_us: Annotated[float, about("in B")]
    delta_us: Annotated[float, about("B less A")]


class RowRecord(Record, frozen=True, kw_only=True):
    """Matched calls of one step."""

    status: Annotated[RowStatus, about("how the two sides correspond")]
    name_a: Annotated[str, about("in A; empty if it is only in B")]
    name_b: Annotated[str, about("in B; empty if it is only in A")]
    below: Annotated[str, about("lowest common caller of a changed, added or removed row; empty for matched ones")]
    calls_a: Annotated[float, about("in A")]
    calls_b: Annotated[float, about("in B")]
    cpu_us_a: Annotated[float, about("CPU self time in A", "µs")]
    cpu_us_b: Annotated[float, about("CPU self time in B", "µs")]
    gpu_us_a: Annotated[float, about("GPU time in A", "µs")]
    gpu_us_b: Annotated[float, about("GPU time in B", "µs")]
    delta_us: Annotated[float, about("B less A, of GPU time, or of CPU self time without a GPU")]
    share: Annotated[float, about("of the total difference; negative where the row moves the other way")]


class NameRecord(Record, frozen=True, kw_only=True):
    """All calls of one name in the whole of both traces."""

    name: Annotated[str, about("as recorded")]
    device: Annotated[Literal["CPU", "GPU"], about("where it ran")]
    calls_a: Annotated[int, about("in A")]
    calls_b: Annotated[int, about("in B")]
    us_a: Annotated[float, about("in A, with what it calls; of the whole trace", "µs")]
    us_b: Annotated[float, about("in B, with what it calls; of the whole trace", "µs")]


class GroupRecord(Record, frozen=True, kw_only=True):
    """A class of kernels or a cause."""

    name: Annotated[str, about("in words")]
    a_us: Annotated[float, about("in A")]
    b_us: Annotated[float, about("in B")]
    delta_us: Annotated[float, about("B less A")]


class PeakPartRecord(Record, frozen=True, kw_only=True):
    """Memory that is alive at the peak of A or of B."""

    category: Annotated[str, about("what it is for, as `memory` tells")]
    op: Annotated[str | None, about("op that allocated it; null for none")]
    line: Annotated[str | None, about("file:line function of the program; null if not recorded")]
    a_bytes: Annotated[int, about("at the peak of A")]
    b_bytes: Annotated[int, about("at the peak of B")]
    delta_bytes: Annotated[int, about("B less A")]


class PeakChangeRecord(Record, frozen=True, kw_only=True):
    """The peak of memory in the whole of both recordings."""

    device: Annotated[str, about("device with the highest peak of A")]
    a_bytes: Annotated[int, about("peak of A")]
    b_bytes: Annotated[int, about("peak of B")]
    delta_bytes: Annotated[int, about("B less A")]
    parts: Annotated[list[PeakPartRecord], about("what differs, largest change first; they sum to `delta_bytes`")]


class DiffDocument(Document, frozen=True, kw_only=True, tag="torchprof-tui/diff/1"):
    """What changed from recording A to recording B. `parts` sum to `step_us.delta`."""

    a: Annotated[SideRecord, about("the first recording")]
    b: Annotated[SideRecord, about("the second recording")]
    same_recording: Annotated[bool, about("both are the same file")]
    comparable: Annotated[list[DifferenceRecord], about("properties in which they differ; [] for none")]
    step_us: Annotated[StepTimeRecord, about("how long a step takes")]
    divided: Annotated[Literal["gpu", "cpu"], about("whose time the parts divide: the GPUs', or the main thread's")]
    parts: Annotated[list[PartRecord], about("those beyond the noise first")]
    launches: Annotated[PerStepRecord, about("calls of a step that launch GPU work")]
    gpu_work: Annotated[PerStepRecord, about("kernels, copies and fills of a step")]
    verdict: Annotated[DiffVerdictRecord, about("the answer to read first")]
    ranks: Annotated[list[RankChangeRecord], about("step by rank; [] for a single one")]
    by: Annotated[Literal["op", "module", "kernel", "class", "cause"], about("value of --by")]
    ops: Annotated[list[RowRecord], about("matched calls, largest difference first")]
    ops_not_matched: Annotated[RowRecord, about("what no row has")]
    ops_total: Annotated[RowRecord, about("sum of all rows and of what is not matched")]
    memory: Annotated[
        PeakChangeRecord | None, about("what is new at the peak of memory; null where a side recorded none")
    ]
    by_name: Annotated[list[NameRecord], about("all names, in the whole of both traces")]
    rows: Annotated[list[GroupRecord] | UnsetType, about("rows of the table; only with --by class or cause")] = UNSET
    failed: Annotated[
        bool | UnsetType | None, about("the limit of `--fail-on` is exceeded; null if unknown; only with `--fail-on`")
    ] = UNSET
