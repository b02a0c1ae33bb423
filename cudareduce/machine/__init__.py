"""The machine that is measured on: facts of its GPU, and of the host."""
