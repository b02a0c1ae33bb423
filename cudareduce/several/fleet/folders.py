"""Result files in folders: found, read once, and told apart by what is in them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Container, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.gate.baseline import timed
from cudareduce.history.entries import moment
from cudareduce.results.record import Record, Run
from cudareduce.results.store import json_of, run_of
from cudareduce.several.fleet.store import FIGURES, WHAT, Taken, Timed

#: A record takes 2 kB: no result of anyone is larger.
_MOST_BYTES = 64 << 20
#: The largest whole number that a store holds.
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file that is not taken in, and why, in a sentence that names it."""

    why: str


def result_files(places: Iterable[Path]) -> list[Path]:
    """The JSON files below folders, and files that are named themselves, each once; one that is not
    there is a UsageError. Links to folders are not followed, which might lead in a circle."""
    found: dict[Path, None] = {}
    for place in places:
        if place.is_dir():
            found.update(dict.fromkeys(_below(place)))
        elif place.is_file():
            found[place] = None
        else:
            raise UsageError(f"there is no folder {place}: name one with result files in it")
    return list(found)


def _below(folder: Path) -> Iterator[Path]:
    def cannot(error: OSError) -> None:
        raise UsageError(
            f"cannot read {error.filename}: {error.strerror}; name folders that can be read"
        )

    for here, folders, names in os.walk(folder, onerror=cannot):
        folders.sort()
        yield from (Path(here, name) for name in sorted(names) if name.endswith(".json"))


def read_new(path: Path, held: Container[str]) -> Taken | LeftOut | None:
    """A result file as a run; None if the store holds one with these bytes. What is judged is what
    was read, whatever becomes of the file meanwhile."""
    try:
        content = _content(path)
        sha = hashlib.sha256(content).hexdigest()
        return None if sha in held else _taken(path, sha, content)
    except OSError as error:
        return LeftOut(f"cannot read {path}: {error.strerror}")
    except UsageError as error:
        return LeftOut(str(error))


def _content(path: Path) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would be waited for
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path} is not a file that can be read to its end")
        if status.st_size > _MOST_BYTES:
            raise UsageError(f"{path} is larger than {_MOST_BYTES >> 20} MiB, as no result is")
        return file.read(_MOST_BYTES)


def _taken(path: Path, sha: str, content: bytes) -> Taken:
    run = timed(path, run_of(path, json_of(path, content)))
    device, flush = run.device, run.protocol.get("flush_bytes_read")
    if not device.uuid:
        raise UsageError(
            f"{path} does not tell which card it was made on: install nvidia-ml-py there and bench "
            "again"
        )
    try:
        created = moment(run.created).isoformat(timespec="seconds")
    except ValueError:
        raise UsageError(f"{path} does not tell when it was created: bench again") from None
    told = json.dumps(asdict(device))
    records = [record for record in run.records if record.time_us is not None]
    if not records:
        raise UsageError(f"{path} holds no times: bench again, with more --max-time")
    if any(record.ranks for record in records):
        raise UsageError(f"{path} holds times of several GPUs together, and none of a card's own")
    times = tuple(_timed(record, flush) for record in records)
    if any(type(v) is int and v > _LARGEST for one in times for v in one.what):
        raise UsageError(f"{path} holds a size that no array has; bench again")
    name = os.fsencode(path).decode("utf-8", "replace")
    return Taken(sha, _digest(run, created, told, times), name, created, device.uuid, told, times)


def _timed(record: Record, flush_bytes_read: int | None) -> Timed:
    return Timed((*WHAT(record), flush_bytes_read), FIGURES(record))


def _digest(run: Run, created: str, told: str, times: tuple[Timed, ...]) -> str:
    """The same for two files that tell one run, however they are laid out."""
    what = (created, told, [(one.what, one.figures) for one in times])
    return hashlib.sha256(repr(what).encode()).hexdigest()
