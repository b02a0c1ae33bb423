"""Repeats published experiments and compares the results with the published figures."""
