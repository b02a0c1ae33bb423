"""Times over a range of sizes or SMs, and models fitted to them."""
