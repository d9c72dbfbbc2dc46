"""The real engine in virtual time: for the tests of users, and for simulations of the next days."""
