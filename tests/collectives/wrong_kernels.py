"""Kernels of several ranks with one fault each: an edit of a right one that must be told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cudareduce.collectives.kernels import device_text, load_kernels

_ENTRY, _EXIT = "    ranks.meet(flags, 2 * call);\n", "    ranks.meet(flags, 2 * call + 1);\n"
_STORE = "ranks.here<Pack>(out)[p] = sum;"
_FOLD = f"fold_tiles(ranks, in, 0, packs, [&](size_t p, Pack sum) {{ {_STORE} }});"
_SHARE = "packs * ranks.me / RANKS, end = packs * (ranks.me + 1) / RANKS"
#: What kernels share, so that it can be edited as well.
_SENT = "template <typename Store>\n__device__ void fold_sent"
_OWN = _SENT + device_text("ranks.cuh").partition(_SENT)[2]


@dataclass(frozen=True, slots=True)
class Edit:
    """What stands in the place of some of a kernel's text, and the fault that makes."""

    name: str
    kernel: str
    old: str
    new: str
    fault: str


def _folded(first: str, turns: str, rank: str) -> str:
    """A fold of another order, pack by pack."""
    return f"""const size_t own = blockIdx.x * BLOCK + threadIdx.x;
    for (size_t p = own; p < packs; p += gridDim.x * BLOCK) {{
        Pack sum = ranks.at<Pack>({first}, in)[p];
        for (unsigned r = 1; r < {turns}; r++)
            for (unsigned e = 0; e < VECTOR; e++) {{
                const In other = ranks.at<Pack>({rank}, in)[p].at[e];
                sum.at[e] = In(Op::combine(Acc(sum.at[e]), Acc(other)));
            }}
        {_STORE}
    }}"""


ONE_SHOT, TWO_SHOT, PACKETS, WRITES = (
    f"all_reduce_{short}" for short in ("one_shot", "two_shot", "packets", "writes")
)
SCATTER = "reduce_scatter_writes"
EDITS = (
    Edit("no_entry", ONE_SHOT, _ENTRY, "", "nobody waits for inputs"),
    Edit("no_exit", ONE_SHOT, _EXIT, "", "nobody waits until inputs have been read"),
    Edit("block_0", ONE_SHOT, _EXIT, f"    if (blockIdx.x == 0)\n    {_EXIT}",
         "blocks but the first do not wait until inputs have been read"),
    Edit("but_block_1", ONE_SHOT, _EXIT, f"    if (blockIdx.x != 1)\n    {_EXIT}",
         "the second block does not wait until inputs have been read"),
    Edit("one_waits", ONE_SHOT, _EXIT, f"    if (ranks.me == 0)\n    {_EXIT}",
         "one rank waits until its input has been read, the others only if they are late"),
    Edit("one_number", ONE_SHOT, _EXIT, _ENTRY, "both barriers have one number"),
    Edit("left_out", ONE_SHOT, _FOLD, _folded("0", "RANKS - 1", "r"), "the last rank is no part"),
    Edit("twice", ONE_SHOT, _FOLD, _folded("0", "RANKS + 1", "r % RANKS"), "rank 0 counts twice"),
    Edit("own_first", ONE_SHOT, _FOLD, _folded("ranks.me", "RANKS", "(ranks.me + r) % RANKS"),
         "each rank begins with its own array, and so has bits of its own"),
    Edit("root_alone", ONE_SHOT, _STORE, f"if (ranks.me == 0) {_STORE}", "rank 0 alone has it"),
    Edit("previous", ONE_SHOT, _STORE, f"if (call % 3) {_STORE}", "each third answer is old"),
    Edit("off_by_one", TWO_SHOT, "begin = packs * ranks.me",
         "begin = (RANKS - 1 + packs * ranks.me)",
         "where shares are no whole numbers, a pack is nobody's"),
    Edit("equal_shares", TWO_SHOT, _SHARE,
         "packs / RANKS * ranks.me, end = packs / RANKS * (ranks.me + 1)", "the rest is nobody's"),
    Edit("no_release", TWO_SHOT, _EXIT, "", "nobody waits for the shares of others"),
    Edit("spoils", ONE_SHOT, _EXIT, f"{_EXIT}    ranks.here<Pack>(in)->at[0] = In(1);\n",
         "it writes to its input, when all have read it"),
    Edit("beyond", ONE_SHOT, "in, 0, packs,", "in, 0, packs + 3,",
         "it writes behind the output"),
    Edit("in_front", ONE_SHOT, _EXIT, f"{_EXIT}    ranks.here<In>(out)[-1] = In(1);\n",
         "it writes in front of the output"),
    Edit("one_mail", PACKETS, "call % 2 * half", "0 * half", "mail is overwritten unread"),
    Edit("no_call", PACKETS, "return word >> 32 == (call & 0xffffffffu);",
         "return word >> 32 != 0;", "mail of an earlier call will do"),
    Edit("one_box", SCATTER, "call % 2 * RANKS * most", "0 * RANKS * most",
         "boxes are overwritten before they are read"),
    Edit("any_tile", WRITES, ">= (call << 32 | (tile / half + 1))", ">= (call << 32)",
         "the first tile of a call will do for all"),
    Edit("any_call", WRITES, ">= (call << 32 | (tile / half + 1))", ">= tile / half + 1",
         "tiles of an earlier call will do"),
    Edit("untold", WRITES, _EXIT, "", "nobody waits for the sums of others"),
)  # fmt: skip


def small(text: str) -> str:
    """A kernel whose blocks are so few and small that each has many tiles of what is tried."""
    text = re.sub("blocks? += .*\n", "", text)
    return text.replace("+++*/", "block = 32\nblocks = 2\n+++*/", 1)


def write(folder: Path) -> None:
    """All of them, as files of a folder."""
    right = load_kernels()
    for edit in EDITS:
        text = small(right[edit.kernel].text).replace("+++*/\n", f"+++*/\n{_OWN}", 1)
        text = text.replace("fold_sent(", "own_fold_sent(")
        assert edit.old in text, edit.name
        name = f"{right[edit.kernel].collective.replace('-', '_')}_{edit.name}"
        text = text.replace(edit.old, edit.new).replace(edit.kernel, name)
        (folder / f"{name}.cu").write_text(text)
