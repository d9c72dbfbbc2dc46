"""Parcels that are sent and may get lost: a plug-in with a table, a view, an alert, a simulation, a screen, a route, a
command and a source of files. It imports from `duly` and `duly.plugin` only.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from duly import Attempt, Duly
from duly.plugin import NewAlert, Parameter, Plugin, Screen, Section, Simulated, query, setting

if TYPE_CHECKING:
    import click

    from duly.plugin import Address, FileSource, Found, JobSettings, Router, Simulation

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class ParcelsSettings(Section):
    PREFIX: ClassVar[str] = "parcels_"

    depot: str = setting("", "The folder of the files that depot:// addresses name.")
    most_lost: int = setting(0, "An alert is raised when more parcels than this are lost.", least=0)


class Parcels:
    def __init__(self, app: Duly, settings: ParcelsSettings, task: Any) -> None:
        self.app = app
        self.settings = settings
        self.task = task

    def lost(self) -> list[str]:
        return [code for (code,) in query(self.app, "select code from parcels_lost order by code")]

    def find(self, code: str) -> None:
        query(self.app, "update parcels_parcel set is_lost = :no where code = :code", {"no": False, "code": code})

    def send(self, code: str, connection: Any) -> int:
        return int(self.task.options(connection=connection).put(code=code).id)


def install(app: Duly, settings: ParcelsSettings) -> Parcels:
    @app.task(name="parcels.send", queue="parcels")
    def send(attempt: Attempt, code: str, lost: str = "") -> str:
        """Send a parcel. Its row is written in the transaction that settles the item."""
        row = {"code": code, "lost": bool(lost)}
        query(app, "insert into parcels_parcel (code, is_lost) values (:code, :lost)", row, attempt.connection)
        return code

    app.job_type("parcels", send)
    return Parcels(app, settings, send)


def alerts(parcels: Parcels) -> Iterator[NewAlert]:
    lost = parcels.lost()
    if len(lost) > parcels.settings.most_lost:
        yield NewAlert("lost", f"{len(lost)} parcels are lost", {"codes": lost})


def simulate(parcels: Parcels, world: "Simulation", parcels_sent: int, lost: int) -> None:
    world.answer = world.call  # the real handler: it calls nothing outside
    parcels.task.put_many({"code": f"P{n}", "lost": "yes" if n < lost else ""} for n in range(parcels_sent))


class Depot:
    """Files of a folder, as a source."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def scan(self, folder: str) -> "list[Found]":
        return [self.find(f"{folder.rstrip('/')}/{path.name}") for path in sorted(self._place(folder).glob("*.csv"))]

    def find(self, path: str) -> "Found":
        from duly.plugin import Found, NotThere

        place = self._place(path)
        if not place.is_file():
            raise NotThere(f"the depot has no file {path}")
        return Found(place.name, path, place.stat().st_size, str(place.stat().st_mtime_ns))

    def portions(self, found: "Found") -> Iterator[bytes]:
        yield self._place(found.path).read_bytes()

    def _place(self, path: str) -> Path:
        return self._folder / path.lstrip("/")


def sources(settings: ParcelsSettings) -> "Iterable[FileSource]":
    from duly.plugin import FileSource

    def open_depot(address: "Address", _: "JobSettings", __: float | None) -> Depot:
        return Depot(Path(settings.depot) / address.host)

    return [FileSource(scheme="depot", open=open_depot)]


def router() -> "Router":
    from typing import Annotated

    from fastapi import Depends

    from duly.plugin import Model, Reader, Router, Transaction, Word, Writer, serving

    class NewParcel(Model):
        code: Word

    routes = Router(prefix="/api/parcels", tags=["parcels"])

    @routes.get("/lost")
    def lost_parcels(parcels: Annotated[Parcels, Depends(serving(plugin))], principal: Reader) -> dict[str, list[str]]:
        """The parcels that are lost."""
        return {"codes": parcels.lost()}

    @routes.post("", status_code=201)
    def send_parcel(
        new: NewParcel,
        parcels: Annotated[Parcels, Depends(serving(plugin))],
        principal: Writer,
        connection: Transaction,
    ) -> dict[str, int]:
        """Send a parcel."""
        return {"id": parcels.send(new.code, connection)}

    return routes


def commands() -> "Sequence[click.Command]":
    import click

    from duly.plugin import options

    @click.command("parcel-found", short_help="Say that a lost parcel was found.")
    @click.argument("code")
    @options.database_url
    def found(code: str) -> None:
        with options.opened() as app:
            plugin.on(app).find(code)
            click.echo(f"{code} is found")

    return (found,)


plugin = Plugin(
    name="parcels",
    doc="Parcels that are sent and may get lost.",
    settings=ParcelsSettings,
    install=install,
    router=router,
    commands=commands,
    alerts=alerts,
    sources=sources,
    migrations=HERE / "migrations",
    simulation=Simulated(
        parameters=(
            Parameter(name="parcels_sent", label="Parcels", default=10),
            Parameter(name="lost", label="Lost", default=0, shown=0),
        ),
        fill=simulate,
    ),
    screens=(Screen(path="parcels", title="Parcels", script="parcels.js"),),
    static=HERE / "static",
)
