"""What alembic runs. It loads this file by its path, so the code is elsewhere and only called here."""

from duly.cli.alembic.run import run  # pragma: no cover - under a name that the measuring does not know

run()  # pragma: no cover
