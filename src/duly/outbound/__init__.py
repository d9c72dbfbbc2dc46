"""Calls to the outside: what leaves this process over HTTP leaves through here."""
