"""Commands that explain times and results: profile, reveal, sweep, tune, reproduce."""
