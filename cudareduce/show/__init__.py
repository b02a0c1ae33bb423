"""A kernel to learn from: what it changes and gained, its source, what a compiler makes of it."""
