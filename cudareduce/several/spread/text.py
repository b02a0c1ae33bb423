"""The texts of a kernel that leaves a partial, or hands it on to all ranks itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cudareduce.backend import Program, Source
from cudareduce.errors import BuildError
from cudareduce.launch.case import Case, Programs, unit_source
from cudareduce.launch.plan import Plan
from cudareduce.launch.prelude import Stage as PassStage
from cudareduce.launch.prelude import Unit, prelude
from cudareduce.problem.operators import Reduction
from cudareduce.several import engines
from cudareduce.several.engines import Stage
from cudareduce.several.exchange import device_text, helper_source, shared

#: What each pass leaves where no answer is to be made of it.
_UNFINISHED: dict[PassStage, PassStage] = {"only": "first", "last": "middle"}


@dataclass(frozen=True, slots=True)
class Built:
    """What a plan launches: kernels that leave a partial, those that hand it on, or why there are
    none, and what combines partials behind a kernel, or when they have been brought together."""

    alone: Programs
    fused: Programs | str
    behind: Program
    gathered: Program


@dataclass(frozen=True, slots=True)
class Texts:
    """The same before it is compiled; nothing is `fused` where `why_not` says why."""

    alone: Mapping[Unit, Source]
    fused: Mapping[Unit, Source]
    behind: Source
    gathered: Source
    why_not: str


def texts(case: Case, plan: Plan, ranks: int, stumble: int = 0) -> Texts:
    """Those of a plan among so many ranks. With `stumble` the rank that is `late` stops
    for so many clocks between what it sends and what it waits for."""
    out, why_not = _out(case.reduction, ranks, stumble), _why_not_fused(plan)
    head = prelude(case.reduction, "first", 32, 1, 1, out=out)
    return Texts(
        alone={step.unit: unit_source(case, (_left(step.stage, plan), step.link))
               for step in plan.passes},
        fused={} if why_not else {
            step.unit: unit_source(case, ("first", 0), out) for step in plan.passes
        },
        behind=helper_source(head, "spread.cu", "spread"),
        gathered=helper_source(head, "gathered.cu", "gathered"),
        why_not=why_not,
    )  # fmt: skip


def built(stage: Stage, case: Case, plan: Plan, stumble: int = 0) -> Built | str:
    """All of it, compiled, or why the kernel leaves no partial. Raises BuildError,
    EnvironmentProblem and RankLost."""
    wanted = texts(case, plan, stage.comm.size, stumble)
    every = [*wanted.alone.values(), *wanted.fused.values()]
    found = dict(zip(every, engines.built(stage, every), strict=True))
    behind, gathered = engines.compiled(stage, [wanted.behind, wanted.gathered])
    for error in map(found.get, wanted.alone.values()):
        if isinstance(error, BuildError):
            return f"does not compile where it is to leave a partial: {_first_error(error)}"
    why_not = wanted.why_not
    handing: Programs = {}
    fused = [found[text] for text in wanted.fused.values()]
    error = next((one for one in fused if isinstance(one, BuildError)), None)
    if error:
        why_not = f"does not compile where it is to assign its answer once: {_first_error(error)}"
    elif wanted.fused:
        handing = _programs(wanted.fused, found)
    return Built(_programs(wanted.alone, found), why_not or handing, behind, gathered)


def _programs(
    some: Mapping[Unit, Source], found: Mapping[Source, Program | BuildError | None]
) -> Programs:
    """The programs of texts that have compiled."""
    programs: dict[Unit, Program] = {}
    for unit, text in some.items():
        program = found[text]
        assert program is not None  # there was no deadline
        assert not isinstance(program, BuildError)
        programs[unit] = program
    return programs


def _first_error(error: BuildError) -> str:
    """What the first of a compiler's lines says that names an error."""
    lines = str(error).splitlines()
    return next((line.partition("error: ")[2] for line in lines if "error: " in line), lines[0])


def _why_not_fused(plan: Plan) -> str:
    """Why the kernel's own last block cannot hand the partial on; empty if it can."""
    if len(plan.passes) > 1:
        return "takes several launches"
    if plan.preset or plan.folds_on_host:
        return "has no block that has the whole sum"
    return ""


def _left(stage: PassStage, plan: Plan) -> PassStage:
    """The stage that leaves a partial where another one leaves an answer."""
    if stage == "only" and len(plan.passes) > 1:  # which has no answer to make
        return stage
    return _UNFINISHED.get(stage, stage)


def _out(reduction: Reduction, ranks: int, stumble: int) -> str:
    """What a kernel assigns to, so that its partial goes to all ranks."""
    indexed = "true" if reduction.op.indexed else "false"
    return (
        shared(ranks, stumble) + f"constexpr bool INDEXED = {indexed};\n"
        + device_text("spread.cuh")
    )  # fmt: skip
