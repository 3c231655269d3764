"""Write the list of common English words: those that are one token of the built-in model's tokenizer.

Run it after a change of the model: ``python -m scripts.make_common_words``. A test compares the file
with the output of this script.
"""

from __future__ import annotations

import json
from array import array

from recto.embedders.granite.bpe import MergeRules
from recto.embedders.granite.weights import MERGES, PROMPT_TOKENS
from recto.search.analyzer import term_id
from recto.search.lexical import COMMON_WORDS

_WORD_START = "Ġ"  # the space before a word in byte-pair encodings


def build() -> bytes:
    """Return the sorted term ids of the words, four bytes each."""
    vocabulary = json.loads(MergeRules(MERGES).description())["model"]["vocab"]
    words = (
        token.removeprefix(_WORD_START)
        for token, number in vocabulary.items()
        if token.startswith(_WORD_START) and number < PROMPT_TOKENS.start  # later ones are of other languages
    )
    return array(
        "I", sorted({term_id(word) for word in words if word.isascii() and word.isalpha() and word.islower()})
    ).tobytes()


if __name__ == "__main__":
    COMMON_WORDS.write_bytes(build())
    print(f"{COMMON_WORDS.name}: {COMMON_WORDS.stat().st_size} bytes")
