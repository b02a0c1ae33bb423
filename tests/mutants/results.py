"""What a run has found: one entry a mutant, kept as JSON, told as a table."""

from __future__ import annotations

import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

#: `same`: nvcc makes the same machine code of it. `proved`: `equivalent.toml` says why it cannot
#: give a wrong answer.
Fate = Literal["killed", "survived", "unbuilt", "same", "proved"]
FATES: tuple[Fate, ...] = ("killed", "survived", "same", "proved", "unbuilt")
PROOFS = Path(__file__).with_name("equivalent.toml")
#: What must be killed of all that are not the same kernel, and what may be so by proof alone.
LEAST_KILLED, MOST_PROVED = 0.97, 0.10


@dataclass(frozen=True, slots=True)
class Entry:
    """One mutant: `was` and `now` are the lines that differ, `why` is the verdict's reason or the
    proof."""

    subject: str
    rule: str
    line: int
    was: str
    now: str
    fate: Fate
    why: str


def proofs(path: Path = PROOFS) -> dict[tuple[str, str, str], str]:
    """Why mutants are no other kernel, by subject and the line before and after."""
    return {
        (subject, proof["was"], proof["now"]): proof["why"]
        for proof in tomllib.loads(path.read_text())["equivalent"] for subject in proof["of"]
    }  # fmt: skip


def write(entries: Iterable[Entry], path: Path) -> None:
    """Keep what a run has found."""
    path.write_text(json.dumps([asdict(entry) for entry in entries], indent=1) + "\n")


def read(paths: Iterable[Path]) -> list[Entry]:
    """What runs have found, such as the shards of one."""
    return [Entry(**entry) for path in paths for entry in json.loads(path.read_text())]


def share_killed(counts: Counter[Fate]) -> float:
    """Of those that are wrong, as far as is known."""
    wrong = counts["killed"] + counts["survived"]
    return counts["killed"] / wrong if wrong else 1.0


def is_enough(entries: Sequence[Entry]) -> bool:
    """Whether as many are killed, and as few are left to a proof, as is promised."""
    counts = Counter(entry.fate for entry in entries)
    built = counts.total() - counts["unbuilt"]
    return share_killed(counts) >= LEAST_KILLED and counts["proved"] <= MOST_PROVED * built


def summary(entries: Sequence[Entry]) -> str:
    """A line a subject, one in total, and the diff of each survivor."""
    by_subject: dict[str, Counter[Fate]] = defaultdict(Counter)
    for entry in entries:
        by_subject[entry.subject][entry.fate] += 1
    by_subject["total"] = Counter(entry.fate for entry in entries)
    lines = [f"{'':28}" + "".join(f"{fate:>9}" for fate in FATES)]
    for subject, counts in by_subject.items():
        figures = "".join(f"{counts[fate]:9}" for fate in FATES)
        lines.append(f"{subject:28}{figures}{100 * share_killed(counts):8.1f} %")
    for entry in entries:
        if entry.fate == "survived":
            lines += [f"\n{entry.subject}:{entry.line} {entry.rule}: {entry.why or 'right'}"]
            lines += [f"- {entry.was}", f"+ {entry.now}"]
    return "\n".join(lines)
