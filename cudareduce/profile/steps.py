"""What the next steps of the ladder do about what a profile shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import steps_of

#: The headings of the lines that a technique moves.
_MOVES = {
    "no_divergence": ("lanes at work",),
    "no_bank_conflict": ("shared memory",),
    "first_add": ("waits for memory", "instructions"),
    "warp_unroll": ("waits at barriers", "instructions"),
    "template_unroll": ("instructions",),
    "multi_add": ("waits for memory", "instructions"),
    "wide_load": ("loads under way", "instructions"),
    "shuffle": ("shared memory", "waits at barriers"),
    "last_block": ("launches",),
}
#: So many are named where a kernel has many.
_MOST = 4


def next_steps(kernel: Kernel, kernels: Mapping[str, Kernel]) -> Iterator[str]:
    """A line for each kernel that is a step from this one: what it changes, and which lines its new
    techniques are about."""
    steps = steps_of(kernels).get(kernel.id, [])
    for step in steps[:_MOST]:
        new = [word for word in step.techniques if word not in kernel.techniques]
        about = dict.fromkeys(heading for word in new for heading in _MOVES.get(word, ()))
        of = f" (about {', '.join(about)})" if about else ""
        yield f"next: {step.id}{of}: {step.change}"
    if len(steps) > _MOST:
        yield f"and {len(steps) - _MOST} steps more: cudareduce show {kernel.id} names them"


def between(before: Kernel, after: Kernel) -> str:
    """What the second changes against the first, where it is a step from it; else nothing."""
    return f"{after.id} is the step after {before.id}: {after.change}" * (after.after == before.id)
