"""Which launch shape is fastest on this GPU? Searched, verified, measured, kept for `auto`."""
