"""The page as a reader uses it: a real browser, a real service, a real book."""
