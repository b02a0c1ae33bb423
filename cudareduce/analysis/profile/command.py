"""The command `profile`: explains what limits a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path

from cudareduce.analysis.profile.charts import charts
from cudareduce.analysis.profile.lines import Profile
from cudareduce.analysis.profile.ncu import METRICS, Task, count_metrics, find_ncu, launch_values
from cudareduce.analysis.profile.static import StaticValues, static_values
from cudareduce.analysis.profile.tables import diff_section, kernel_sections, to_json
from cudareduce.backends.selection import (
    BackendSpec,
    choose_backend,
    default_cache,
    open_timed,
    why_unusable,
)
from cudareduce.budget import Deadline
from cudareduce.catalog.map_expression import read_map
from cudareduce.catalog.registry import Choice, Registry, load_registry
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.external.files import ExternalFiles
from cudareduce.external.options import FileOptions, Requested
from cudareduce.launch.case import Case
from cudareduce.launch.plan import Plan
from cudareduce.machine import DeviceInfo, DeviceLimits
from cudareduce.progress import phase, say
from cudareduce.reduction.operators import Reduction, reduction_of
from cudareduce.report.numbers import size_text
from cudareduce.report.plot.command import check_image_files
from cudareduce.report.publish import Outputs, publish
from cudareduce.results.provenance import tool
from cudareduce.results.store import write_bytes

_NEEDED = "x: factor of the minimum number of bytes"
_UNSEEN = "unknown without a GPU: times, active lanes, stalls, utilization"
_STATIC = "--static profiles a kernel without a GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """The options of `profile`: the first launch of kernels on `rows` of `n` elements, or with
    `static` their code for `arch`. `max_time` is in seconds."""

    kernels: tuple[str, ...]
    folders: tuple[Path, ...] = ()
    files: FileOptions = field(default_factory=FileOptions)
    n: int
    rows: int = 1
    op: str = "sum"
    dtype: str = "float32"
    acc: str | None = None
    map: str | None = None
    block: int | None = None
    items: int | None = None
    static: bool = False
    arch: int = 90
    diff: bool = False
    device: int = 0
    max_time: float
    no_cache: bool = False
    quiet: bool = False
    png: Path | None = None
    svg: Path | None = None
    outputs: Outputs
    argv: tuple[str, ...] = ()

    @property
    def reduction(self) -> Reduction:
        mapped = None if self.map is None else read_map(self.map, "--map")
        return reduction_of(self.op, self.dtype, self.acc, mapped)

    @property
    def pictures(self) -> dict[str, Path]:
        """The requested picture files by format."""
        files = {"png": self.png, "svg": self.svg}
        return {style: path for style, path in files.items() if path is not None}


@dataclass(frozen=True, slots=True)
class _Profiles:
    """Profiles in the requested order, a description of the problem, and general notes. `failed`: a
    supported launch could not be profiled."""

    profiles: tuple[Profile, ...]
    what: str
    device: DeviceInfo | None
    notes: tuple[str, ...]
    failed: bool = False


def profile(request: ProfileRequest) -> int:
    """Profile kernels, print and draw; returns 0, or 6 if a supported launch failed. Raises
    UsageError, and EnvironmentProblem without a GPU or ncu."""
    registry = load_registry(request.folders)
    choices = _chosen(request, registry)
    _check(request, choices)
    cases = [_case(choice, request) for choice in choices]
    found = _static(request, cases) if request.static else _counted(request, cases)
    if all(profile.reason for profile in found.profiles):
        reasons = "; ".join(f"{profile.kernel.id}: {profile.reason}" for profile in found.profiles)
        raise EnvironmentProblem(reasons) if found.failed else UsageError(reasons)
    foreign = [
        f"{case.kernel.id} is not verified by profile: use cudareduce verify"
        for case in cases if case.kernel.foreign
    ]  # fmt: skip
    found = replace(found, notes=(*found.notes, *foreign))
    sections = kernel_sections(found.profiles, found.what, registry.kernels, found.notes)
    if request.diff and not any(profile.reason for profile in found.profiles):
        old, new = found.profiles
        sections = [diff_section(old, new, found.what, found.notes)]
    about = {"kind": "cudareduce profile", "schema": 1, "tool": tool(request.argv),
             "device": asdict(found.device) if found.device else None,
             "what": found.what, "static": request.static}  # fmt: skip
    publish(
        request.outputs, sections, {"json": lambda: to_json(found.profiles, about, found.notes)}
    )
    _draw(request, found)
    return EnvironmentProblem.exit_code if found.failed else 0


def _chosen(request: ProfileRequest, registry: Registry) -> list[Choice]:
    if not request.kernels:
        raise UsageError("name a kernel to profile, as in cudareduce profile reduce_v0_baseline")
    options = request.files.with_shape(request.block, request.items)
    requested = Requested(map=request.reduction.map)
    take = ExternalFiles(
        options, partial(say, quiet=request.quiet), [(request.n, request.rows)],
        default_cache(), requested,
    )  # fmt: skip
    return registry.choose(request.kernels, take)


def _check(request: ProfileRequest, choices: Sequence[Choice]) -> None:
    """Raise UsageError for invalid options, before anything is compiled."""
    if request.diff and len(choices) != 2:
        raise UsageError(f"--diff compares two kernels, not {len(choices)}: name two")
    if request.static and request.pictures:
        raise UsageError("charts need counters of ncu: leave out --static, or --png and --svg")
    why = request.reduction.why_undefined()
    if why:
        raise UsageError(why)
    request.outputs.check(*(choice.kernel.path for choice in choices))
    check_image_files(request.pictures)


def _case(choice: Choice, request: ProfileRequest) -> Case:
    """The kernel with the requested launch shape or its own, and with its own transform."""
    kernel, reduction = choice.kernel, request.reduction
    block = request.block or choice.block or kernel.block
    items = request.items or choice.items or kernel.items_of(reduction.dtype.size)
    own = replace(reduction, map=kernel.map or reduction.map)
    return Case(kernel, own, block, items, choice.suite, choice.name)


def _why_not(case: Case) -> str | None:
    """Why a kernel does not support the reduction or launch shape."""
    kernel = case.kernel
    shape = kernel.why_not_items(case.items, case.reduction.dtype.size)
    return kernel.why_not(case.reduction) or kernel.why_not_block(case.block) or shape


def _static(request: ProfileRequest, cases: Sequence[Case]) -> _Profiles:
    fitting = [case for case in cases if _why_not(case) is None]
    cache = None if request.no_cache or why_unusable(default_cache()) else default_cache()
    static = static_values(fitting, request.arch, cache, request.quiet)
    values = dict(zip(fitting, static.values, strict=True))
    profiles = tuple(
        Profile(
            case.kernel, own := values.get(case, {}), static=True,
            reason=_why_not(case) or ("" if own else _why_unknown(case, static)),
        )
        for case in cases
    )  # fmt: skip
    what = f"{request.op} of {request.dtype} on sm_{request.arch}, without a GPU"
    return _Profiles(profiles, what, None, (_NEEDED, *static.notes, _UNSEEN))


def _why_unknown(case: Case, static: StaticValues) -> str:
    reasons = (note for note in static.notes if note.startswith(case.kernel.id))
    return next(reasons, "it has no static values")


def _counted(request: ProfileRequest, cases: Sequence[Case]) -> _Profiles:
    deadline = Deadline(request.max_time)
    spec, device, limits = _machine(request)
    plans = [_plan(case, request, limits, device.memory_bytes) for case in cases]
    launched = [case for case, plan in zip(cases, plans, strict=True) if isinstance(plan, Plan)]
    by_case: dict[Case, Profile] = {}
    notes = [_NEEDED, "first launch only, with an empty cache and unlocked clocks"]
    if launched:
        task = Task(spec, tuple(launched), request.n, request.rows)
        with phase("counting", 1, request.quiet):
            done = count_metrics(task, METRICS.values(), deadline)
        for k, case in enumerate(launched):
            plan, launch = case.plan(request.n, request.rows, limits), done.launches[k]
            values = launch_values(plan, launch.counted if launch else {})
            by_case[case] = Profile(case.kernel, values, static=False, reason=done.reasons[k])
        notes += [f"this version of ncu does not support {name}" for name in sorted(done.unknown)]
    profiles = tuple(
        by_case.get(case) or Profile(case.kernel, {}, static=False, reason=str(plan))
        for case, plan in zip(cases, plans, strict=True)
    )  # fmt: skip
    rows = f" x {size_text(request.rows)} rows" if request.rows > 1 else ""
    what = f"{request.op} of {size_text(request.n)} {request.dtype}{rows}, {device.name}"
    failed = any(profile.reason for profile in by_case.values())
    return _Profiles(profiles, what, device, tuple(notes), failed)


def _machine(request: ProfileRequest) -> tuple[BackendSpec, DeviceInfo, DeviceLimits]:
    """The GPU. Raises EnvironmentProblem if it or ncu is missing."""
    try:
        spec, remarks = choose_backend("cuda", request.device, not request.no_cache)
        find_ncu()
    except EnvironmentProblem as problem:
        raise EnvironmentProblem(f"{str(problem).rstrip('.')}; {_STATIC}") from None
    for remark in remarks:
        say(remark, request.quiet)
    with open_timed(spec) as backend:
        return spec, backend.info(), backend.limits()


def _plan(
    case: Case, request: ProfileRequest, limits: DeviceLimits, memory_bytes: int | None
) -> Plan | str:
    """The plan of a launch, or why there is none."""
    reason = _why_not(case)
    if reason:
        return reason
    try:
        plan = case.plan(request.n, request.rows, limits)
    except UsageError as error:
        return str(error).removeprefix(f"{case.kernel.id} ")
    if plan.problem.input_bytes > (memory_bytes or inf):
        return "its input does not fit into the memory of this GPU: give a smaller --n"
    return plan


def _draw(request: ProfileRequest, found: _Profiles) -> None:
    if not request.pictures:
        return
    from cudareduce.report.plot.vega import image

    figures = charts(found.profiles, request.n * request.rows, found.what)
    for style, path in request.pictures.items():
        write_bytes(path, image(figures, style))
        say(f"{path} shows {len(figures)} charts", request.quiet)
