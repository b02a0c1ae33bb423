"""Verification of kernels: test sets, input patterns, error bounds and verdicts."""
