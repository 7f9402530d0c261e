"""Function URL events as Lambda makes them."""

from __future__ import annotations

from typing import Any


def url_event(path: str = "/", method: str = "GET", **fields: Any) -> dict[str, Any]:
    """A Function URL event, payload format 2.0."""
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"host": "abc.lambda-url.eu-central-1.on.aws", "x-forwarded-proto": "https"},
        "requestContext": {
            "accountId": "anonymous",
            "apiId": "abc",
            "domainName": "abc.lambda-url.eu-central-1.on.aws",
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "203.0.113.7",
                "userAgent": "curl/8",
            },
            "requestId": "0000",
            "routeKey": "$default",
            "stage": "$default",
            "timeEpoch": 1700000000000,
        },
        "isBase64Encoded": False,
        **fields,
    }
