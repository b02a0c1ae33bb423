"""Reductions: sizes, types, operators, transforms, inputs, reference results and error bounds."""
