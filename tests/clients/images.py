"""An image to be looked at: eight by eight red pixels."""

from __future__ import annotations

from base64 import b64decode

RED_TEXT = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"
RED = b64decode(RED_TEXT)
