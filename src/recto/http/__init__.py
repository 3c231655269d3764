"""The service: retrieval over HTTP, by the contract of `/retrieve` and `/validate` and, beyond it, under `/v1`."""
