"""Several GPUs: ranks that run collectives, and arrays sharded over ranks."""
