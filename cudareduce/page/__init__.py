"""Results as one HTML page that opens without a network: tables, charts, kernels."""
