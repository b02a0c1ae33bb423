"""The launches of `auto`: valid on unmeasured GPUs, the fastest where a table says so."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from cudareduce.catalog.registry import AUTO, AUTO_FIXED, Registry
from cudareduce.launch.auto.choose import Chooser
from cudareduce.launch.auto.rule import Facts
from cudareduce.launch.auto.table import Table, file_name, read_table, shipped_folder
from cudareduce.launch.case import Case
from cudareduce.launch.plan import MAX_GRID
from cudareduce.machine import DEFAULT_LIMITS, DeviceInfo, DeviceLimits
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS, reduction_of
from tests.analysis.tune.stored_regret import device_of


@dataclass(frozen=True)
class Card:
    """What NVIDIA's tables say of a GPU; `shared` is bytes that a block can have."""

    cc: str
    sms: int
    threads: int
    l2_mib: float
    peak_gb_s: float
    shared: int

    @property
    def facts(self) -> Facts:
        info = DeviceInfo(
            "card", cc=self.cc, sm_count=self.sms, threads_per_sm=self.threads,
            l2_bytes=int(self.l2_mib * 2**20), peak_gb_s=self.peak_gb_s,
        )  # fmt: skip
        return Facts(DeviceLimits(self.sms, self.threads), info)


CARDS = {
    "T4": Card("7.5", 40, 1024, 4, 320, 64 * 1024),
    "A100": Card("8.0", 108, 2048, 40, 1555, 163 * 1024),
    "RTX 4090": Card("8.9", 128, 1536, 72, 1008, 99 * 1024),
    "L4": Card("8.9", 58, 1536, 48, 300, 99 * 1024),
    "H100": Card("9.0", 132, 2048, 50, 3352, 227 * 1024),
    "B200": Card("10.0", 148, 2048, 126, 8000, 227 * 1024),
    "RTX 5090": Card("12.0", 170, 1536, 96, 1792, 99 * 1024),
}
SIZES = (0, 1, 33, 2**10, 2**13 + 1, 2**16, 2**20, 2**24 + 1, 2**28, 2**31, 2**31 + 7, 2**34)
ROWS = ((0, 5), (1, 7), (31, 3), (32, 2**20), (1000, 2**18), (2**20, 64), (2**27, 2), (4097, 3))
H200_FACTS = Facts(DEFAULT_LIMITS, device_of("nvidia-h200"))
H100_FACTS = Facts(DEFAULT_LIMITS, device_of("nvidia-h100"))


def taken(
    registry: Registry, facts: Facts, n: int, rows: int = 1, name: str = AUTO,
    of: tuple[str, str] = ("sum", "float32"),
) -> Case | None:  # fmt: skip
    chooser = Chooser(name, registry.kernels, facts, shipped(facts, registry))
    return chooser.choose(reduction_of(*of), n, rows)


def shipped(facts: Facts, registry: Registry) -> tuple[Table, ...]:
    """The shipped table of a GPU, if it has one."""
    path = shipped_folder() / file_name(facts.info)
    return (read_table(path).holding(registry.kernels),) if path.exists() else ()


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("op", OPERATORS)
def test_selected_kernels_can_be_launched_on_unknown_gpus(
    registry: Registry, card: str, op: str
) -> None:
    facts, shapes = CARDS[card].facts, [*((n, 1) for n in SIZES), *ROWS]
    for dtype in OPERATORS[op].only:
        for n, rows in shapes:
            case = taken(registry, facts, n, rows, of=(op, dtype))
            if case is None:  # nothing here keeps the order of long rows
                assert not OPERATORS[op].commutative and rows != 1 and n > 32
                continue
            plan = case.plan(n, rows, facts.limits)
            assert (plan.problem.n, plan.problem.rows) == (n, rows)
            assert all(0 < step.grid <= MAX_GRID for step in plan.passes)
            assert case.block <= 1024 and case.block <= CARDS[card].threads
            assert float(case.kernel.min_cc) <= float(CARDS[card].cc)
            dynamic = case.kernel.shared_bytes(case.reduction, case.block)
            assert dynamic <= CARDS[card].shared
            if rows == 1 and n >= 2**24:
                assert plan.passes[0].grid >= CARDS[card].sms


