"""Kernels of several ranks with one fault each: an edit of a right one that must be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cudareduce.several.exchange import load_exchanges

_ENTRY, _EXIT = "    meet(flags, 2 * call);\n", "    meet(flags, 2 * call + 1);\n"
_STORE = "at<Pack>(RANK[0], out)[p] = sum;"
_FOLD = f"fold_tiles(in, 0, packs, [=](size_t p, Pack sum) {{ {_STORE} }});"
_SHARE = "packs * RANK[0] / RANKS, end = packs * (RANK[0] + 1) / RANKS"


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
        Pack sum = at<Pack>({first}, in)[p];
        for (unsigned r = 1; r < {turns}; r++)
            for (unsigned e = 0; e < VECTOR; e++)
                sum.at[e] = In(Op::combine(Acc(sum.at[e]), Acc(at<Pack>({rank}, in)[p].at[e])));
        {_STORE}
    }}"""


EDITS = (
    Edit("no_entry", "one_shot", _ENTRY, "", "nobody waits for inputs"),
    Edit("no_exit", "one_shot", _EXIT, "", "nobody waits until inputs have been read"),
    Edit("one_number", "one_shot", _EXIT, _ENTRY, "both barriers have one number"),
    Edit("left_out", "one_shot", _FOLD, _folded("0", "RANKS - 1", "r"), "the last rank is no part"),
    Edit("twice", "one_shot", _FOLD, _folded("0", "RANKS + 1", "r % RANKS"), "rank 0 counts twice"),
    Edit("own_first", "one_shot", _FOLD, _folded("RANK[0]", "RANKS", "(RANK[0] + r) % RANKS"),
         "each rank begins with its own array, and so has bits of its own"),
    Edit("root_alone", "one_shot", _STORE, f"if (RANK[0] == 0) {_STORE}", "rank 0 alone has it"),
    Edit("previous", "one_shot", _STORE, f"if (call % 3) {_STORE}", "each third answer is old"),
    Edit("off_by_one", "two_shot", "begin = packs * RANK[0]",
         "begin = (RANKS - 1 + packs * RANK[0])",
         "where shares are no whole numbers, a pack is nobody's"),
    Edit("equal_shares", "two_shot", _SHARE,
         "packs / RANKS * RANK[0], end = packs / RANKS * (RANK[0] + 1)", "the rest is nobody's"),
    Edit("no_release", "two_shot", _EXIT, "", "nobody waits for the shares of others"),
    Edit("beyond", "one_shot", "fold_tiles(in, 0, packs,", "fold_tiles(in, 0, packs + 3,",
         "it writes behind the output"),
    Edit("one_mail", "packets", "call % 2 * half", "0 * half", "mail is overwritten unread"),
    Edit("no_call", "packets", "return word >> 32 == (call & 0xffffffffu);",
         "return word >> 32 != 0;", "mail of an earlier call will do"),
)  # fmt: skip


def write(folder: Path) -> None:
    """All of them, as files of a folder."""
    right = load_exchanges()
    for edit in EDITS:
        before = f"all_reduce_{edit.kernel}"
        text = right[before].text
        assert edit.old in text, edit.name
        name = f"all_reduce_{edit.name}"
        text = text.replace(edit.old, edit.new).replace(before, name)
        (folder / f"{name}.cu").write_text(text)
