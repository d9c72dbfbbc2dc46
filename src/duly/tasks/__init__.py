"""What a user's code declares, which is a task, and what its handler may ask for, which is the attempt."""
