"""The guard: what it lets pass, and a real listener on this host that no trick may reach."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest

from duly import Duly, GiveUp, InputError, testing
from duly.apps.deliver import http_on
from duly.core.errors import ConfigError
from duly.outbound import http
from duly.outbound.guard import Guard, Refused
from duly.outbound.http import BadStatus, OutboundError, post_json, request
from tests.outbound.provider import Provider, answer
from tests.outbound.resolver import pretend

HERE = ("127.0.0.0/8", "::1")
PUBLIC = "93.184.216.34"
WIDE = "\uff11\uff12\uff17.\uff10.\uff10.\uff11"  # full-width digits

Names = Callable[..., list[str]]

SPELLINGS = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "2130706433",
    "017700000001",
    "0177.0.0.1",
    "0x7f.1",
    "0x7F000001",
    "127.0.0.01",
    "127.0.0.1.",
    "127.0.0.2",
    "0",
    "0.0.0.0",
    WIDE,
    "①②⑦.0.0.1",
    "127。0。0。1",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "ⓛocalhost",
    "127.0.0.%31",
    "%6c%6f%63alhost",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::1%251]",
    "[::1%1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::]",
]


class Listener:
    """Everything on this host, on one port: notes who gets through."""

    def __init__(self) -> None:
        if socket.has_dualstack_ipv6():
            self._socket = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        else:
            self._socket = socket.create_server(("", 0))
        self.port = self._socket.getsockname()[1]

    def was_reached(self) -> bool:
        """Whether anybody has connected; a connection is in the queue before `connect` returns to who made it."""
        self._socket.setblocking(False)
        try:
            self._socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    one = Listener()
    yield one
    one.close()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Give a name its answers, one per lookup."""
    return partial(pretend, monkeypatch)


# -- addresses


@pytest.mark.parametrize(
    ("kind", "addresses"),
    [
        ("loopback", "127.0.0.1 127.255.255.255 ::1"),
        ("private", "10.0.0.7 172.16.0.1 172.31.255.255 192.168.1.1 fc00::1 fd12:3456::1 fd00:ec2::254"),
        ("link-local", "169.254.169.254 169.254.0.1 fe80::1 febf::1"),
        ("site-local", "fec0::1"),
        ("shared", "100.64.0.1 100.127.255.255 100.100.100.200"),
        ("unspecified", "0.0.0.0 0.1.2.3 ::"),
        ("multicast", "224.0.0.1 239.255.255.250 ff02::1 ff0e::1"),
        ("broadcast", "255.255.255.255"),
        ("reserved", "240.0.0.1 192.0.0.192 192.88.99.1 100::1 4000::1 5f00::1 ::127.0.0.1 ::8.8.8.8 2001:20::1"),
        ("documentation", "192.0.2.1 198.51.100.1 203.0.113.1 2001:db8::1 3fff::1"),
        ("benchmark", "198.18.0.1 198.19.255.255 2001:2::1"),
        ("local NAT64", "64:ff9b:1::1 64:ff9b:1::8.8.8.8"),
        ("cloud platform's own", "168.63.129.16"),
    ],
)
def test_an_address_that_is_not_public_is_refused_by_its_kind(kind: str, addresses: str) -> None:
    for text in addresses.split():
        assert kind in (Guard().kind(ip_address(text)) or ""), text


@pytest.mark.parametrize(
    ("kind", "addresses"),
    [
        ("loopback", "::ffff:127.0.0.1 64:ff9b::127.0.0.1 2002:7f00:1::1"),
        ("private", "::ffff:10.0.0.7 64:ff9b::a00:7 2002:a00:7:: 2002:c0a8:101::5"),
        ("link-local", "::ffff:169.254.169.254 64:ff9b::169.254.169.254 2002:a9fe:a9fe::"),
        # Teredo hides its client in inverted bits, and names its server in the open.
        ("private", "2001:0:808:808:8000:63bf:f5ff:fff8 2001:0:a00:7:8000:63bf:f7f7:f7f7"),
    ],
)
def test_an_ipv4_address_in_ipv6_clothes_is_judged_as_itself(kind: str, addresses: str) -> None:
    for text in addresses.split():
        assert kind in (Guard().kind(ip_address(text)) or ""), text


