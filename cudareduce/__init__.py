"""Benchmark of CUDA parallel reductions: every known way, verified, timed and compared."""

__version__ = "0.1.0"
