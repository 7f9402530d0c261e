"""Which IP addresses may be called: rules over addresses, after names were resolved."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address

_METADATA = frozenset(
    ip_address(text)
    for text in (
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure's host
        "192.0.0.192",  # Oracle
        "fd00:ec2::23",  # EKS pod identity
        "fd00:ec2::254",  # EC2
        "fd20:ce::254",  # Google
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_IPV4_COMPATIBLE = IPv6Network("::/96")


def is_metadata(address: Address) -> bool:
    """True for link-local addresses and those where clouds hand out credentials."""
    return any(one in _METADATA or one.is_link_local for one in _meant(address))


def is_public(address: Address) -> bool:
    """True if the address belongs to the public internet, whichever way it is spelt."""
    return not is_metadata(address) and all(_is_global(one) for one in _meant(address))


def _is_global(address: Address) -> bool:
    if isinstance(address, IPv6Address) and (address.is_site_local or address in _LOCAL_NAT64):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _meant(address: Address) -> tuple[Address, ...]:
    """The address and the IPv4 addresses inside it; one that is only another spelling counts as IPv4 alone."""
    if isinstance(address, IPv4Address):
        return (address,)
    last_four = IPv4Address(int(address) & 0xFFFFFFFF)
    if address.ipv4_mapped is not None or address in _NAT64:
        return (last_four,)
    inside: list[Address | None] = [address.sixtofour, *(address.teredo or ())]
    if address in _LOCAL_NAT64 or (address in _IPV4_COMPATIBLE and int(address) > 1):
        inside.append(last_four)
    return (address, *(found for found in inside if found is not None))
