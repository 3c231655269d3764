"""The entry points that four documents define, and their default collections."""

QUERY_COLLECTION = "physical-ai-book"
"""The default of document 000, `retrieve.py`."""
HTTP_COLLECTION = "humanoid_robotics_book"
"""The default of document 002, `POST /retrieve`."""
TEST_COLLECTION = "website_embeddings"
"""The default of document 003, `test_retrieval.py`."""
CLASS_COLLECTION = "rag_embedding"
"""The default of document 004, `TextbookRetriever`."""
DEFAULT_COLLECTIONS = (QUERY_COLLECTION, HTTP_COLLECTION, TEST_COLLECTION, CLASS_COLLECTION)
"""On the first run, the sample book answers to all of them."""
