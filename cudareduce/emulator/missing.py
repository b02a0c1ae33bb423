"""What of CUDA the emulator has not, told from what a compiler rejects because it is wrong."""

from __future__ import annotations

import re

#: A line of g++ that something is not known, by the kind of thing.
_ERROR = re.compile(r"^(?P<place>\S+?:\d+)(?::\d+)?: (?:fatal )?error: (?P<what>.*)$", re.MULTILINE)
_UNKNOWN = tuple(
    re.compile(pattern)
    for pattern in (
        r"'(?P<name>\w+)' was not declared in this scope",
        r"'(?P<name>\w+)' (?:does not name a type|has not been declared|is not a template)",
        r"there are no arguments to '(?P<name>\w+)' that depend on a template parameter",
        r"'(?P<name>\w+)' (?:is not a member of|in namespace) "
        r"'(?P<scope>(?:cooperative_groups|cg|cuda|nvcuda)\b[\w:]*)'",  # or the usual alias
        r"'(?:const )?(?:class |struct )?(?P<scope>(?:cooperative_groups|cuda)::[\w:]*)[^']*' "
        r"has no member named "
        r"'(?P<name>\w+)'",
    )
)
_NO_HEADER = re.compile(r"(?P<name>\S+): No such file or directory")
_PTX = "inline PTX"

#: Headers that come with CUDA, as far as names tell.
_CUDA_HEADERS = re.compile(
    r"(?:cub|thrust|cuda|nv|nvtx3|cooperative_groups|crt|cute|cutlass)/"
    r"|(?:cuda|curand|cublas|cufft|cusparse|cusolver|nvtx|texture|surface|mma|sm_\d+_)\w*\.hp?p?$"
)
#: Names of CUDA that the emulator lacks: families, and the rest one by one.
_CUDA_NAMES = re.compile(
    r"(?:tex|surf)(?:1D|2D|3D|Cubemap)\w*|cuda[A-Z]\w*|cu(?:Float|Double)?Complex|cuC\w+f?"
    r"|curand\w*|cub|thrust|nvcuda|wmma|malloc|free|alloca"
    r"|__(?:nv|half|bfloat|mbarrier|cluster|cvta|pipeline|u128Atomic|vib)\w+|awbarrier_\w+"
    r"|__is(?:Shared|Global|Local|Constant|GridConstant|CtaShared|ClusterShared)"
    r"|__(?:fadd2|fmul2|ffma2|fmaf_ieee)_r\w|__hcmadd|h2?tanh_approx|__prof_trigger|__pm[0-3]"
    r"|(?:__)?(?:j[01n]|y[01n]|norm|rnorm|norm4d|rnorm3d|rnorm4d|normcdf|normcdfinv|erfcinv|erfcx"
    r"|erfinv|cyl_bessel_i[01]|sinpi|cospi|sincospi|remquo|scalbln|nan|__tanh)f?"
    r"|__threadfence_cluster|clusterDim|clusterIdx|__barrier_sync(?:_count)?|__uni_sync"
)
_NO_HEAP = re.compile(r"(?P<place>\S+:\d+): undefined reference to `operator (?:new|delete)")


def missing(errors: str) -> str | None:
    """What the first error in g++'s words says that the emulator lacks and CUDA has, in a sentence
    with its place; None where the kernel is wrong."""
    error, heap = _ERROR.search(errors), _NO_HEAP.search(errors)
    if error is None and heap is not None:
        return f"{heap['place'].removeprefix('./')}: the emulator has no new and delete yet"
    if error is None:
        return None
    what = error["what"]
    if _PTX in what:
        return f"{error['place']}: cannot be decided here: {what}"
    header = _NO_HEADER.match(what)
    if header is not None:
        known = _CUDA_HEADERS.match(header["name"])
        return f"{error['place']}: the emulator has no <{header['name']}> yet" if known else None
    for unknown in _UNKNOWN:
        found = unknown.search(what)
        if found is None:
            continue
        scope = found.groupdict().get("scope")
        if scope or _CUDA_NAMES.fullmatch(found["name"]):
            name = f"{scope}::{found['name']}" if scope else found["name"]
            return f"{error['place']}: the emulator has no {name} yet"
    return None
