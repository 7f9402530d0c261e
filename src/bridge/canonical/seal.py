"""What begins the data that the bridge seals for Responses clients to carry: nobody else can read it."""

from __future__ import annotations

SEAL = "tb1."