@pytest.mark.parametrize(
    ("n", "kernel", "shape"),
    [(2**10, "reduce_tiles_scalar", (128, 8)), (2**12, "reduce_tiles_scalar", (256, 16)),
     (2**14, "reduce_tiles_scalar", (1024, 16)), (2**16, "reduce_tiles_mailbox", (256, 4)),
     (2**18, "reduce_tiles_mailbox", (256, 16)), (2**20, "reduce_tiles_mailbox", (512, 16)),
     (2**21, "reduce_tiles_mailbox", (512, 16)),
     (2**22, "reduce_tiles_self_reset", (512, 16)), (2**25, "reduce_tiles_self_reset", (512, 16)),
     (2**28, "reduce_chunks", (512, 128)), (2**30, "reduce_chunks", (512, 128))],
)  # fmt: skip
def test_on_an_h200_it_takes_what_was_fastest_there(
    registry: Registry, n: int, kernel: str, shape: tuple[int, int]
) -> None:
    case = taken(registry, H200_FACTS, n)
    assert case is not None
    assert (case.kernel.entry, case.block, case.items) == (kernel, *shape)
    assert (case.kernel.id, case.kernel.after) == (AUTO, kernel)


def test_with_fewer_sms_polling_ends_sooner(registry: Registry) -> None:
    few, many = (taken(registry, CARDS[card].facts, 2**20) for card in ("T4", "A100"))
    assert few is not None and few.kernel.entry == "reduce_tiles_self_reset"
    assert many is not None and many.kernel.entry == "reduce_tiles_mailbox"


def test_on_some_of_the_sms_it_takes_rings_once_they_are_full(registry: Registry) -> None:
    """By ticket where any order will do, they keep the memory busy and have time for it; never on
    all SMs, nor on GPUs without room for a ring."""
    few, leisurely = replace(H200_FACTS, sms=48), replace(H100_FACTS, sms=48)
    full = 48 * 192 * 1024 // 4

    def names(facts: Facts, n: int, name: str = AUTO, dtype: str = "float32") -> str:
        case = taken(registry, facts, n, name=name, of=("sum", dtype))
        assert case is not None
        return case.kernel.entry

    assert names(leisurely, full) == "reduce_ring_tickets" == names(leisurely, 2**30)
    assert names(few, full) == "reduce_tiles_ring" == names(few, 2**30)
    assert names(few, full - 1) == "reduce_tiles_self_reset"
    assert names(replace(leisurely, sms=24), 2**28) == "reduce_tiles_ring"
    assert names(leisurely, 2**28, AUTO_FIXED) == "reduce_tiles_ring"
    assert names(leisurely, 2**28, AUTO_FIXED, "int32") == "reduce_ring_tickets"
    assert names(few, 2**28, dtype="int8") == "reduce_dp4a_one_word"
    for other in (replace(few, sms=132), replace(few, lacks=("tma",)), H200_FACTS):
        assert names(other, 2**25) == "reduce_tiles_self_reset"
    assert names(replace(CARDS["A100"].facts, sms=16), 2**28) == "reduce_tiles_self_reset"


@pytest.mark.parametrize(
    ("card", "blocks"),
    [("H200", {24: 24, 47: 47, 52: 48, 56: 56, 60: 56, 64: 64, 131: 64, 132: 132}),
     ("H100", {24: 24, 31: 31, 32: 32, 64: 32, 131: 32, 132: 132})],
)  # fmt: skip
def test_no_more_sms_than_help(registry: Registry, card: str, blocks: dict[int, int]) -> None:
    facts = H200_FACTS if card == "H200" else H100_FACTS
    for sms, expected in blocks.items():
        case = taken(registry, replace(facts, sms=sms), 2**28)
        assert case is not None
        assert replace(case, sms=sms).plan(2**28, 1, facts.limits).passes[0].grid == expected


