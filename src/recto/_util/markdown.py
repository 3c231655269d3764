"""What all modules that read Markdown agree on: the marks of a code fence, and where a sentence ends."""

FENCE_MARKS = r"`{3,}|~{3,}"
SENTENCE_END = r"(?<=[.!?…])[\"'”’)\]]*\s+|[。！？｡؟۔।॥።။។][\"'”’」』）)\]]*\s*"
"""In scripts without spaces, a sentence may end without white space after it."""
