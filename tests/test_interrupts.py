"""Ctrl-C, kill and a closed terminal, at any moment of a run: an orderly end, nothing left behind.

The run is a process and a session of its own. `CUDAREDUCE_INTERRUPT_SEED` repeats the moments of a
run of these tests; what fails names it.
"""

from __future__ import annotations

import os
import pty
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cudareduce.results.store import load
from tests.conftest import read_result
from tests.test_attacks import CPU, RIGHT, end, environment, in_session, kernel, run_apart, soon

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGQUIT: 131}
SEED = int(os.environ.get("CUDAREDUCE_INTERRUPT_SEED", "0")) or time.time_ns() % 10**9
#: How long a run may take to end once it was told to, and to say its first word.
END_S, START_S = 60.0, 300.0
KERNELS = (RIGHT, "reduce_v0_baseline", "reduce_last_block")
COMMANDS = (
    ("verify", *KERNELS, "--n", "1000,5000", *CPU.split()),
    ("bench", *KERNELS, "--n", "1000,5000", *CPU.split()),
)
HIDES, SHOWS = b"\x1b[?25l", b"\x1b[?25h"


@dataclass
class Started:
    """A run in a session of its own; what it prints is read while it runs."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path
    terminal: int | None = None
    screen: bytearray = field(default_factory=bytearray)

    def drain(self) -> None:
        """Read what a run under a terminal has printed so far, lest it waits for a reader."""
        while self.terminal is not None and select.select([self.terminal], [], [], 0)[0]:
            try:
                self.screen += os.read(self.terminal, 65536)
            except OSError:  # the last process that had the terminal open has ended
                return

    def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Wait for something, and read meanwhile."""

        def reading() -> bool:
            self.drain()
            return done()

        return soon(reading, seconds)

    def says(self, word: str) -> bool:
        """Whether it has printed a word on standard error, or on its terminal."""
        return word.encode() in bytes(self.screen) + self.err.read_bytes()

    def ended(self) -> bool:
        """Whether the command itself has ended, whatever its children do."""
        return self.process.poll() is not None

    def tell(self, number: signal.Signals, whole: bool) -> None:
        """Send a signal, to the whole group as a terminal does, or to the command alone."""
        (os.killpg if whole else os.kill)(self.process.pid, number)

    @property
    def said(self) -> str:
        """All it has printed."""
        parts = self.out.read_bytes(), self.err.read_bytes(), bytes(self.screen)
        return b"\n".join(parts).decode(errors="replace")


def heed() -> None:
    """Undo what this process may have been started with, as under `nohup`: a run that ignores a
    signal says nothing about how it ends by one."""
    for number in CODES:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@contextmanager
def started(
    words: Sequence[str], here: Path, env: dict[str, str], *, terminal: bool = False,
    ignoring: bool = False,
) -> Iterator[Started]:  # fmt: skip
    """Start a run; whatever is left of it is killed on leaving. `ignoring` starts it as a shell
    starts what is to run in the background: with SIGINT ignored."""
    command = [sys.executable, "-m", "cudareduce", *words]
    if ignoring:
        command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    out, err = here / "stdout", here / "stderr"
    master, slave = pty.openpty() if terminal else (None, None)
    with out.open("wb") as to_out, err.open("wb") as to_err:
        process = subprocess.Popen(
            command, cwd=here, env=env | {"TERM": "xterm"}, stdin=subprocess.DEVNULL,
            stdout=slave or to_out, stderr=slave or to_err, start_new_session=True,
            preexec_fn=heed,
        )  # fmt: skip
    if slave is not None:
        os.close(slave)
    try:
        yield Started(process, out, err, master)
    finally:
        end(in_session(process.pid))
        process.wait()
        if master is not None:
            os.close(master)


@dataclass(frozen=True)
class Place:
    """Where a run works: its folder, its temporary folder, its cache, its environment."""

    here: Path
    temporary: Path
    cache: Path
    env: dict[str, str]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """One with an empty cache."""
    made = {name: tmp_path / name for name in ("here", "temporary", "home")}
    for path in made.values():
        path.mkdir()
    env = environment(made["home"], made["temporary"], COLUMNS="100")
    return Place(made["here"], made["temporary"], made["home"] / "cudareduce", env)


