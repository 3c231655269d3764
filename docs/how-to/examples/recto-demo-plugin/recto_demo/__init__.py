"""An example of a plugin: an embedder, a store, a reader and a source."""
