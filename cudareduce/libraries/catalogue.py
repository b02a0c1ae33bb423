"""The list of supported libraries, made without importing any of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata

from cudareduce.libraries.contract import AbsentError, Library
from cudareduce.libraries.names import NAMES, is_selected
from cudareduce.report.numbers import DASH
from cudareduce.report.section import Section

_CONTEXTS = {"any": "any", "primary": "the primary one", "own": "a process of its own"}
#: Attributes of module cccl, which has two libraries in one shared object.
_IN_CCCL = {"cub": "CUB", "thrust": "THRUST"}


@dataclass(frozen=True, slots=True)
class Listing:
    """Some libraries of a module, in a form that can be sent to a worker process. `place` is module
    and attribute (`cudareduce.libraries.torch:LIBRARIES`); without `names` all are selected."""

    place: str
    names: tuple[str, ...] = ()

    def libraries(self) -> tuple[Library, ...]:
        """The selected libraries. Imports the adapter module, not the library."""
        module, _, name = self.place.partition(":")
        libraries: tuple[Library, ...] = getattr(import_module(module), name)
        return tuple(
            lib for lib in libraries if not self.names or is_selected(lib.name, self.names)
        )


def listings(names: Sequence[str]) -> tuple[Listing, ...]:
    """The listings of the libraries with these names, in the order of tables. A name selects one
    call (`cub:packed`) or all calls of a package (`cub`)."""
    packages = {name.partition(":")[0] for name in names}
    return tuple(
        Listing(f"cudareduce.libraries.{'cccl' if name in _IN_CCCL else name}:"
                f"{_IN_CCCL.get(name, 'LIBRARIES')}", () if name in names else tuple(names))
        for name in NAMES if name in packages
    )  # fmt: skip


def libraries_of(listings: Iterable[Listing]) -> list[Library]:
    return [library for listing in listings for library in listing.libraries()]


def libraries_section() -> Section:
    """The table of libraries: installed versions, and commands that install the missing ones."""
    rows = []
    missing: dict[str, list[str]] = {}
    for library in libraries_of(listings(NAMES)):
        version, remedy = _installed(library)
        time = "the host's" if library.host_only else "the device's"
        rows.append((library.name, version or DASH, _CONTEXTS[library.context], time))
        if version is None:
            missing.setdefault(remedy, []).append(library.name)
    notes = [
        "--peers takes these names; a name up to the colon selects all calls of that library",
        *(f"{', '.join(names)}: {remedy}" for remedy, names in missing.items()),
    ]
    header = ("peer", "version", "CUDA context", "time")
    return Section(f"{len(rows)} peers", header, tuple(rows), tuple(notes), 4)


def libraries_json() -> str:
    return json.dumps(
        [
            {"id": library.id, "version": _installed(library)[0], "context": library.context,
             "host_only": library.host_only, "install": library.install}
            for library in libraries_of(listings(NAMES))
        ],
        indent=1,
    )  # fmt: skip


def libraries_here() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The installed libraries with their versions, and the names of the missing ones."""
    versions: dict[str, str | None] = {}
    for library in libraries_of(listings(NAMES)):
        name = library.name.partition(":")[0]
        versions[name] = versions.get(name) or _installed(library)[0]
    here = tuple(f"{name} {version}" for name, version in versions.items() if version)
    return here, tuple(name for name, version in versions.items() if not version)


def _installed(library: Library) -> tuple[str | None, str]:
    try:
        if library.version_here:
            version: str | None = library.version_here()
        else:
            version = metadata.version(library.package)
    except (OSError, ValueError):
        version = None
    except metadata.PackageNotFoundError:
        return None, library.install
    except AbsentError as error:
        return None, f"{error}: {library.upgrade}"
    if version is None:
        return None, f"its package does not report its version: {library.upgrade}"
    return " ".join(version.split()), ""
