"""More than one GPU or machine: ranks that exchange, and many machines' results."""
