"""Every exception that duly raises on purpose. `duly.errors` draws their tree, and is where users import them from."""


class DulyError(Exception):
    """The root: catch this to catch all of duly's own errors."""


class ConfigError(DulyError):
    pass


class BrokenApp(ConfigError):
    """The module of an app could not be imported. The text ends with a traceback through the lines of its author."""


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


class DoesNotExist(DulyError, LookupError):
    pass


class WrongState(DulyError):
    pass


class NotAllowed(DulyError):
    pass


class ItemFailed(DulyError):
    """An item that was waited for has ended otherwise than well: `state` is failed, cancelled or gone."""

    def __init__(self, item_id: int, state: str, reason: str) -> None:
        how = {"failed": "failed", "gone": "is gone"}.get(state, f"was {state}")
        super().__init__(f"item {item_id} {how}: {reason}")
        self.item_id = item_id
        self.state = state
        self.reason = reason


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


class ConstraintViolated(StoreError):
    """The database rejected a row. `constraint` names the rule; the text has no data of the row."""

    def __init__(self, constraint: str) -> None:
        super().__init__(f"the database rejected this: it violates {constraint}")
        self.constraint = constraint


# Users, tracebacks and the rows of failed items name an error by the module that users import it from.
for _error in [each for each in globals().values() if isinstance(each, type) and issubclass(each, DulyError)]:
    _error.__module__ = "duly.errors"
