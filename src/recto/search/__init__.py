"""Search: text analysis, score fusion, snippets and answerability."""
