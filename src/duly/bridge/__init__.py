"""RabbitMQ: messages come in from a broker's queues and go back to them, and none is lost in between."""
