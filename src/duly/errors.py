"""Every exception that duly raises on purpose.

DulyError
├── ConfigError           a setting is unknown or has a bad value
│   └── BrokenApp         the module of an app cannot be imported; shows the traceback of its own lines
├── InputError            what was given cannot be accepted; names the field (also a ValueError)
│   ├── UnknownTask       no task of that name is registered here
│   └── KeyConflict       the key is live on an item with other content
├── DoesNotExist          there is no such item, job, schedule or user (also a LookupError)
├── WrongState            the item is in a state that does not allow this
├── NotAllowed            the caller lacks permission; the text names who has it
├── ItemFailed            an item that was waited for failed for good, or was cancelled
├── LeaseLost             this attempt may no longer settle the item; its effects were rolled back
└── StoreError            the database reported an error
    ├── StoreUnavailable  it cannot be reached now; trying again may help
    │   └── StoreBusy     this process has all its connections in use, for too long to wait for one
    ├── NotMigrated       its schema is older or newer than this code; says which command helps
    └── ConstraintViolated  it rejected a row; names the constraint, and no data of the row
"""

from duly.core.errors import *  # noqa: F403 - all of its names are names of users