@pytest.fixture
def cache_home(cache: Path, tmp_path: Path) -> Path:
    """What XDG_CACHE_HOME has to be for the cache that all tests share."""
    home = tmp_path / "shared"
    home.mkdir()
    (home / "cudareduce").symlink_to(cache)
    return home


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with all that COMMANDS need."""
    home = tmp_path_factory.mktemp("filled")
    env = environment(home, home)
    for words in COMMANDS:
        assert run_apart(words, home, env, 300)[0] == 0
    return home / "cudareduce"


def whole(library: Path) -> bool:
    """Whether an ELF file is as long as its head says: its section headers stand last."""
    data = library.read_bytes()
    if data[:4] != b"\x7fELF" or len(data) < 64:
        return False
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    return bool(len(data) >= start + size * count)


def nothing_left(run: Started, place: Place) -> None:
    """No process, no temporary file, no half a library, no hidden cursor."""
    leader = run.process.pid
    assert run.until(lambda: not in_session(leader), END_S), f"processes left: {in_session(leader)}"
    run.drain()
    assert [path.name for path in place.temporary.glob("cudareduce*")] == []
    files = [path for path in place.cache.rglob("*") if path.is_file()]
    assert [path.name for path in files if path.name.startswith("tmp")] == []
    assert [path.name for path in files if path.suffix == ".so" and not whole(path)] == []
    screen = bytes(run.screen) + run.out.read_bytes() + run.err.read_bytes()
    assert screen.rfind(HIDES) <= screen.rfind(SHOWS), "the cursor stays hidden"


def orderly(run: Started, place: Place, number: signal.Signals) -> None:
    """It ends soon, with the signal's exit code or because it was done, in words, and clean."""
    assert run.until(run.ended, END_S), f"still running after {number.name}: {run.said}"
    code = run.process.returncode
    assert code in (CODES[number], 0), run.said
    assert "Traceback" not in run.said, run.said
    assert "internal error" not in run.said, run.said
    if code:
        assert re.search("interrupt|stopped|terminat|hang|hung", run.said, re.IGNORECASE), run.said
    nothing_left(run, place)
    stored = place.here / "run.json"
    if stored.exists():
        load(stored)
    assert {path.name for path in place.here.iterdir()} <= {
        "run.json",
        "stdout",
        "stderr",
        "fine.cu",
        "mine.cu",
    }


ENDLESS = kernel("    for (volatile int k = 0;; ) k = k + 1;\n")


def endless(place: Place) -> tuple[str, ...]:
    """A run of a kernel that never ends and a right one: of equal ones the last is first."""
    (place.here / "mine.cu").write_text(ENDLESS)
    (place.here / "fine.cu").write_text(kernel(name="fine"))
    return ("verify", "mine.cu", "fine.cu", "--n", "33", *CPU.split(), "--json", "run.json")


def in_the_second(run: Started, place: Place) -> None:
    """Wait until the right kernel has been judged and the endless one runs."""
    assert run.until(lambda: bool(re.search(r"fine +right", run.said)), START_S), run.said
    busy: dict[int, float] = {}

    def spins() -> bool:
        """A child has used a second of CPU time more than it had when first seen."""
        for pid in in_session(run.process.pid) - {run.process.pid}:
            try:
                words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            used = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
            if used - busy.setdefault(pid, used) > 1.5:
                return True
        return False

    assert run.until(spins, START_S), run.said


def kept(place: Place) -> None:
    """The kernel that was judged before the signal is in the file, as right."""
    records = {record.kernel: record for record in load(place.here / "run.json").records}
    assert records["fine"].verdict == "pass"
    assert "mine" not in records or records["mine"].verdict != "pass"


@pytest.mark.long
def test_ctrl_c_prints_and_keeps_what_there_is(place: Place, cache_home: Path) -> None:
    env = place.env | {"XDG_CACHE_HOME": str(cache_home)}
    with started(endless(place), place.here, env) as run:
        in_the_second(run, place)
        run.tell(signal.SIGINT, whole=True)
        orderly(run, place, signal.SIGINT)
        assert run.process.returncode == 130
        assert re.search(r"fine.* right ", run.out.read_text())
        kept(place)


@pytest.mark.long
def test_a_kill_under_a_terminal_shows_the_cursor_again(place: Place, cache_home: Path) -> None:
    env = place.env | {"XDG_CACHE_HOME": str(cache_home)}
    with started(endless(place), place.here, env, terminal=True) as run:
        in_the_second(run, place)
        run.tell(signal.SIGTERM, whole=False)
        orderly(run, place, signal.SIGTERM)
        assert run.process.returncode == 143
        kept(place)


@pytest.mark.long
def test_ctrl_backslash_while_it_compiles(place: Place) -> None:
    with started(("verify", RIGHT, "--n", "33", *CPU.split()), place.here, place.env) as run:
        assert run.until(lambda: len(in_session(run.process.pid)) > 3, START_S), run.said
        run.tell(signal.SIGQUIT, whole=True)
        orderly(run, place, signal.SIGQUIT)
        assert run.process.returncode == 131