def test_a_fixed_order_leaves_out_what_adds_floats_as_blocks_arrive(registry: Registry) -> None:
    for n in SIZES:
        case = taken(registry, H200_FACTS, n, name=AUTO_FIXED)
        assert case is not None
        assert case.kernel.finish not in ("atomic", "self_reset", "one_word")
    whole = taken(registry, H200_FACTS, 2**25, name=AUTO_FIXED, of=("sum", "int32"))
    assert whole is not None and whole.kernel.entry == "reduce_tiles_one_word"


@pytest.mark.parametrize(
    ("op", "dtype", "kernel"),
    [("sum", "int32", "reduce_tiles_one_word"), ("argmax", "float32", "reduce_arg_one_word"),
     ("argmax", "int64", "reduce_tiles_arg"),
     ("max", "float64", "reduce_tiles_acq_rel"), ("affine", "int32", "reduce_tiles_ordered"),
     ("sum", "int8", "reduce_dp4a_one_word"), ("mean", "uint8", "reduce_tiles_dp4a"),
     ("max", "int8", "reduce_tiles_byte_pairs"), ("sum", "float16", "reduce_tiles_self_reset"),
     ("prod", "uint8", "reduce_tiles_ring"), ("mean", "int32", "reduce_tiles_mailbox"),
     ("mean", "float16", "reduce_tiles_mailbox"), ("max", "bfloat16", "reduce_tiles_mailbox")],
)  # fmt: skip
def test_each_operator_has_a_way_of_its_own(
    registry: Registry, op: str, dtype: str, kernel: str
) -> None:
    case = taken(registry, H200_FACTS, 2**23, of=(op, dtype))
    assert case is not None
    assert case.kernel.entry == kernel


@pytest.mark.parametrize(
    ("n", "rows", "kernel", "block"),
    [(32, 2**20, "reduce_rows_butterfly", 256), (33, 2**20, "reduce_rows_staged", 256),
     (1000, 2**18, "reduce_rows_warp", 256),
     (2**18, 2048, "reduce_rows_block", 1024), (2**14, 2**14, "reduce_rows_block", 512),
     (2**22, 64, "reduce_rows_split", 512),
     (2**26, 2, "reduce_rows_split", 512), (2**17, 2, "reduce_rows_split", 256)],
)  # fmt: skip
def test_rows_are_shared_out_by_their_number_and_length(
    registry: Registry, n: int, rows: int, kernel: str, block: int
) -> None:
    case = taken(registry, H200_FACTS, n, rows)
    assert case is not None
    assert (case.kernel.entry, case.block) == (kernel, block)


def test_very_many_short_rows_are_dealt_out_by_the_hardware(registry: Registry) -> None:
    for rows, grid in ((2**22, "fill"), (2**24, "cover")):
        case = taken(registry, H200_FACTS, 8, rows)
        assert case is not None
        assert (case.kernel.entry, case.kernel.grid) == ("reduce_rows_butterfly", grid)


def test_bytes_are_folded_with_registers_for_all_of_them(registry: Registry) -> None:
    case = taken(registry, H200_FACTS, 128, 2**20, of=("sum", "int8"))
    assert case is not None
    assert (case.kernel.entry, case.items) == ("reduce_rows_butterfly", 128)


@pytest.mark.parametrize(("n", "aligned", "kernel"), [
    (32, True, "butterfly"), (32, False, "staged"), (33, True, "staged"), (1024, False, "warp"),
])  # fmt: skip
def test_rows_that_begin_anywhere_are_not_taken_for_packs(
    registry: Registry, n: int, aligned: bool, kernel: str
) -> None:
    chooser = Chooser(AUTO, registry.kernels, H200_FACTS)
    case = chooser.choose(reduction_of("sum", "float32"), n, 2**20, aligned=aligned)
    assert case is not None and case.kernel.entry == f"reduce_rows_{kernel}"


