"""Benchmark of CUDA parallel reductions: every known way, verified, timed and compared."""

__version__ = "0.2.0"
