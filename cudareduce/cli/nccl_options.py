"""The options that name NCCL: files of it, for `collective` and for `check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cudareduce.cli.help import made
from cudareduce.cli.types import why_no_name
from cudareduce.several.collectives import COLLECTIVES


class Files(click.ParamType[tuple[Path, ...]]):
    """Files by their names, with commas; `count` of them, where that is said."""

    name = "FILE,..."

    def __init__(self, count: int | None = None) -> None:
        self._count = count

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[Path, ...]:
        """As paths."""
        if isinstance(value, tuple):
            return value
        names = value.split(",")
        for name in names:
            problem = why_no_name(name)
            if problem:
                self.fail(problem, param, ctx)
        if self._count not in (None, len(names)):
            self.fail(f"{self._count} files are compared: write OLD.so,NEW.so", param, ctx)
        return tuple(map(Path, names))


add_nccl = click.option(
    "--nccl", type=Files(), default=(), metavar="FILE,...",
    help="A libnccl.so.2, or several to time beside each other.  [default: that of "
    "nvidia-nccl-cu13 or -cu12, else the system's]",
)  # fmt: skip
add_two_nccls = click.option(
    "--nccl", "libraries", type=Files(2), metavar="OLD,NEW",
    help="Two files of NCCL, on all GPUs in the same rounds; in the place of kernels stand "
    "all-reduce, reduce-scatter and reduce.  [default: the first two]",
)  # fmt: skip
#: What is measured unless it is said: from where starting takes the time to where links do.
_DEFAULTS = {
    "kernels": ("all-reduce", "reduce-scatter"), "n": tuple(2**k for k in range(10, 29, 2)),
    "op": ("sum",), "dtype": ("float32",),
}  # fmt: skip
#: Options of `check` that say nothing to two libraries.
_ABOUT_KERNELS = (
    "folders", "baseline", "base", "times", "compiling", "update_baseline", "rows",
    "arch", "map", "peers", "ranks", "device", "time_limit", "max_time", "json", "cross_device",
    "no_same_code",
)  # fmt: skip
_NAMES = {"folders": "--kernels", "times": "--self", "compiling": "--compile"}


def check_two_nccls(options: dict[str, Any]) -> int:
    """`check --nccl`, with the options of `check`."""
    for key in _ABOUT_KERNELS:
        if options.pop(key):
            name = _NAMES.get(key, f"--{key.replace('_', '-')}")
            raise click.UsageError(f"{name} says nothing to two libraries: leave it or --nccl out")
    from cudareduce.several.check.two_nccls import NcclRequest, check_nccl

    options |= {key: options[key] or value for key, value in _DEFAULTS.items()}
    collectives, files = options.pop("kernels"), options.pop("libraries")
    for name in collectives:
        if name not in COLLECTIVES:
            raise click.UsageError(f"--nccl takes {', '.join(COLLECTIVES)}, and not {name!r}")
    return check_nccl(made(NcclRequest, options | {"collective": collectives, "nccl": files}))
