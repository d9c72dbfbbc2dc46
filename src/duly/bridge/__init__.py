"""Other people's queues: messages come in from a broker and go back to it, and nothing is lost in between."""
