"""What a user's code declares and is given: a task, and the attempt that its handler may ask for."""