@pytest.mark.long
def test_what_a_killed_run_leaves_goes_with_the_next(place: Place, cache_home: Path) -> None:
    env = place.env | {"XDG_CACHE_HOME": str(cache_home)}
    with started(endless(place), place.here, env) as run:
        assert run.until(lambda: run.says("verifying"), START_S), run.said
        in_use = set(place.temporary.glob("cudareduce-*"))
        words = ("verify", RIGHT, "--n", "1", *CPU.split())
        assert run_apart(words, place.here, env, 60)[0] == 0
        assert in_use and in_use <= set(place.temporary.glob("cudareduce-*"))
        run.tell(signal.SIGKILL, whole=False)
        assert run.until(run.ended, END_S)
    assert in_use <= set(place.temporary.glob("cudareduce-*"))
    assert run_apart(words, place.here, env, 60)[0] == 0
    assert not set(place.temporary.glob("cudareduce-*"))


@pytest.mark.long
def test_where_ctrl_c_is_ignored_a_run_goes_on_to_its_end(place: Place, cache_home: Path) -> None:
    env = place.env | {"XDG_CACHE_HOME": str(cache_home)}
    words = ("bench", RIGHT, "--n", "33", *CPU.split())
    with started(words, place.here, env, ignoring=True) as run:
        assert run.until(lambda: run.says("verifying") or run.ended(), START_S)
        run.tell(signal.SIGINT, whole=True)
        assert run.until(run.ended, START_S), "it hangs"
        assert run.process.returncode == 0, run.said
        assert " right " in run.out.read_text()
        nothing_left(run, place)


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(50))
@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_a_signal_at_any_moment(
    number: signal.Signals, attempt: int, place: Place, filled: Path
) -> None:
    chance = random.Random(f"{SEED} {number.name} {attempt}")
    words = (*chance.choice(COMMANDS), "--json", "run.json")
    cold, terminal, group = attempt % 2 == 0, attempt % 3 == 0, chance.random() < 0.6
    moment = chance.uniform(0, 8.0 if cold else 2.0)
    if not cold:
        shutil.copytree(filled, place.cache)
    told = f"CUDAREDUCE_INTERRUPT_SEED={SEED}: {moment:.3f} s, {'cold' if cold else 'warm'}"
    with started(words, place.here, place.env, terminal=terminal) as run:
        assert run.until(lambda: run.says("verifying") or run.ended(), START_S), told
        run.until(run.ended, moment)
        if not run.ended():
            run.tell(number, whole=group)
        try:
            orderly(run, place, number)
        except AssertionError as error:
            error.add_note(f"{told}, {'group' if group else 'process'}, {' '.join(words)}")
            raise
    code, out, err = run_apart(words[:-2], place.here, place.env, 300)
    assert (code, "WRONG" in out) == (0, False), f"{told}: the next run does not work: {err}"


@pytest.mark.slow
@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_repeated_signals_end_a_run_in_order(
    number: signal.Signals, place: Place, cache_home: Path
) -> None:
    env = place.env | {"XDG_CACHE_HOME": str(cache_home)}
    with started(endless(place), place.here, env, terminal=True) as run:
        in_the_second(run, place)
        for _ in range(3):
            if not run.ended():
                run.tell(number, whole=True)
            run.until(run.ended, 0.03)
        orderly(run, place, number)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["bench", "verify", "check --base {base}", "selftest"])
def test_a_bare_command_can_be_stopped(command: str, place: Place, cache_home: Path) -> None:
    """`bench` and `verify` without a GPU are long; what takes a GPU says so at once."""
    env = place.env | {"XDG_CACHE_HOME": str(cache_home)}
    (place.here / "mine.cu").write_text(kernel())
    words = command.format(base=place.here).split()
    with started(words, place.here, env) as run:
        assert run.until(lambda: run.says("verifying") or run.ended(), START_S)
        run.until(run.ended, 2.0)
        if run.ended():
            assert run.process.returncode == 6, run.said
            return
        run.tell(signal.SIGINT, whole=True)
        orderly(run, place, signal.SIGINT)


@pytest.mark.slow
def test_four_cold_starts_at_once_share_one_cache(place: Place) -> None:
    words = ("verify", *KERNELS[:2], "--n", "33,1000", *CPU.split(), "--format", "json")
    folders = [place.here / name for name in "abcd"]
    for folder in folders:
        folder.mkdir()
    with ExitStack() as stack:
        runs = [stack.enter_context(started(words, folder, place.env)) for folder in folders]
        for run in runs:
            assert run.until(run.ended, 300), run.said
        for run in runs:
            nothing_left(run, place)
    codes = [run.process.returncode for run in runs]
    said = [run.said for run in runs]
    found = [read_result(run.out.read_text())["records"] for run in runs if not any(codes)]
    assert codes == [0] * 4, said
    assert all(records == found[0] for records in found)
    assert all(record["verdict"] == "pass" for record in found[0])
