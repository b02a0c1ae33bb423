"""What a kernel says in the words of cooperative groups, in those that were there before: so all
texts are read in one way."""

from __future__ import annotations

import re

from cudareduce.cuda_source import CALL, grids_in, meets

_OF = r"\b[\w:]+(?:\s*\(\s*\))?\s*\.\s*"
#: What is said of any group.
_WORDS = tuple(
    (re.compile(rf"{_OF}{name}{CALL}"), word)
    for name, word in (
        ("(?:group_index|block_index)", "blockIdx"), ("block_rank", "blockIdx.x"),
        ("(?:group_dim|dim_threads)", "blockDim"), ("thread_index", "threadIdx"),
        ("dim_blocks", "gridDim"), ("num_blocks", "gridDim.x"),
    )
)  # fmt: skip
#: What only says that a name is meant not to be used.
_UNUSED = re.compile(
    r"(?<![\w)])(?:\(\s*void\s*\)\s*\w+|(?:static|reinterpret)_cast<\s*void\s*>\s*\(\s*\w+\s*\))\s*;"
)
#: What is said of the group that is the grid.
_OF_GRID = (
    ("thread_rank", "(blockIdx.x * blockDim.x + threadIdx.x)"),
    ("(?:num_threads|size)", "(gridDim.x * blockDim.x)"),
)


def in_old_words(code: str) -> str:
    """The body of a kernel, for those who look what it does. That a grid is one whose blocks meet
    stays to be seen: it is launched in another way."""
    for grid in grids_in(code):
        for name, words in _OF_GRID:
            code = re.sub(rf"(?:\w+::)*{grid}\s*\.\s*{name}{CALL}", words, code)
    if not meets(code):
        code = code.replace("this_grid", "grid_of_its_own")
    code = _UNUSED.sub(";", code)
    for pattern, word in _WORDS:
        code = pattern.sub(word, code)
    return code
