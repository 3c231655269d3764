"""The workloads that all systems run, one module each."""
