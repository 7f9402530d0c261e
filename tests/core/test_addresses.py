"""Which addresses are whose."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from bridge.upstream.addresses import is_metadata, is_public

METADATA = [
    "169.254.169.254",
    "169.254.170.2",
    "169.254.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fe80::1",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "::a9fe:a9fe",
]
PRIVATE = [
    "127.0.0.1",
    "127.9.9.9",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "240.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "::1",
    "::",
    "fc00::1",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::808:808",
    "2002:7f00:1::",
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("text", METADATA)
def test_metadata_is_neither_called_nor_public(text: str) -> None:
    assert is_metadata(ip_address(text))
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", PRIVATE)
def test_private_addresses_are_not_public_but_may_be_providers(text: str) -> None:
    assert not is_metadata(ip_address(text))
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_the_rest_is_public(text: str) -> None:
    assert not is_metadata(ip_address(text))
    assert is_public(ip_address(text))
