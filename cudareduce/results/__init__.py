"""Records, result files, and the tool that made them."""
