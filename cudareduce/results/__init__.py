"""Records, result files and their schema, and the provenance of a result."""
