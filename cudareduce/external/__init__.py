"""External kernel files: other people's `.cu` files, recorded as their host code launches them."""
