"""Whether a kernel is right: bounds from its plan, patterns by operator, sizes that hurt."""
