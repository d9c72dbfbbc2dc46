"""Metrics, logs and spans of a process."""
