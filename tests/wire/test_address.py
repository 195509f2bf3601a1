"""Which URLs have one reading, and which addresses are public."""

from __future__ import annotations

import asyncio
import ipaddress

import pytest

from agentcli.policy.rules import host_of
from agentcli.wire.address import (
    BadAddress,
    Target,
    checked_addresses,
    parse_url,
    resolve,
    why_not_public,
)


@pytest.mark.spec("TOOL-12")
@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://Example.COM./a?b=c#d", "https://example.com/a?b=c"),
        ("http://example.com:80/", "http://example.com/"),
        ("https://example.com:8443/x", "https://example.com:8443/x"),
        ("https://example.com/a b".replace(" ", "%20"), "https://example.com/a%20b"),
        ("https://example.com/ä?q=\u202eö", "https://example.com/%C3%A4?q=%E2%80%AE%C3%B6"),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
        ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
        ("http://localhost./", "http://localhost/"),
        ("https://example.com?x", "https://example.com/?x"),
    ],
)
def test_a_url_is_read_as_what_is_asked_for(text: str, url: str) -> None:
    target = parse_url(text)
    assert target.url == url
    assert target.url.isascii()
    assert parse_url(target.url) == target


@pytest.mark.spec("TOOL-12", "SEC-11")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ftp://example.com/", "http"),
        ("file:///etc/passwd", "http"),
        ("javascript:alert(1)", "http"),
        ("example.com", "http"),
        ("https:example.com", "host"),
        ("https:///path", "host"),
        ("https://", "host"),
        ("https://user:secret@example.com/", "user name"),
        ("https://example.com@127.0.0.1/", "user name"),
        ("https://@example.com/", "user name"),
        ("https://exa mple.com/", "spaces"),
        ("https://example.com\\@evil.example/", "backslash"),
        ("https://example.com/\r\nX: y", "control"),
        ("https://example.com\t/", "spaces"),
        ("https://example.com:99999/", "not a URL"),
        ("https://example.com:0/", "port"),
        ("https://example.com:x/", "not a URL"),
        ("https://%6c%6fcalhost/", "name of a host"),
        ("https://a..b.example/", "name of a host"),
        ("https://-a.example/", "name of a host"),
        ("https://bücher.example/", "xn--bcher-kva.example"),
        ("https://ⓔxample.com/", "example.com"),
        ("https://16843009/", "1.1.1.1"),
        ("https://0x1010101/", "1.1.1.1"),
        ("https://[2606:4700:0::1111]/", "2606:4700::1111"),
        ("https://[::1/", "not a URL"),
        ("https://1.2.3.4.5/", "not an IP address"),
        ("https://example.com/" + "a" * 5_000, "characters"),
    ],
)
def test_a_url_with_more_than_one_reading_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadAddress, match=why):
        parse_url(text)


@pytest.mark.spec("SEC-11")
@pytest.mark.parametrize(
    "text",
    [
        "https://Example.COM./x",
        "http://xn--bcher-kva.example",
        "http://1.1.1.1/",
        "http://a_b.c:8/",
    ],
)
def test_the_host_that_is_asked_is_the_one_that_rules_judge(text: str) -> None:
    assert parse_url(text).host == host_of(text)


PRIVATE = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.0.1",
    "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1",
    "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.9", "224.0.0.1",
    "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1",
    "2001:10::1", "2002:7f00:1::", "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1",
    "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "2606:4700::5efe:7f00:1",
]  # fmt: skip


@pytest.mark.spec("TOOL-12", "SEC-11")
@pytest.mark.parametrize("text", PRIVATE)
def test_an_address_that_is_not_public_is_named_for_what_it_is(text: str) -> None:
    assert why_not_public(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "text",
    ["1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.1", "100.63.0.1", "100.128.0.1", "172.15.0.1",
     "172.32.0.1", "192.167.0.1", "223.255.255.1", "2606:4700::1111", "2a00:1450::1", "2001:4860::8"],
)  # fmt: skip
def test_a_public_address_is_public(text: str) -> None:
    assert why_not_public(ipaddress.ip_address(text)) == ""


@pytest.mark.spec("SEC-11")
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/",
        "http://127.1/", "http://0/", "http://[::1]/", "http://[::ffff:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/", "http://localhost/", "http://localhost./",
        "http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/",
        "http://[0:0:0:0:0:0:0:1]/",
    ],
)  # fmt: skip
def test_this_machine_in_every_spelling_is_refused_after_resolving(url: str) -> None:
    with pytest.raises(BadAddress, match="not a public address"):
        asyncio.run(checked_addresses(parse_url(url), resolve, why_not_public))


@pytest.mark.spec("SEC-11")
@pytest.mark.parametrize(
    "found",
    [["1.1.1.1", "127.0.0.1"], ["2606:4700::1111", "fe80::1%eth0"], ["1.1.1.1", "what"]],
)
def test_one_address_that_is_not_public_is_enough_to_refuse_a_name(found: list[str]) -> None:
    async def both(_host: str, _port: int) -> list[str]:
        return found

    with pytest.raises(BadAddress, match=r"two\.example"):
        asyncio.run(checked_addresses(parse_url("https://two.example/"), both, why_not_public))


@pytest.mark.spec("TOOL-12")
def test_a_name_that_does_not_resolve_is_one_clear_line() -> None:
    async def nothing(_host: str, _port: int) -> list[str]:
        return []

    target = Target("https", "gone.invalid", 443, "/")
    for resolver in (resolve, nothing):
        with pytest.raises(BadAddress, match=r"gone\.invalid cannot be resolved \(DNS\)"):
            asyncio.run(checked_addresses(target, resolver, why_not_public))
