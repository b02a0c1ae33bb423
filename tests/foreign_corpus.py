"""How much of other people's code runs: `python -m tests.foreign_corpus FOLDER`.

FOLDER holds files as they were found, in any folders below it, and `index.tsv`, which says of each
kernel what a reader made of it: a line with tabs, under a head that has `file`, `kernel` and
`class` (`right`, `right-if:CONDITION`, `wrong:WHY`, `not-callable:WHY`). Each file is given to
`verify` as a user gives it, bare, in a process of its own, or with `--as bench` to what is said
there. Such files are other people's: none is part of this project.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import read_result

ROOT = Path(__file__).parents[1]
#: What counts as a hang, in seconds.
_LIMIT_S = 300.0
_RIGHT, _WRONG = ("right", "right-if"), ("wrong",)


@dataclass(frozen=True, slots=True)
class Said:
    """What `verify` has said of a file: its exit code (None where it was ended), the verdict on
    each kernel with its reason, its standard error, seconds."""

    file: str
    code: int | None
    rows: Mapping[str, tuple[str, str]]
    err: str
    seconds: float


def say(folder: Path, file: str, asked: Sequence[str]) -> Said:
    """What one file is given: `verify` or `bench`, with its options."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary, "run.json")
        command = [sys.executable, "-m", "cudareduce", *asked, str(folder / file),
                   "--json", str(out)]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=ROOT, timeout=_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return Said(file, None, {}, "no end", time.monotonic() - began)
        records = read_result(out.read_text())["records"] if out.exists() else []
    rows = {r["kernel"].rpartition(":")[2]: (r["verdict"], r["reason"] or "") for r in records}
    return Said(file, done.returncode, rows, done.stderr, time.monotonic() - began)


def verdict_of(said: Said, kernel: str) -> tuple[str, str]:
    """What was said of one of a file's kernels; a file with one row names it after itself."""
    bare = kernel.rpartition("::")[2]
    for name, verdict in said.rows.items():
        if bare in (name, name.rpartition("::")[2]):
            return verdict
    if len(said.rows) == 1 and re.search(rf"\b{bare}(?:<.*>)?<<<", said.err):
        return next(iter(said.rows.values()))
    return "none", (said.err.strip().splitlines() or [""])[-1]


def tell(index: Mapping[str, Mapping[str, str]], every: Iterable[Said]) -> None:
    """Print a line for each kernel that is not as expected, and the figures."""
    counts: Counter[tuple[str, str]] = Counter()
    files: Counter[str] = Counter()
    for said in every:
        kernels = index[said.file]
        expected = {name: words.partition(":")[0] for name, words in kernels.items()}
        found = {name: verdict_of(said, name) for name in kernels}
        counts.update((expected[name], found[name][0]) for name in kernels)
        good = [name for name in kernels if expected[name] in _RIGHT]
        files["with a right kernel"] += bool(good)
        files["of them with one that verifies"] += any(found[name][0] == "pass" for name in good)
        files["of them with all that verify"] += bool(good) and all(
            found[name][0] == "pass" for name in good
        )
        files["internal errors"] += said.code not in (0, 2, 3, 4, 6, None)
        files["hangs"] += said.code is None
        for name, words in kernels.items():
            verdict, reason = found[name]
            if (verdict == "pass") != (expected[name] in _RIGHT):
                print(f"{said.file} {name}: {verdict} ({reason[:230]}); {words[:90]}")
    print()
    for (expects, verdict), number in sorted(counts.items()):
        print(f"{expects:14} {verdict:6} {number}")
    for words, number in files.items():
        print(f"{number:5} files {words}")
    right = {kind: sum(v for (e, _), v in counts.items() if e == kind) for kind in _RIGHT}
    passed = sum(counts[kind, "pass"] for kind in _RIGHT)
    print(f"right kernels that verify bare: {passed} of {sum(right.values())}")
    print(f"wrong kernels that pass: {counts['wrong', 'pass']}")


def main() -> None:
    """Verify the files of a corpus, or those whose names hold a text, and print figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="files whose names hold this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--as", dest="words", default="verify --backend cpu", help="the command")
    asked = parser.parse_args()
    index: dict[str, dict[str, str]] = defaultdict(dict)
    with (asked.folder / "index.tsv").open(newline="") as lines:
        for line in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
            index[line["file"]][line["kernel"]] = line["class"]
    folder = asked.folder.resolve()
    folder = folder / "files" if (folder / "files").is_dir() else folder
    files = [file for file in index if asked.only in file]
    with ThreadPoolExecutor(asked.jobs) as pool:
        tell(index, pool.map(lambda file: say(folder, file, asked.words.split()), files))


if __name__ == "__main__":
    main()
