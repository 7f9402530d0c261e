"""Words of others on a terminal."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Names are the clients' words, and reasons a server's: nothing of them may move a cursor."""
    return "".join(letter if letter.isprintable() or letter in keep else "?" for letter in text)
