"""Pure values that decide when and how much: no clock, no database, no thread. `duly.policy` has the public ones."""
