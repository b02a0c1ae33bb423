"""CUB and PyTorch as programs of their own time them, beside what `bench --peers` says of them."""
