"""Which kernel, in which launch shape, for which problem: what `auto` stands for."""
