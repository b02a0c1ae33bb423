"""Pictures of results: what is in one, and how it is drawn."""
