"""Results as tables: terminal, Markdown, HTML, CI services."""
