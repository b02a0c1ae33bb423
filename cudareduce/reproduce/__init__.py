"""Repeats published experiments and compares with their figures."""
