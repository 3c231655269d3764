"""The book for agents: a server of the Model Context Protocol, on standard input and output or over HTTP."""
