"""The metrics that Nsight Compute is asked for, by their names on cc 7.5 and newer, and what
follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cudareduce.launch.plan import Plan

#: The share of its peak that the busiest part of the memory system reaches, shared memory and
#: caches among them.
MEMORY_PCT = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"

_OF_PEAK = "avg.pct_of_peak_sustained_elapsed"
_WAITS = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_LOADS = "l1tex__t_{}_pipe_lsu_mem_global_op_ld.sum"
#: Each by a short name: times in ns, sizes in bytes, shares in per cent.
METRICS = {
    "time_ns": "gpu__time_duration.sum",
    "read": "dram__bytes_read.sum",
    "written": "dram__bytes_write.sum",
    "dram_pct": f"gpu__dram_throughput.{_OF_PEAK}",
    "l2_pct": f"lts__throughput.{_OF_PEAK}",
    "sm_pct": f"sm__throughput.{_OF_PEAK}",
    "memory_pct": MEMORY_PCT,
    "warps_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "warps_possible_pct": "sm__maximum_warps_per_active_cycle_pct",
    "threads": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "lanes": "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "sectors": _LOADS.format("sectors"),
    "requests": _LOADS.format("requests"),
    "barrier_cycles": _WAITS.format("barrier"),
    "memory_cycles": _WAITS.format("long_scoreboard"),
    "cycles": "smsp__average_warp_latency_per_inst_issued.ratio",
    "instructions": "smsp__inst_executed.sum",
    "registers": "launch__registers_per_thread",
    "adds_a_cycle": "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
    "sm_cycles_a_s": "sm__cycles_elapsed.avg.per_second",
    "dram_bytes_a_cycle": "dram__bytes.sum.peak_sustained",
    "dram_cycles_a_s": "dram__cycles_elapsed.avg.per_second",
}
SECTOR_BYTES = 32


def of_launch(plan: Plan, counted: Mapping[str, float]) -> dict[str, float]:
    """The values of a plan's first launch by short names: what was counted by the metrics' names,
    and what follows from it, as far as it goes. Without a launch there are none."""
    if not plan.passes or not counted:
        return {}
    problem = plan.problem
    short = {key: counted[name] for key, name in METRICS.items() if name in counted}
    return short | dict(_derived(short, problem.elements, problem.input_bytes, _results(plan)))


def _results(plan: Plan) -> int:
    """Bytes that the first launch leaves: partials for the next, or for its last block, and
    answers."""
    reduction = plan.problem.reduction
    if len(plan.passes) > 1:
        return plan.passes[0].grid * reduction.acc_size
    return plan.scratch.get("partials", 0) + plan.outputs * reduction.result_size


def _derived(
    got: Mapping[str, float], elements: int, needed: float, results: float
) -> Iterator[tuple[str, float]]:
    def have(*names: str) -> bool:
        return all(got.get(name) is not None for name in names)

    if have("read"):
        yield "read_share", got["read"] / needed
    if have("written"):
        yield "written_share", got["written"] / results
    if have("wavefronts", "conflicts") and 0 < got["wavefronts"] > got["conflicts"]:
        yield "turns", got["wavefronts"] / (got["wavefronts"] - got["conflicts"])
    if have("sectors", "requests") and got["requests"]:
        yield "sectors_a_request", got["sectors"] / got["requests"]
        yield "sector_share", got["sectors"] * SECTOR_BYTES / needed
    if have("cycles") and got["cycles"]:
        for what in ("barrier", "memory"):
            if have(f"{what}_cycles"):
                yield f"{what}_wait_pct", 100 * got[f"{what}_cycles"] / got["cycles"]
    if have("instructions"):
        yield "instructions_a_warp_of_elements", 32 * got["instructions"] / elements
    if have("time_ns") and got["time_ns"]:
        yield "gb_s", needed / got["time_ns"]
