"""The same of operators: their text stands in the prelude of every kernel that uses them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from unittest.mock import patch

from cudareduce.backends.selection import open_backend
from cudareduce.catalog.registry import load_registry
from cudareduce.launch import prelude
from cudareduce.reduction.operators import OPERATORS, reduction_of
from cudareduce.verify.jobs import Job, verify_job
from cudareduce.verify.patterns import Inputs
from cudareduce.verify.verdict import RIGHT, Verdict
from cudareduce.workers import fork_server
from tests.mutants.judge import Judge, Judged, fate_of
from tests.mutants.rules import Mutant

FOLDER = Path(prelude.__file__).with_name("device")
#: A kernel that swaps operands, the first element's too, once this is done to it.
_TREE = "reduce_v2_no_bank_conflict"
_SWAP = ("shared[tid], shared[tid + stride]", "shared[tid + stride], shared[tid]")
#: On types of either size and kind: what an operator's text tells apart.
_DTYPES = ("float32", "float64", "int32", "int64")
#: Texts that other operators than that of their name use.
_USED_BY = {"struct_shuffles": "argmax"} | {op.needs: name for name, op in OPERATORS.items()}


def operators() -> dict[str, str]:
    """The texts of operators by name, but that of the user's own."""
    texts = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.cuh"))}
    return {name: text for name, text in texts.items() if name != "expression"}


def queue_of(judge: Judge, name: str) -> list[Job]:
    """The jobs of an operator: those of kernels that combine in memory, swap operands and keep
    their order, as far as they take it, the first of each first."""
    there = load_registry(()).kernels
    tree = replace(there[_TREE], text=there[_TREE].text.replace(*_SWAP))
    kernels = (there["reduce_atomic"], tree, there["reduce_ordered_block"])
    op = OPERATORS[_USED_BY.get(name, name)]
    queues = [
        judge.queue(kernel, reduction_of(op, dtype))
        for kernel in kernels for dtype in _DTYPES if dtype in op.only
        if kernel.why_not(reduction_of(op, dtype)) is None
    ]  # fmt: skip
    return [*(queue[0] for queue in queues), *(job for queue in queues for job in queue[1:])]


def judge_operator(judge: Judge, name: str, mutants: Sequence[Mutant]) -> Iterator[Judged]:
    """The fate of each mutant of an operator's text."""
    queue = queue_of(judge, name)
    with ThreadPoolExecutor(judge.count) as pool:
        verdicts = pool.map(lambda mutant: _verdict(judge, name, mutant.text, queue), mutants)
        for mutant, verdict in zip(mutants, verdicts, strict=True):
            yield Judged(mutant, fate_of(verdict), verdict.reason)


def _verdict(judge: Judge, name: str, text: str, queue: Sequence[Job]) -> Verdict:
    """What the jobs find in a process of their own, which may hang."""
    context = fork_server()
    ours, theirs = context.Pipe()
    child = context.Process(target=_serve, args=(theirs, name, text, queue), daemon=True)
    child.start()
    theirs.close()
    try:
        for _ in queue:
            if not ours.poll(10 * judge.limit_s):
                return Verdict("fail", "it hangs")
            verdict: Verdict = ours.recv()
            if verdict.outcome != "pass":
                return verdict
    except EOFError:
        child.join()
        assert child.exitcode != 1, "an error of Python's, which kills no mutant"
        return Verdict("fail", "its process has ended")
    finally:
        child.kill()
        child.join()
    return RIGHT


def _serve(pipe: Connection, name: str, text: str, queue: Sequence[Job]) -> None:
    """The child: the verdict of each job, where an operator has another text."""
    read = prelude._read
    inputs = Inputs()
    with patch.object(
        prelude, "_read", lambda wanted, folder: text if wanted == name else read(wanted, folder)
    ):
        for job in queue:
            with open_backend(job.spec, catch_faults=True) as backend:
                pipe.send(verify_job(job, backend, inputs))
