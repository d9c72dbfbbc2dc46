"""Values and decisions that every other room builds on; it imports none of them."""
