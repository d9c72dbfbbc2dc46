"""The environment of `alembic upgrade head`; the revisions are in `duly.store.alembic`."""
