"""What a process tells of itself: metrics, logs and spans."""
