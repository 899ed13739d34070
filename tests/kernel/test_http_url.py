"""The address of an HTTP service: what is taken is what the schema says."""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.kernel.http_url import URL_PATTERN, place_of
from forestay.kernel.problems import Problem


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://example.com", ("example.com", 443, "https")),
        ("http://Example.COM.:8080/a?b#c", ("example.com", 8080, "http")),
        ("https://[2001:DB8::1]:65535/", ("2001:db8::1", 65535, "https")),
        ("https://[::ffff:127.0.0.1]", ("::ffff:127.0.0.1", 443, "https")),
        ("https://a_b.example?q=%20", ("a_b.example", 443, "https")),
        ("https://0x7F.1:8443", ("127.0.0.1", 8443, "https")),
        ("https://2130706433.", ("127.0.0.1", 443, "https")),
        ("https://1.2.3.4.5", ("1.2.3.4.5", 443, "https")),
        ("https://0a.example", ("0a.example", 443, "https")),
    ],
)
def test_where_an_address_leads(url: str, place: tuple[str, int, str]) -> None:
    assert place_of(url) == place
    assert re.search(URL_PATTERN, url)


@given(st.ip_addresses(v=6), st.booleans())
def test_every_ipv6_address_is_one(address: ipaddress.IPv6Address, full: bool) -> None:
    text = address.exploded if full else address.compressed
    if address.ipv4_mapped is None:  # newer versions of Python write these with dots
        assert place_of(f"https://[{text}]/").host == text


@given(st.from_regex(URL_PATTERN, fullmatch=True))
def test_what_the_schema_allows_leads_where_the_library_says(url: str) -> None:
    if len(url) > 2048:
        return
    parts = urlsplit(url)
    place = place_of(url)
    named = (parts.hostname or "").rstrip(".")
    assert place.host == named or place.host == socket.inet_ntoa(socket.inet_aton(named))
    assert parts.username is None and parts.password is None
    if ":" in place.host:
        ipaddress.ip_address(place.host)


@given(st.text(alphabet="htps:/@[].a0-_%?#\\ ", max_size=24).map(lambda rest: f"https://{rest}"))
def test_what_is_refused_is_what_the_schema_refuses(url: str) -> None:
    try:
        place_of(url)
    except Problem as problem:
        assert problem.details["at"] == "$.url"
        assert not re.search(URL_PATTERN.replace("$", r"\Z"), url)
    else:
        assert re.search(URL_PATTERN, url)
