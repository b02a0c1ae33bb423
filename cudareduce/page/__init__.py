"""Results as one page that opens anywhere: tables, charts, lessons, without a network."""
