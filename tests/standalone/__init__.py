"""Compares times that the tool reports with programs that measure them without it: libraries, NCCL
and external kernel files."""
