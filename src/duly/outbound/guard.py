"""Rejects calls to private addresses: a URL from an untrusted source must not make a worker call its own network.

What is checked is the address that is about to be connected to, after resolution, so every spelling of a host (`127.1`,
`0x7f000001`, full-width digits, a name that resolves to a private address) ends at the same check. If one address of a
host is refused, the host is: a name with public and private addresses is a trick. The caller connects to an address
that was checked and does not resolve again, so that a name cannot resolve to something else in between.

The tables are our own: what Python's ipaddress calls private or global differs between its versions.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from duly.core.errors import ConfigError
from duly.core.model import GiveUp

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Refused(GiveUp):
    """The call was not made, because it would have gone to a private address. Trying again cannot help."""


# Rejected networks. The first one that contains the address gives its kind.
KINDS: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(network), kind)
    for kind, networks in (
        ("an unspecified address", "0.0.0.0/8 ::/128"),
        ("a loopback address", "127.0.0.0/8 ::1/128"),
        ("a private address", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7"),
        ("a link-local address", "169.254.0.0/16 fe80::/10"),
        ("a site-local address", "fec0::/10"),
        ("a shared (CGNAT) address", "100.64.0.0/10"),
        # A public address, but on every Azure machine it is an agent of the platform.
        ("a cloud platform's own address", "168.63.129.16/32"),
        ("a documentation address", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
        ("a benchmark address", "198.18.0.0/15 2001:2::/48"),
        ("a multicast address", "224.0.0.0/4 ff00::/8"),
        ("a broadcast address", "255.255.255.255/32"),
        # Local translation to IPv4. Where in the address the IPv4 address stands differs between networks.
        ("a local NAT64 address", "64:ff9b:1::/48"),
        ("a reserved address", "192.0.0.0/24 192.88.99.0/24 240.0.0.0/4 2001::/23"),
    )
    for network in networks.split()
)
# Except for the wrapped addresses below, only this part of IPv6 is in public use.
PUBLIC = IPv6Network("2000::/3")

# IPv6 addresses that lead to IPv4: mapped, NAT64, 6to4, Teredo (server and client). The IPv4 address is checked.
WRAPPED: tuple[tuple[IPv6Network, Callable[[int], tuple[int, ...]]], ...] = (
    (IPv6Network("::ffff:0:0/96"), lambda number: (number,)),
    (IPv6Network("64:ff9b::/96"), lambda number: (number,)),
    (IPv6Network("2002::/16"), lambda number: (number >> 80,)),
    (IPv6Network("2001::/32"), lambda number: (number >> 64, ~number)),
)

# A name that a host can have. If the last part is a number, it is not a name.
_NAME = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9_-]{1,63}\.)*(?![0-9]+\Z|0x[0-9a-f]*\Z)[a-z0-9_-]{1,63}")


class Guard:
    """Refuses addresses that are not public, except those that `allowed` names: networks, addresses or host names."""

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        self._networks: list[Network] = []
        self._names: set[str] = set()
        for entry in filter(None, map(str.strip, allowed)):
            try:
                self._networks.append(ip_network(entry))
            except ValueError:
                self._names.add(_checked_entry(entry))

    def kind(self, address: Address) -> str | None:
        """What kind of refused address this is; None when it may be called."""
        if any(address in network for network in self._networks):
            return None
        for network, lead in WRAPPED:
            if address in network:
                inner = [IPv4Address(number & 0xFFFF_FFFF) for number in lead(int(address))]
                return next((f"{kind} ({each})" for each in inner if (kind := self.kind(each))), None)
        kind = next((kind for network, kind in KINDS if address in network), None)
        if kind is None and address.version == 6 and address not in PUBLIC:
            return "a reserved address"
        return kind

    def check(self, host: str, addresses: Iterable[str]) -> None:
        """Raise Refused unless every address that the host resolved to may be called."""
        if _plain(host) in self._names:
            return
        for text in addresses:
            address = ip_address(text.partition("%")[0])
            if kind := self.kind(address):
                subject = f"{host:.100} is" if host == str(address) else f"{host:.100} resolves to {address},"
                raise Refused(f"{subject} {kind}; allow it with DULY_OUTBOUND_ALLOW")

    def objection(self, host: str) -> str | None:
        """What is wrong with a host, as far as that is known without a resolver, which may be unavailable."""
        try:
            # The system reads an address in any spelling; for a name this fails.
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            return None if _NAME.fullmatch(_plain(host)) else f"{host!r:.100} is not the name of a host"
        try:
            self.check(host, (str(address[0]) for *_, address in found))
        except Refused as refused:
            return refused.reason
        return None


def _plain(host: str) -> str:
    """The name of a host in the spelling that the resolver gets, so that names can be compared."""
    try:
        host = host.encode("idna").decode()
    except UnicodeError:  # it is not a name, and the resolver will reject it
        return ""
    return host.lower().removesuffix(".")


def _checked_entry(entry: str) -> str:
    name = _plain(entry)
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"outbound_allow: {entry!r:.100} is neither a network (10.0.0.0/8), an address nor the name of a host"
        )
    return name
