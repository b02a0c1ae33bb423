"""PyTorch's sum of float32, timed without this tool: prints a median in us for each N given.

As the tool does it: other code before, as other rows of a table are, so that instructions come
from memory, too; a cold cache by reading 512 MiB, the call between two events with its output
there before, a wait behind each, the mean of 8 launches, the median of rounds.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from statistics import fmean, median

import torch

ROUNDS, LAUNCHES, CYCLE, FLUSH_BYTES = 9, 96, 8, 512 * 2**20
#: 128 KiB of instructions, which is what an SM keeps.
OTHER_CODE = (
    'extern "C" __global__ void other_code(float *never) { float a = 1;'
    + 'asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(a));' * 8192
    + "if (a == 3) *never = a; }"
)


def one_round(
    n: int, flush: torch.Tensor, sink: torch.Tensor, displaces: Callable[..., None]
) -> float:
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    step = torch.empty(512 * random.randrange(1, 2048), dtype=torch.uint8, device="cuda")
    x = torch.rand(n, device="cuda").mul_(2).sub_(1)
    out = torch.empty((), device="cuda")
    tick = torch.empty(1, device="cuda")
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    samples: list[float] = []
    taken: list[float] = []
    for k in range(LAUNCHES + 3):  # the first few warm up
        displaces(grid=(sms, 1, 1), block=(32, 1, 1), args=[tick])
        for _ in range(random.randrange(8)):
            tick.zero_()
        torch.amax(flush, dim=0, out=sink)
        start.record()
        torch.sum(x, dim=-1, out=out)
        late = start.query()
        end.record()
        torch.cuda.synchronize()
        if late or k < 3:
            continue
        taken.append(1e3 * start.elapsed_time(end))
        if len(taken) == CYCLE:
            samples.append(fmean(taken))
            taken.clear()
    del step
    return median(samples)


def main() -> None:
    displaces = torch.cuda._compile_kernel(OTHER_CODE, "other_code")
    flush = torch.ones(FLUSH_BYTES // 4, device="cuda")
    sink = torch.empty((), device="cuda")
    for word in sys.argv[1:]:
        rounds = []
        for _ in range(ROUNDS + 1):
            rounds.append(one_round(int(word), flush, sink, displaces))
            torch.cuda.empty_cache()
        print(word, f"{median(rounds[1:]):.4f}", flush=True)


if __name__ == "__main__":
    main()
