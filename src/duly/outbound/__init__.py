"""All outbound HTTP calls of this process."""