def test_with_little_bandwidth_for_each_sm_rows_too_are_dealt_out(registry: Registry) -> None:
    """On an H100 a block a chunk is ahead, of one array and of long rows; an H200 has time for
    larger chunks of one array alone."""
    other = H100_FACTS
    for n, rows, kernel in ((2**28, 1, "reduce_chunks"), (2**18, 2048, "reduce_rows_split"),
                            (2**14, 2**14, "reduce_rows_block")):  # fmt: skip
        case = taken(registry, other, n, rows, AUTO_FIXED)
        assert case is not None and case.kernel.entry == kernel
        dealt = case.plan(n, rows, other.limits).passes[0].grid
        assert dealt == rows * n // (case.block * case.items) or dealt == rows == 2**14
        fast = taken(registry, H200_FACTS, n, rows)
        assert fast is not None
        assert fast.kernel.entry == ("reduce_chunks" if rows == 1 else "reduce_rows_block")


@pytest.mark.parametrize(
    ("op", "dtype", "n", "rows", "kernel", "grid"),
    [("sum", "float32", 2**22, 64, "reduce_rows_split", "cover"),
     ("argmax", "int64", 2**21, 64, "reduce_rows_split", "cover"),
     ("argmin", "float32", 2**22, 64, "reduce_rows_split", "fill_by_row"),
     ("prod", "uint8", 2**24, 1, "reduce_tiles_mailbox", "fill"),
     ("prod", "uint8", 2**27, 1, "reduce_tiles_ring", "per_sm"),
     ("min", "int8", 2**24, 1, "reduce_tiles_byte_pairs", "fill"),
     ("max", "int64", 2**20, 1, "reduce_chunks", "cover"),
     ("sum", "int64", 2**20, 1, "reduce_tiles_self_reset", "fill"),
     ("max", "float64", 2**20, 1, "reduce_tiles_acq_rel", "fill"),
     ("mean", "int64", 2**22, 1, "reduce_tiles_mailbox", "fill"),
     ("mean", "int32", 2**24, 1, "reduce_tiles_acq_rel", "fill")],
)  # fmt: skip
def test_on_an_h100_it_takes_what_was_fastest_there(
    registry: Registry, op: str, dtype: str, n: int, rows: int, kernel: str, grid: str
) -> None:
    case = taken(registry, H100_FACTS, n, rows, of=(op, dtype))
    assert case is not None
    assert (case.kernel.entry, case.kernel.grid) == (kernel, grid)


def test_no_ring_brings_elements_faster_than_they_are_folded(registry: Registry) -> None:
    for facts in (H200_FACTS, replace(H200_FACTS, sms=48)):
        case = taken(registry, facts, 2**28, of=("mean", "int32"))
        assert case is not None and case.kernel.entry == "reduce_tiles_acq_rel"


def test_what_a_machine_lacks_is_not_taken(registry: Registry) -> None:
    lacking = Facts(DEFAULT_LIMITS, H200_FACTS.info, ("tma",), sms=48)
    assert (every := taken(registry, replace(lacking, lacks=()), 2**30)) is not None
    assert every.kernel.entry == "reduce_tiles_ring"
    case = taken(registry, lacking, 2**30)
    assert case is not None and case.kernel.entry == "reduce_tiles_self_reset"


def test_every_type_keeps_one_block_busy_with_the_same_bytes(registry: Registry) -> None:
    """But for those of one byte, of which it folds too many."""
    for dtype, of_type in DTYPES.items():
        alone = 2 ** (15 if of_type.size == 1 else 16) // of_type.size
        most = taken(registry, H200_FACTS, alone, of=("min", dtype))
        more = taken(registry, H200_FACTS, alone + 1, of=("min", dtype))
        loads = "scalar" if of_type.size >= 4 else "block"
        assert most is not None and most.kernel.entry == f"reduce_tiles_{loads}"
        assert more is not None and more.kernel.entry == "reduce_tiles_mailbox"


