"""Benchmark of CUDA parallel reductions: every known way, verified, timed and compared.

From Python, `cudareduce.bench`, `verify`, `reveal`, `compare` and `plot` are what the commands of
these names are, and `load` reads what they stored (see `cudareduce.api`).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from cudareduce.api import bench, compare, load, plot, reveal, verify

__all__ = ["__version__", "bench", "compare", "load", "plot", "reveal", "verify"]


class _Callable(ModuleType):
    """A package that can be called like the function of its name in `cudareduce.api`."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        name = self.__name__.rpartition(".")[2]
        return getattr(import_module("cudareduce.api"), name)(*arguments, **options)


if not TYPE_CHECKING:
    for _name in ("bench", "compare", "plot", "reveal", "verify"):  # these import nothing
        import_module(f"cudareduce.{_name}").__class__ = _Callable


def __getattr__(name: str) -> Any:
    """Load the API on demand, so that the command line starts quickly."""
    if name == "load":
        return getattr(import_module("cudareduce.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
