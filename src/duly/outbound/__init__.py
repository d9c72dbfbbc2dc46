"""HTTP calls to the outside: all that this process makes are made here."""
