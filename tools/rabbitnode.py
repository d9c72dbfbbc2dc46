"""A private RabbitMQ node: its own folder, ports and queues.

    with Node() as node:
        connect(node.url())

The node runs as the current user or, when root starts it, as `rabbitmq`. It listens on the loopback only, and so does
its own epmd, which knows no other node. The folder holds everything: data, logs, cookie. `Node(folder)` controls a
running node from any process, `stop` clears it.

Control goes through `erl_call`, which has the node evaluate an expression within milliseconds. `rabbitmqctl` does the
same for a second of processor time, because it starts an Erlang of its own.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import quote

import private
from debian import MissingError, install
from private import Place, ServerError, free_ports, sigterm_leaves, temporary

MARK = "duly-node"  # only a folder with this file in it is ever removed
SCRIPTS = Path("/usr/lib/rabbitmq/bin")  # those on PATH insist on being root or rabbitmq
UNWANTED = ("rabbitmq-server.service", "epmd.service", "epmd.socket")
NAME = "duly@localhost"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
WATERMARK = 0.4  # the part of the machine's memory above which publishers are blocked
LONGEST_START = 120  # seconds, on a busy machine

# Erlang terms instead of rabbitmq.conf, whose schema costs half a second to read.
CONFIG = """[{{rabbit, [
    {{tcp_listeners, [{{"127.0.0.1", {amqp}}}]}},
    {{disk_free_limit, 10000000}},
    {{vm_memory_high_watermark, {watermark}}}
]}}].
"""


class Depth(NamedTuple):
    """How much is in a queue."""

    messages: int
    ready: int
    unacked: int


class Ports(NamedTuple):
    amqp: int
    erlang: int
    epmd: int


def ensure_programs() -> None:
    """Make sure of RabbitMQ's programs and Erlang's, installing Debian's where they are missing."""
    if not _are_there():
        install("rabbitmq-server", unwanted=UNWANTED)
    if not _are_there():
        raise MissingError(f"RabbitMQ is installed, but not all of {SCRIPTS}/rabbitmqctl, epmd and erl_call are there")


