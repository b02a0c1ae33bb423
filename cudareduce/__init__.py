"""Benchmark and verify CUDA reduction kernels.

`cudareduce.bench`, `verify`, `reveal`, `compare` and `plot` do what the commands of these names do
and return a `Result` or a `Picture`; `load` reads a file that `--json` wrote. The errors that they
raise are in `cudareduce.errors`.
"""

from __future__ import annotations

import sys
from importlib import import_module

__version__ = "0.2.0"

# Packages have the names of functions. They are imported first, since the import of a package
# replaces the attribute of its name; these import nothing themselves.
_PACKAGES = [import_module(f"cudareduce.{name}")
             for name in ("bench", "compare", "verify")]  # fmt: skip

from cudareduce import errors  # noqa: E402
from cudareduce.api import (  # noqa: E402
    Picture,
    Result,
    bench,
    compare,
    load,
    plot,
    reveal,
    verify,
)

__all__ = [
    "Picture", "Result", "__version__", "bench", "compare", "errors", "load", "plot", "reveal",
    "verify",
]  # fmt: skip

# The attributes of a package are found at the function, too: `cudareduce.bench.command`.
for _package in _PACKAGES:
    _function = getattr(sys.modules["cudareduce.api"], _package.__name__.rpartition(".")[2])
    _function.__dict__ = vars(_package)


def __dir__() -> list[str]:
    return __all__
