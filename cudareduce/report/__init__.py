"""Results as people and programs read them: tables, Markdown, and what CI services take."""
