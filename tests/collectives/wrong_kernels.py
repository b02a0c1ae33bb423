"""Wrong multi-GPU kernels: each is an edit of a right one and must be rejected."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cudareduce.collectives.kernels import device_text, load_kernels

_ENTRY, _EXIT = "    ranks.meet(flags, 2 * call);\n", "    ranks.meet(flags, 2 * call + 1);\n"
_STORE = "ranks.here<Pack>(out)[p] = sum;"
_FOLD = f"fold_tiles(ranks, in, 0, packs, [&](size_t p, Pack sum) {{ {_STORE} }});"
_SHARE = "packs * ranks.me / RANKS, end = packs * (ranks.me + 1) / RANKS"
#: The shared function `fold_sent`, so that it can be edited, too.
_SENT = "template <typename Store>\n__device__ void fold_sent"
_OWN = _SENT + device_text("ranks.cuh").partition(_SENT)[2]


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces `old` by `new` in a kernel; `fault` describes the error."""

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
    Edit("no_entry", ONE_SHOT, _ENTRY, "", "no rank waits for inputs"),
    Edit("no_exit", ONE_SHOT, _EXIT, "", "no rank waits until inputs have been read"),
    Edit("block_0", ONE_SHOT, _EXIT, f"    if (blockIdx.x == 0)\n    {_EXIT}",
         "blocks but the first do not wait until inputs have been read"),
    Edit("but_block_1", ONE_SHOT, _EXIT, f"    if (blockIdx.x != 1)\n    {_EXIT}",
         "the second block does not wait until inputs have been read"),
    Edit("one_waits", ONE_SHOT, _EXIT, f"    if (ranks.me == 0)\n    {_EXIT}",
         "one rank waits until its input has been read, the others only if they are late"),
    Edit("one_number", ONE_SHOT, _EXIT, _ENTRY, "both barriers have one number"),
    Edit("left_out", ONE_SHOT, _FOLD, _folded("0", "RANKS - 1", "r"), "the last rank is left out"),
    Edit("twice", ONE_SHOT, _FOLD, _folded("0", "RANKS + 1", "r % RANKS"), "rank 0 counts twice"),
    Edit("own_first", ONE_SHOT, _FOLD, _folded("ranks.me", "RANKS", "(ranks.me + r) % RANKS"),
         "each rank starts with its own array, so ranks have different bits"),
    Edit("root_alone", ONE_SHOT, _STORE, f"if (ranks.me == 0) {_STORE}", "only rank 0 has it"),
    Edit("previous", ONE_SHOT, _STORE, f"if (call % 3) {_STORE}", "every third result is stale"),
    Edit("off_by_one", TWO_SHOT, "begin = packs * ranks.me",
         "begin = (RANKS - 1 + packs * ranks.me)",
         "if slices are not whole packs, one pack is left out"),
    Edit("equal_shares", TWO_SHOT, _SHARE,
         "packs / RANKS * ranks.me, end = packs / RANKS * (ranks.me + 1)", "the rest is left out"),
    Edit("no_release", TWO_SHOT, _EXIT, "", "no rank waits for the slices of others"),
    Edit("spoils", ONE_SHOT, _EXIT, f"{_EXIT}    ranks.here<Pack>(in)->at[0] = In(1);\n",
         "it writes to its input after all have read it"),
    Edit("beyond", ONE_SHOT, "in, 0, packs,", "in, 0, packs + 3,",
         "it writes past the end of the output"),
    Edit("in_front", ONE_SHOT, _EXIT, f"{_EXIT}    ranks.here<In>(out)[-1] = In(1);\n",
         "it writes before the output"),
    Edit("one_mail", PACKETS, "call % 2 * half", "0 * half", "mail is overwritten unread"),
    Edit("no_call", PACKETS, "return word >> 32 == (call & 0xffffffffu);",
         "return word >> 32 != 0;", "mail of an earlier call is accepted"),
    Edit("one_slot_set", SCATTER, "call % 2 * RANKS * most", "0 * RANKS * most",
         "slots are overwritten before they are read"),
    Edit("any_tile", WRITES, ">= (call << 32 | (tile / half + 1))", ">= (call << 32)",
         "the first tile of a call is accepted for all"),
    Edit("any_call", WRITES, ">= (call << 32 | (tile / half + 1))", ">= tile / half + 1",
         "tiles of an earlier call are accepted"),
    Edit("no_final_barrier", WRITES, _EXIT, "", "no rank waits for the sums of others"),
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
