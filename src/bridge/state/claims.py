"""Tool ids as claim checks: an id that the bridge mints names its conversation, so that its state is found again.

    toolu_ <flag> <conversation, 22> <random, 11>        40 characters, letters and digits

The conversation part is 128 bits: those of a conversation id that the bridge made (`conv_` and a UUID), else a digest
of the id that the client gave. It opens nothing by itself: the key in the store also contains the principal.
"""

from __future__ import annotations

import re
from hashlib import sha256
from uuid import UUID

from bridge.values import dataclass

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CONVERSATION_CHARACTERS = 22
_RANDOM_CHARACTERS = 11
_PLAIN, _FLAGGED = "a", "b"
_MINTED = re.compile(
    rf"toolu_([{_PLAIN}{_FLAGGED}])([0-9A-Za-z]{{{_CONVERSATION_CHARACTERS}}})[0-9A-Za-z]{{{_RANDOM_CHARACTERS}}}"
)
_OWN_CONVERSATION = re.compile(r"conv_([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a minted id says: the conversation it belongs to, and whether there is data to replay with it."""

    token: str
    has_data: bool


def conversation_token(conversation_id: str) -> str:
    """The 22 characters that stand for a conversation inside tool ids and store keys."""
    own = _OWN_CONVERSATION.fullmatch(conversation_id)
    number = UUID(own[1]).int if own else int.from_bytes(sha256(conversation_id.encode()).digest()[:16])
    return _base62(number, _CONVERSATION_CHARACTERS)


def new_conversation(random: str) -> str:
    """A conversation id of the bridge's own, with a UUID of version 4; `random` is 30 hexadecimal digits."""
    return f"conv_{random[:8]}-{random[8:12]}-4{random[12:15]}-a{random[15:18]}-{random[18:]}"


def conversation_of(token: str) -> str:
    """The conversation id of a token: the very one where the bridge made it, else one that works as well."""
    number = 0
    for character in token:
        number = number * len(_ALPHABET) + _ALPHABET.index(character)
    return f"conv_{UUID(int=number % 2**128)}"


def mint(token: str, random: bytes, *, has_data: bool) -> str:
    """A new tool id; `random` is eight bytes."""
    unique = _base62(int.from_bytes(random), _RANDOM_CHARACTERS)
    return f"toolu_{_FLAGGED if has_data else _PLAIN}{token}{unique}"


def read_claim(tool_id: str) -> Claim | None:
    """The claim that an id holds, if the bridge minted it."""
    minted = _MINTED.fullmatch(tool_id)
    return Claim(minted[2], minted[1] == _FLAGGED) if minted else None


def text_claim(text: str) -> str:
    """Stands for an answer of plain text, which has no id of its own."""
    return f"text_{sha256(text.encode('utf-8', 'replace')).hexdigest()[:32]}"


def random_token(random: bytes) -> str:
    """Random bytes, sixteen at most, as the 22 characters of a token."""
    return _base62(int.from_bytes(random), _CONVERSATION_CHARACTERS)


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
