"""The retrieval test contract: functions, a command whose output is always JSON, suites, and what they must hold."""
