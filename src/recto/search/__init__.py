"""Search: query validation, text analysis, retrieval and score fusion."""
