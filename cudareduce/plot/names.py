"""The kinds of pictures by their names: what each shows, for help, and its heading."""

from __future__ import annotations

KINDS = {
    "sizes": "bandwidth and time over n, of at least 3 sizes",
    "ladder": "a bar for each kernel at one size",
    "speedup": "kernels against the fastest library over n, of a run with --peers",
    "winners": "the fastest of several types or sizes",
    "sms": "bandwidth over the SMs that work, of a run with --sms",
    "busbw": "bus bandwidth over bytes, of collectives",
    "change": "the times of two runs, before and after",
    "gpus": "results of several GPUs, in per cent of their ceilings",
}
HEADINGS = {
    "sizes": "Over n",
    "ladder": "The ladder",
    "speedup": "Against libraries",
    "winners": "Who wins where",
    "sms": "Over SMs",
    "busbw": "Over bytes",
    "change": "Before and after",
    "gpus": "Several GPUs",
}
