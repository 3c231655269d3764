"""Where noise ends: what the best passage scores for questions that have nothing to do with the book."""
