"""Align the operations of all ranks by process group and number, and find where they disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from torchprof_hang.analysis.evidence import Evidence
from torchprof_hang.analysis.records import Operation, State

MAX_LISTED_RANKS = 6


@dataclass(slots=True)
class Group:
    """A process group. `rows`: number of a collective → rank → operation. `first`, `last`: numbers by rank.

    `is_listed`: all members are known, not only those that called something.
    """

    name: str
    label: str
    members: tuple[int, ...]
    rows: dict[int, dict[int, Operation]] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    is_listed: bool = False

    def list_states(self, number: int, known: Container[int]) -> dict[int, State]:
        """List the states of a collective by rank; `known`: the ranks that left something."""
        usual, row, states = self.find_usual(number), self.rows.get(number, {}), {}
        for rank in self.members:
            operation = row.get(rank)
            if operation is None:
                lost = State.LOST if number < self.first.get(rank, 0) else State.ABSENT
                states[rank] = lost if rank in known else State.NO_DUMP
            elif usual is None or operation.key == usual.key:
                states[rank] = operation.state
            elif operation.name != usual.name:
                states[rank] = State.OTHER_OP
            else:
                states[rank] = State.OTHER_SIZE if operation.sizes != usual.sizes else State.OTHER_DTYPE
        return states

    def find_usual(self, number: int) -> Operation | None:
        """Find the operation that most ranks have, of equally many that of the lowest rank."""
        row = self.rows.get(number)
        if not row:
            return None
        counts = Counter(each.key for each in row.values())
        top = max(counts.values())
        return next(row[rank] for rank in sorted(row) if counts[row[rank].key] == top)

    @property
    def is_default(self) -> bool:
        return self.name in ("0", "") or self.label == "the default group"


def align_groups(evidence: Evidence) -> dict[str, Group]:
    """Align the collectives of all ranks, by the names of their groups; the default group first."""
    groups: dict[str, Group] = {}
    labels: dict[str, str] = {}
    members: dict[str, set[int]] = {}
    for record in evidence.records.values():
        labels |= record.labels
        for name, ranks in record.members.items():
            members.setdefault(name, set()).update(ranks)
    for rank, record in sorted(evidence.records.items()):
        for each in record.operations:
            if each.is_p2p:
                continue
            group = groups.get(each.group)
            if group is None:
                text = labels.get(each.group, "")
                is_default = text == "default_pg" or (each.group in ("0", "") and not text)
                label = "the default group" if is_default else f"group {text.removeprefix('undefined') or each.group}"
                group = groups[each.group] = Group(each.group, label, ())
            group.rows.setdefault(each.number, {})[rank] = each
            group.first.setdefault(rank, each.number)
            group.last[rank] = max(group.last.get(rank, 0), each.number)
    for group in groups.values():
        known = members.get(group.name, set()) | set(group.last)
        group.is_listed = group.name in members or group.is_default
        if group.is_default:
            known |= set(range(evidence.world_size))
        group.members = tuple(sorted(known))
    return dict(sorted(groups.items(), key=lambda item: (not item[1].is_default, -len(item[1].members), item[0])))


def find_mismatches(groups: Iterable[Group]) -> Iterator[tuple[Group, int]]:
    """Find the first collective of each group that ranks called with another operation, size or dtype."""
    for group in groups:
        for number in sorted(group.rows):
            keys = {each.key for each in group.rows[number].values()}
            # Operations of logs have no sizes: that alone is no difference.
            names = {name for name, _, _ in keys if name != "collective"}
            sizes, dtypes = {each for _, each, _ in keys if each}, {each for _, _, each in keys if each}
            if len(keys) > 1 and max(len(names), len(sizes), len(dtypes)) > 1:
                yield group, number
                break


def format_ranks(ranks: Iterable[int]) -> str:
    """Format ranks as text: "rank 1", "ranks 0 and 2", "ranks 0 to 6 and 8"."""
    ordered = sorted(set(ranks))
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts: list[str] = []
    for run in runs:
        parts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else list(map(str, run))
    if len(parts) > MAX_LISTED_RANKS:
        return f"{len(ordered):,} ranks ({', '.join(parts[:MAX_LISTED_RANKS])}, …)"
    return f"ranks {', '.join(parts[:-1])}{' and ' if len(parts) > 1 else ''}{parts[-1]}"
