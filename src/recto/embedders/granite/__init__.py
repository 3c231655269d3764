"""The built-in model, recto-1, and the code that starts it fast (private).

Every `recto search` is a new process that embeds one query. With the usual libraries (numpy, onnxruntime's
Python interface, `tokenizers`) the first vector takes 0.46 s, most of it for imports and tables that one
query does not need. With this package it takes 0.14 s. For that, it replaces three parts:

- `runtime`: calls onnxruntime's C API through ctypes. The Python interface imports numpy.
- `bpe`: tokenizes queries from a table that is searched in place. Loading the tokenizer's 65 000 merge
  rules takes a fifth of a second.
- `weights`: converts the weights once, and keeps them in a file under RECTO_HOME that later processes map
  into memory.

Each part has a fallback to the usual library: another build of onnxruntime, text with unknown characters, a
home directory that cannot be written. The tests compare both ways. `embedder` puts the parts together.
`training/export.py`, `scripts/make_graph.py` and `scripts/calibrate_int8.py` write the data files.

See docs/explanation/decisions: 0002 (own graph), 0008 (int8) and 0010 (the first answer).
"""
