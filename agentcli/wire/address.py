"""Which addresses ``web_fetch`` may go to (TOOL-12, SEC-11).

Law: a URL has one reading only, the one that the rules have judged: http or https, no user name,
the host in ASCII and in its plainest form. A host is reached only if *every* address that its
name resolves to is public. Nothing here opens a connection.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote, urlsplit

from agentcli.domain.cancel import in_own_thread
from agentcli.domain.secrecy import is_private_server

MAX_URL_CHARS = 4_096
_MAX_HOST_CHARS = 253
_MAX_PORT = 65_535
_PORTS = {"http": 80, "https": 443}
_SPLITS_READERS = re.compile(r"[\\\s\x00-\x20\x7f]")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# what may stand in a path or query as it is; everything else is written %XX
_PLAIN = "!$&'()*+,;=:@/?-._~%[]|"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host as texts, best first; raises ``OSError`` when there are none."""
Judge = Callable[[Address], str]
"""Why an address may not be reached; empty when it may."""

# https://www.iana.org/assignments/iana-ipv4-special-registry
_IPV4 = {
    "0.0.0.0/8": "unspecified",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by a carrier (CGNAT)",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "a cloud's own service",
    "169.254.0.0/16": "link-local, where clouds keep their metadata",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "for documentation",
    "192.31.196.0/24": "reserved",
    "192.52.193.0/24": "reserved",
    "192.88.99.0/24": "a 6to4 relay",
    "192.168.0.0/16": "private",
    "192.175.48.0/24": "reserved",
    "198.18.0.0/15": "for benchmarks",
    "198.51.100.0/24": "for documentation",
    "203.0.113.0/24": "for documentation",
    "224.0.0.0/4": "multicast",
    "255.255.255.255/32": "broadcast",
    "240.0.0.0/4": "reserved",
}
# https://www.iana.org/assignments/iana-ipv6-special-registry; public is 2000::/3 without the second
_IPV6 = {
    "::/128": "unspecified",
    "::1/128": "loopback",
    "::ffff:0:0/96": "an IPv4 address in disguise",
    "64:ff9b::/96": "an IPv4 address behind NAT64",
    "64:ff9b:1::/48": "an IPv4 address behind NAT64",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "private",
    "ff00::/8": "multicast",
}
_IPV6_PUBLIC = "2000::/3"
_IPV6_NOT_PUBLIC = {
    "2001::/32": "an IPv4 address behind Teredo",
    "2001::/23": "reserved",
    "2001:db8::/32": "for documentation",
    "2002::/16": "an IPv4 address behind 6to4",
    "2620:4f:8000::/48": "reserved",
    "3fff::/20": "for documentation",
}
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})


class BadAddress(ValueError):
    """A URL or host that is not fetched; the text says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart. ``host`` has no brackets, ``path`` begins with a slash, both are ASCII."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> str:
        """``https://example.com:8443``; the port only where it is not the usual one."""
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        """Host and, where it is not the usual one, port, as in a ``Host`` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole, as it is asked for."""
        return self.origin + self.path


def parse_url(text: str) -> Target:
    """``text`` as the one thing that it can mean; raises ``BadAddress``."""
    if len(text) > MAX_URL_CHARS:
        raise BadAddress(f"a URL of {len(text):,} characters; {MAX_URL_CHARS:,} are the most")
    if _SPLITS_READERS.search(text):
        raise BadAddress("a URL has no spaces, control characters or backslashes; write them %XX")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise BadAddress(f"not a URL: {error}") from None
    if parts.scheme not in _PORTS:
        raise BadAddress("only http:// and https:// URLs can be fetched")
    if not text[len(parts.scheme) :].startswith("://") or not parts.hostname:
        raise BadAddress("the URL names no host; write it like https://example.com/page")
    if "@" in parts.netloc:
        raise BadAddress("a URL with a user name or password is not fetched; leave it out")
    if port is None:
        port = _PORTS[parts.scheme]
    if not 0 < port <= _MAX_PORT:
        raise BadAddress(f"there is no port {port}")
    path = quote(parts.path or "/", safe=_PLAIN)
    query = f"?{quote(parts.query, safe=_PLAIN)}" if parts.query else ""
    return Target(parts.scheme, _host(parts.hostname.rstrip(".")), port, path + query)


def _host(host: str) -> str:
    if ":" in host:
        return _plainest(host, ipaddress.IPv6Address)
    if not host.isascii():
        raise BadAddress(_in_ascii(host))
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _plainest(host, _as_ipv4)
    if len(host) > _MAX_HOST_CHARS or not all(map(_LABEL.fullmatch, labels)):
        raise BadAddress("that is not the name of a host; write it like https://example.com/page")
    return host


def _as_ipv4(host: str) -> Address:
    """The address that programs read from ``127.1`` or ``0x7f000001``."""
    return ipaddress.IPv4Address(socket.inet_aton(host))


def _plainest(host: str, read: Callable[[str], Address]) -> str:
    """A public address in its usual form only: rules know it by that. Others are refused later."""
    try:
        address = read(host)
    except (ValueError, OSError):
        raise BadAddress("that is not an IP address") from None
    usual = str(address)
    if usual != host and not why_not_public(address):
        raise BadAddress(f"write the address in its usual form: {usual}")
    return usual


def _in_ascii(host: str) -> str:
    try:
        name = host.encode("idna").decode("ascii")
    except UnicodeError:
        return "that is not the name of a host"
    return f"write the host name in ASCII: {name}"


def why_not_public(address: Address) -> str:
    """What an address is instead of public; empty when it is public."""
    if isinstance(address, ipaddress.IPv4Address):
        return _kind(address, _IPV4)
    if address not in ipaddress.IPv6Network(_IPV6_PUBLIC):
        return _kind(address, _IPV6) or "reserved"
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return "an IPv4 address behind ISATAP"
    return _kind(address, _IPV6_NOT_PUBLIC)


def _kind(address: Address, table: dict[str, str]) -> str:
    found = (kind for network, kind in table.items() if address in ipaddress.ip_network(network))
    return next(found, "")


def is_private_url(url: str) -> bool:
    """Whether ``url`` says that it leads to no public address, however that is written."""
    try:
        return bool(why_not_public(ipaddress.ip_address(parse_url(url).host)))
    except ValueError:
        return is_private_server(url)


async def checked_addresses(target: Target, resolve: Resolver, judge: Judge) -> list[str]:
    """The addresses of the target, each judged; raises ``BadAddress`` if one is not public.

    Asked once for each connection: what is returned is what is to be connected to.
    """
    try:
        found = await resolve(target.host, target.port)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "no such host"
        raise BadAddress(f"{target.host} cannot be resolved (DNS): {reason}") from None
    addresses: list[str] = []
    for text in found:
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            raise BadAddress(f"{target.host} resolves to what is no IP address") from None
        if problem := judge(address):
            what = "is" if str(address) == target.host else f"resolves to {address}, which is"
            raise BadAddress(
                f"refused: {target.host} {what} not a public address ({problem}); "
                "only public hosts can be fetched"
            )
        if str(address) not in addresses:
            addresses.append(str(address))
    if not addresses:
        raise BadAddress(f"{target.host} cannot be resolved (DNS): it has no address")
    return addresses


async def resolve(host: str, port: int) -> list[str]:
    """The system's answer, in its order."""
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    return [str(row[4][0]) for row in await in_own_thread(ask)]
