"""Several GPUs: ranks that meet, exchange, and are one run."""