@pytest.mark.parametrize(
    "addresses",
    [
        "8.8.8.8 2606:4700::1111 2001:4860:4860::8888",
        # just outside of what is refused
        "9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 128.0.0.1 169.253.255.255 172.15.255.255 172.32.0.0",
        "192.0.1.0 192.167.255.255 198.17.255.255 198.20.0.0 223.255.255.255 2001:200::1",
        # wrapped
        "::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808:: 2001:0:808:808:8000:63bf:f7f7:f7f7",
    ],
)
def test_public_addresses_pass(addresses: str) -> None:
    for text in addresses.split():
        assert Guard().kind(ip_address(text)) is None, text


# -- the allow-list


def test_what_is_allowed_passes_and_its_neighbours_do_not() -> None:
    guard = Guard(["10.0.0.0/8", " 127.0.0.1 ", "fd00::/8", ""])
    for text in ("10.1.2.3", "127.0.0.1", "fd00::1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1"):
        assert guard.kind(ip_address(text)) is None, text
    for text in ("127.0.0.2", "192.168.0.1", "fc00::1", "::1", "::ffff:127.0.0.2"):
        assert guard.kind(ip_address(text)) is not None, text


@pytest.mark.parametrize("spelling", ["internal.example", "INTERNAL.Example", "internal.example."])
def test_a_name_that_is_allowed_may_resolve_to_anything(spelling: str) -> None:
    Guard(["Internal.example"]).check(spelling, ["10.0.0.7", "127.0.0.1"])


@pytest.mark.parametrize("host", ["example", "x.internal.example", "internal.example.com", "10.0.0.7"])
def test_a_name_that_only_looks_like_an_allowed_one_is_refused(host: str) -> None:
    with pytest.raises(Refused):
        Guard(["internal.example"]).check(host, ["10.0.0.7"])


@pytest.mark.parametrize(
    "entry",
    ["10.0.0.1/8", "10.0.0.0/33", "127.1", "2130706433", "0x7f.1", "*.example", "http://a.example", "a.example:80",
     "a..b", "[::1]", "a b", "-" * 64, f"{'a.' * 126}aa"],
)  # fmt: skip
def test_a_bad_entry_names_the_setting(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"^outbound_allow: "):
        Guard(["10.0.0.0/8", entry])


def test_a_bad_setting_stops_the_app_before_anything_is_put(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^outbound_allow: '10\.0\.0\.1/8' is neither"):
        http_on(Duly(f"sqlite:///{tmp_path}/a.db", outbound_allow="localhost, 10.0.0.1/8"))


# -- on the wire


@pytest.mark.parametrize("host", SPELLINGS)
def test_no_spelling_of_this_host_reaches_it(listener: Listener, host: str) -> None:
    url = f"http://{host}:{listener.port}/"
    with pytest.raises((Refused, OutboundError, InputError)) as ended:
        post_json(url, {}, timeout=5, guard=Guard())
    assert not listener.was_reached()
    if resolves(host):  # then it was the guard that stopped it, and not the lack of such a host
        assert isinstance(ended.value, Refused)


def resolves(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host.strip("[]"), 80))
    except OSError:
        return False


def test_the_corpus_is_worth_its_name() -> None:
    """Without the guard these arrive: the test above is not about typing errors."""
    with Provider() as provider:
        port = provider.url.rpartition(":")[2]
        for host in ("127.1", "2130706433", "0177.0.0.1", "0x7f.1", WIDE, "①②⑦.0.0.1", "0", "[::ffff:127.0.0.1]"):
            assert post_json(f"http://{host}:{port}/", {}).status == 201


def test_a_refusal_names_the_host_and_the_kind_and_the_remedy(names: Names) -> None:
    names("evil.example", "10.0.0.7")
    with pytest.raises(Refused) as refused:
        post_json("http://evil.example/", {}, guard=Guard())
    assert isinstance(refused.value, GiveUp)
    assert refused.value.reason == (
        "evil.example resolves to 10.0.0.7, a private address; allow it with DULY_OUTBOUND_ALLOW"
    )
    with pytest.raises(Refused, match=r"^10\.0\.0\.7 is a private address; allow"):
        post_json("http://10.0.0.7/", {}, guard=Guard())


@pytest.mark.parametrize("order", [[PUBLIC, "127.0.0.1"], ["127.0.0.1", PUBLIC]])
def test_a_name_that_leads_outward_and_inward_is_refused_as_a_whole(
    listener: Listener, names: Names, order: list[str]
) -> None:
    names("both.example", order)
    with pytest.raises(Refused, match="loopback"):
        post_json(f"http://both.example:{listener.port}/", {}, guard=Guard())
    assert not listener.was_reached()


