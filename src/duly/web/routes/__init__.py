"""One file per group of resources; each has a `router`."""
