"""Times over a range of sizes, and what follows from them."""
