"""What alembic runs. It loads this file by its path, so there is nothing here but the way to the code."""

from duly.cli.alembic.run import run  # pragma: no cover - under a name that the measuring does not know

run()  # pragma: no cover
