"""Writes results as one self-contained HTML page with tables, charts and kernels."""
