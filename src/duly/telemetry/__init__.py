"""What a process reports about itself: metrics, logs and spans."""
