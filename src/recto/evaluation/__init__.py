"""Proof of retrieval: suites of questions, and what a run of one shows."""
