"""The objects that user code works with: tasks, and the attempt that a handler receives."""
