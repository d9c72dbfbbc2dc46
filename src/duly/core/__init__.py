"""Values and decisions that every other room builds on; this room knows none of them."""
