"""What the outside sees of a process: metrics, logs and spans."""