def test_a_name_is_resolved_once_and_the_address_that_was_checked_is_called(listener: Listener, names: Names) -> None:
    with Provider() as provider:
        port = provider.url.rpartition(":")[2]
        lookups = names("changing.example", "127.0.0.1", "127.0.0.2")
        guard = Guard(["127.0.0.1"])
        assert post_json(f"http://changing.example:{port}/", {}, guard=guard).status == 201
        assert lookups == ["changing.example"]
        assert provider.requests[0].headers["host"] == f"changing.example:{port}"
        with pytest.raises(Refused, match=r"127\.0\.0\.2"):
            post_json(f"http://changing.example:{listener.port}/", {}, guard=guard)
    assert not listener.was_reached()


def test_a_name_that_turns_inward_between_put_and_dispatch_is_not_called(
    listener: Listener, names: Names, tmp_path: Path
) -> None:
    app = Duly(f"sqlite:///{tmp_path}/unused.db")
    task = http_on(app)
    lookups = names("rebound.example", PUBLIC, "127.0.0.1")
    assert socket.getaddrinfo("rebound.example", 80)[0][4][0] == PUBLIC  # what anyone who looks at put time sees
    with testing.virtual(app) as world:
        placed = task.put(url=f"http://rebound.example:{listener.port}/")
        assert lookups == ["rebound.example"]  # a put asks no resolver
        assert world.run() == 1
        item = world.item(placed)
        assert (item.state, item.attempt) == ("failed", 1)
        assert "rebound.example resolves to 127.0.0.1, a loopback address" in (item.last_error or "")
        (tried,) = app.read.story(placed.id).tries
        assert tried.outcome == "gave_up"
    assert not listener.was_reached()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_inward_is_never_followed(listener: Listener, status: int) -> None:
    inward = f"http://127.0.0.2:{listener.port}/latest/meta-data/"
    with Provider(answer(status, Location=inward), answer(status, Location=inward)) as provider:
        guard = Guard(HERE)
        with pytest.raises(BadStatus):
            post_json(provider.url, {}, guard=guard)
        with pytest.raises(GiveUp, match=f"answered {status}"):
            request("GET", provider.url, None, guard=guard, retry_statuses=(500,))
    assert not listener.was_reached()


def test_tls_still_asks_for_the_name_of_the_url(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = str(Path(__file__).parent / "localhost.pem")
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    with trusting(), Provider(certificate=certificate) as provider:
        port = provider.url.rpartition(":")[2]
        names("other.example", "127.0.0.1")
        assert post_json(f"https://localhost:{port}/", {}, guard=Guard(HERE)).status == 201
        with pytest.raises(http.Unreachable, match="certificate is not trusted"):
            post_json(f"https://other.example:{port}/", {}, guard=Guard(HERE))
    assert len(provider.requests) == 1


@contextmanager
def trusting() -> Iterator[None]:
    """With the trust store that the environment names."""
    http._tls.cache_clear()
    try:
        yield
    finally:
        http._tls.cache_clear()


# -- before there is a resolver to ask


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "2130706433", "0x7f.1", WIDE, "::1", "::ffff:10.0.0.7", "169.254.169.254"]
)
def test_an_address_is_refused_without_a_resolver_in_any_spelling(host: str) -> None:
    assert "allow it with DULY_OUTBOUND_ALLOW" in (Guard().objection(host) or "")
    assert Guard(["0.0.0.0/0", "::/0"]).objection(host) is None


@pytest.mark.parametrize(
    "host", ["300.1.1.1", "1.2.3.4.5", "0xzz.0x7f", "127.0.0.%31", "a..b", "a" * 64, "a!b", "x" * 300, "fe80::1%nope"]
)
def test_what_no_host_can_be_called_is_refused_without_a_resolver(host: str) -> None:
    assert "is not the name of a host" in (Guard().objection(host) or "")


@pytest.mark.parametrize(
    "host", ["example.com", "localhost", "my_host-1.internal", "münchen.example", "a.example.", PUBLIC]
)
def test_a_name_is_left_to_the_resolver_of_whoever_calls_it(host: str) -> None:
    assert Guard().objection(host) is None
