"""An HTTP/1.1 server for ASGI apps, on asyncio and httptools: what `bridge serve` runs on."""