@pytest.mark.parametrize(
    ("dtype", "alone"), [("int8", 2**12), ("float16", 2**12), ("int32", 2**12), ("float64", 2**13)]
)
def test_places_are_handed_over_sooner(registry: Registry, dtype: str, alone: int) -> None:
    most = taken(registry, H200_FACTS, alone, of=("argmax", dtype))
    more = taken(registry, H200_FACTS, alone + 1, of=("argmax", dtype))
    assert most is not None and more is not None
    assert most.kernel.grid == "one" != more.kernel.grid


def test_rows_of_a_load_for_each_lane_are_a_warps_where_they_are_few(registry: Registry) -> None:
    for rows, name in ((16, "reduce_rows_warp"), (2**20, "reduce_rows_butterfly")):
        case = taken(registry, H200_FACTS, 64, rows, of=("argmax", "uint64"))
        assert case is not None and case.kernel.entry == name


@pytest.mark.parametrize(
    ("of", "n", "rows", "name", "block", "items"),
    [
        (("prod", "int8"), 128, 8, "reduce_rows_broadcast", 256, None),
        (("prod", "int8"), 2**11, 8, "reduce_rows_block", 256, 16),
        (("prod", "float16"), 2**11, 8, "reduce_rows_broadcast", 256, None),
        (("argmax", "int8"), 8, 128, "reduce_warp_registers", 256, 1),
        (("argmax", "int8"), 33, 128, "reduce_rows_warp", 256, 32),
        (("prod", "uint32"), 2**12, 2**16, "reduce_rows_block", 256, None),
        (("prod", "uint32"), 2**12, 2**12, "reduce_rows_warp", 256, None),
        (("prod", "int32"), 64, 2**10, "reduce_rows_warp", 256, 8),
        (("sum", "float32"), 64, 2**14, "reduce_rows_butterfly", None, 16),
        (("mean", "float16"), 64, 2**14, "reduce_rows_butterfly", None, 32),
        (("argmin", "bfloat16"), 64, 2**18, "reduce_rows_butterfly", None, 32),
        (("sum", "float32"), 32, 2**20, "reduce_rows_butterfly", None, 64),
    ],
)
def test_few_rows_go_by_what_each_waits_for(
    registry: Registry,
    of: tuple[str, str],
    n: int,
    rows: int,
    name: str,
    block: int | None,
    items: int | None,
) -> None:
    case = taken(registry, H200_FACTS, n, rows, of=of)
    assert case is not None and case.kernel.entry == name
    assert block in (None, case.block) and items in (None, case.items)


def test_eight_bytes_are_handed_over_by_mail_as_long_as_the_l2_holds_them(
    registry: Registry,
) -> None:
    for n, name in ((2**22, "reduce_tiles_mailbox"), (2**24, "reduce_tiles_acq_rel")):
        case = taken(registry, H100_FACTS, n, of=("mean", "uint64"))
        assert case is not None and case.kernel.entry == name


@pytest.mark.parametrize(
    ("of", "n", "items"),
    [(("max", "float32"), 2**21, 16), (("max", "float32"), 2**22, 8),
     (("prod", "int32"), 2**22, 8), (("max", "bfloat16"), 2**22, 32),
     (("max", "bfloat16"), 2**23, 16)],
)  # fmt: skip
def test_tiles_that_would_all_post_at_once_are_halved(
    registry: Registry, of: tuple[str, str], n: int, items: int
) -> None:
    case = taken(registry, H200_FACTS, n, of=of)
    assert case is not None and case.kernel.entry == "reduce_tiles_mailbox"
    assert (case.block, case.items) == (512, items)


def test_many_wide_rows_get_fewer_items_per_thread(registry: Registry) -> None:
    for rows, items in ((2048, 8), (300, 16)):
        case = taken(registry, H200_FACTS, 2**18, rows, of=("sum", "float32"))
        assert case is not None and case.kernel.entry == "reduce_rows_block"
        assert (case.block, case.items) == (1024, items)


def test_long_rows_are_shared_by_blocks_however_few(registry: Registry) -> None:
    for n, name in ((2**16, "reduce_rows_block"), (2**17, "reduce_rows_split")):
        case = taken(registry, H200_FACTS, n, 2, of=("sum", "uint8"))
        assert case is not None and case.kernel.entry == name
