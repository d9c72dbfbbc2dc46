"""Every exception that duly raises on purpose.

DulyError
├── ConfigError           a setting is unknown or has a bad value
├── InputError            what was given cannot be accepted; names the field (also a ValueError)
│   ├── UnknownTask       no task of that name is registered here
│   └── KeyConflict       the key is live on an item with other content
├── ItemNotFound          there is no such item (also a LookupError)
├── WrongState            the item is in a state that does not allow this
├── LeaseLost             the item is no longer this attempt's to settle; its effects were rolled back
└── StoreError            the database said no
    ├── StoreUnavailable  it cannot be reached now; trying again may help
    │   └── StoreBusy     this process has all its connections in use, for too long to wait for one
    └── NotMigrated       its schema is older or newer than this code; says which command helps
"""

from __future__ import annotations


class DulyError(Exception):
    """The root: catch this to catch all of duly's own errors."""


class ConfigError(DulyError):
    pass


class InputError(DulyError, ValueError):
    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class UnknownTask(InputError):
    pass


class KeyConflict(InputError):
    def __init__(self, problem: str, item_id: int) -> None:
        super().__init__("key", problem)
        self.item_id = item_id


class ItemNotFound(DulyError, LookupError):
    pass


class WrongState(DulyError):
    pass


class LeaseLost(DulyError):
    pass


class StoreError(DulyError):
    pass


class StoreUnavailable(StoreError):
    pass


class StoreBusy(StoreUnavailable):
    pass


class NotMigrated(StoreError):
    pass