class Node:
    """One node in one folder; without a folder, in a fresh temporary one."""

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = Path(folder or temporary(on_disk=False)).absolute()
        self._place = Place(self.folder, mark=MARK, users=("rabbitmq", "nobody"))
        self._children: list[subprocess.Popen[bytes]] = []
        self._leaving = ExitStack()

    def start(self) -> Node:
        """Start the node and wait until it takes connections. One that was killed gets its ports and data back."""
        self.launch()
        try:
            self.await_startup()
        except BaseException:
            self.stop()
            raise
        return self

    def launch(self) -> None:
        """The first half of `start`: does not wait."""
        ensure_programs()
        if not self._place.is_claimed():
            self._place.claim()
            self._furnish()
        if self._processes():
            raise ServerError(f"the node in {self.folder} is running already")
        epmd = ["epmd", "-port", str(self._ports.epmd), "-address", "127.0.0.1"]
        self._children = [self._spawn(epmd), self._spawn([SCRIPTS / "rabbitmq-server"])]

    def await_startup(self) -> None:
        """The second half of `start`: return when the broker is up."""
        give_up = time.monotonic() + LONGEST_START
        while not self._has_booted():
            if any(child.poll() is not None for child in self._children) or time.monotonic() > give_up:
                raise ServerError(f"RabbitMQ did not start in {self._place.path}:\n{self._said()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the node at once and remove the folder. Harmless when it is gone already."""
        self._place.check()
        self.kill()
        self._place.remove()

    def kill(self) -> None:
        """End the node and everything below it at once, as a crash of the machine would. `start` brings it back."""
        while running := self._processes():
            for process in running:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            for process in running:
                _await_end(process)
        for child in self._children:
            child.wait()
        self._children = []

    def restart(self) -> None:
        """Shut the node down in good order and start it again: same ports, same data."""
        server = int((self._place.path / "pid").read_text())
        self.call("init:stop()")
        _await_end(server)
        self.kill()  # what is left of it: epmd
        self.start()

    def stop_app(self) -> None:
        """Stop the broker but not its Erlang: connections and port go, and `start_app` is quicker than `start`."""
        self.call("rabbit:stop()", seconds=LONGEST_START)

    def start_app(self) -> None:
        self.call("rabbit:start()", seconds=LONGEST_START)
        self.await_startup()

    def url(self, vhost: str = "/") -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/{'' if vhost == '/' else quote(vhost, safe='')}"

    @property
    def port(self) -> int:
        return self._ports.amqp

    def add_vhost(self, name: str) -> str:
        """Make a virtual host in which guest may do everything; its URL."""
        every = '<<".*">>'
        self.call(
            f"V = {_binary(name)}, ok = rabbit_vhost:add(V, <<>>), "
            f'rabbit_auth_backend_internal:set_permissions(<<"guest">>, V, {every}, {every}, {every}, <<>>)'
        )
        return self.url(name)

    def delete_vhost(self, name: str) -> None:
        """Remove a virtual host with its queues; its connections are closed."""
        self.call(f"rabbit_vhost:delete({_binary(name)}, <<>>)")

    def queue(self, name: str, vhost: str = "/") -> Depth:
        """What is in a queue now. LookupError: there is no such queue."""
        kinds = "[messages, messages_ready, messages_unacknowledged]"
        said = self.call(
            f"case rabbit_amqqueue:lookup(rabbit_misc:r({_binary(vhost)}, queue, {_binary(name)})) of "
            f"{{ok, Q}} -> list_to_tuple([N || {{_, N}} <- rabbit_amqqueue:info(Q, {kinds})]); "
            "{error, not_found} -> none end"
        )
        if said == "none":
            raise LookupError(f"there is no queue {name!r} in the virtual host {vhost!r}")
        return Depth(*map(int, re.findall(r"\d+", said)))

    def close_connections(self, vhost: str | None = None) -> int:
        """Close every client's connection, or those to one virtual host; how many there were."""
        its = "(catch rabbit_networking:connection_info(P, [vhost]))"  # it may just be closing
        chosen = "true" if vhost is None else f"[{{vhost, {_binary(vhost)}}}] =:= {its}"
        return int(
            self.call(
                f"Ps = [P || P <- rabbit_networking:connections(), {chosen}], "
                '[rabbit_networking:close_connection(P, "closed by a test") || P <- Ps], length(Ps)'
            )
        )

    def alarm(self, on: bool) -> None:
        """Raise or clear the memory alarm, which blocks all publishers in every virtual host."""
        self.call(f"vm_memory_monitor:set_vm_memory_high_watermark({0 if on else WATERMARK})")

    def call(self, expression: str, seconds: int = 30) -> str:
        """What an Erlang expression gives on the node, as text."""
        caller = secrets.token_hex(6)  # the node refuses two callers of the same name at once
        address = f"127.0.0.1:{self._ports.erlang}"
        asked = self._run(
            ["erl_call", "-h", caller, "-address", address, "-timeout", str(seconds), "-e"], f"{expression}.\n"
        )
        said = asked.stdout.strip()
        if not said.startswith("{ok, "):
            raise ServerError(f"{expression}\ngave {said or asked.stderr.strip()}")
        return said.removeprefix("{ok, ").removesuffix("}")

    def rabbitmqctl(self, *arguments: str) -> str:
        """What RabbitMQ's own tool prints. Costs a second; `call` is quicker."""
        done = self._run([SCRIPTS / "rabbitmqctl", *arguments], "")
        if done.returncode != 0:
            raise ServerError(f"rabbitmqctl {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout

    def __enter__(self) -> Node:
        with ExitStack() as leaving:
            leaving.enter_context(sigterm_leaves())
            self.start()
            leaving.callback(self.stop)
            self._leaving = leaving.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leaving.close()

    @property
    def _ports(self) -> Ports:
        try:
            return Ports(*json.loads((self._place.path / "ports").read_text()))
        except FileNotFoundError:
            raise ServerError(f"there is no node in {self.folder}") from None

    def _furnish(self) -> None:
        ports, place = Ports(*free_ports(3)), self._place.path
        self._place.own(place / "ports", json.dumps(ports))
        self._place.own(place / "advanced.config", CONFIG.format(amqp=ports.amqp, watermark=WATERMARK))
        self._place.own(place / "enabled_plugins", "[].\n")
        self._place.own(place / ".erlang.cookie", secrets.token_hex(16), mode=0o400)

    def _environment(self) -> dict[str, str]:
        """All that the node and its tools know of the outside, so that nothing of a system-wide node gets in."""
        place, ports = self._place.path, self._ports
        loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
        return {
            "PATH": PATH,
            "HOME": str(place),
            "LANG": "C.UTF-8",
            "DULY_NODE": str(place),
            "ERL_CRASH_DUMP_SECONDS": "0",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(ports.epmd),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(place / "advanced.config"),
            "RABBITMQ_CONFIG_FILE": str(place / "none"),
            "RABBITMQ_CONFIG_FILES": str(place / "none"),
            "RABBITMQ_CONF_ENV_FILE": str(place / "none"),
            "RABBITMQ_CTL_DIST_PORT_MAX": "0",
            "RABBITMQ_CTL_DIST_PORT_MIN": "0",
            "RABBITMQ_CTL_ERL_ARGS": loopback,
            "RABBITMQ_DIST_PORT": str(ports.erlang),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "enabled_plugins"),
            "RABBITMQ_LOG_BASE": str(place / "log"),
            "RABBITMQ_MNESIA_BASE": str(place / "data"),
            "RABBITMQ_NODENAME": NAME,
            "RABBITMQ_PID_FILE": str(place / "pid"),
            # one scheduler that sleeps when there is nothing to do: tests share few cores
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"+S 1:1 +sbwt none {loopback}",
        }

    def _spawn(self, command: list[Any]) -> subprocess.Popen[bytes]:
        with (self._place.path / "said").open("ab") as said:
            return subprocess.Popen(
                command,
                cwd=self._place.path,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in a terminal is for the tests, which still need the node to end well
                **self._place.identity(),
            )

    def _run(self, command: list[Any], text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self._place.path,
            env=self._environment(),
            input=text,
            capture_output=True,
            text=True,
            **self._place.identity(),
        )

    def _has_booted(self) -> bool:
        # a node takes connections shortly before it ceases to boot, and until then a start_app would be ignored
        booted = "ok = rabbit:await_startup(), {rabbit:is_running(), whereis(rabbit_boot)}"
        try:
            return self.call(booted, seconds=LONGEST_START) == "{true, undefined}"
        except ServerError:  # its Erlang is not there yet
            return False

    def _said(self) -> str:
        logs = [self._place.path / "said", *(self._place.path / "log").glob("*.log")]
        return "\n".join(log.read_text(errors="replace")[-3000:] for log in logs if log.exists())

    def _processes(self) -> list[int]:
        """All processes of this node, started by any process: they have the folder in their environment."""
        mark = f"DULY_NODE={self._place.path}".encode()
        return [int(process.name) for process in Path("/proc").glob("[0-9]*") if mark in _environment_of(process)]


def sweep(parent: Path) -> None:
    """Clear the nodes in `parent` that killed runs left behind."""
    private.sweep(parent, lambda folder: Node(folder).stop())


def _are_there() -> bool:
    return (SCRIPTS / "rabbitmqctl").exists() and all(shutil.which(name, path=PATH) for name in ("epmd", "erl_call"))


def _binary(text: str) -> str:
    """An Erlang binary, written as numbers, so that no text can end it."""
    return f"<<{','.join(map(str, text.encode()))}>>"


def _environment_of(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to another user
        return []


def _await_end(process: int, seconds: float = 60) -> None:
    try:
        end = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        if not select.select([end], [], [], seconds)[0]:
            raise ServerError(f"the process {process} does not end")
    finally:
        os.close(end)
