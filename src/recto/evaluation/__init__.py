"""Evaluation: suites, measures, runs, baselines, coverage and reports."""
