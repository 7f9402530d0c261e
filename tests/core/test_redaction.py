"""What a log may show of a body."""

from __future__ import annotations

import pytest

from handler.redaction import MAX_LOGGED_BYTES, redacted


@pytest.mark.req("C8")
@pytest.mark.parametrize(
    ("body", "secret"),
    [
        ('{"text": "my key is sk-proj-abcdef123456"}', "abcdef123456"),
        ('{"authorization_token": "hunter2hunter2"}', "hunter2"),
        ('{"signature":"c2lnbmF0dXJl"}', "c2lnbmF0dXJl"),
        ('{"encrypted_content" : "gAAAAB"}', "gAAAAB"),
        ('{"h": "Authorization: Bearer abcdefghij"}', "abcdefghij"),
        ('{"url": "https://bucket.example.com/a.png?X-Amz-Signature=feed"}', "feed"),
        ('{"data": "' + "QUJD" * 100 + '"}', "QUJDQUJD"),
        ('{"k": "AIzaSyA1234567890abcdef"}', "SyA1234567890"),
        ('{"jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.sig-part"}', "eyJzdWIi"),
    ],
)
def test_secrets_are_masked(body: str, secret: str) -> None:
    shown = redacted(body.encode())
    assert secret not in shown
    assert "***" in shown or "(data)" in shown


def test_words_stay_and_the_length_is_bounded() -> None:
    assert redacted(b'{"content": "Read README.md"}') == '{"content": "Read README.md"}'
    assert len(redacted(b"word " * 10_000)) == MAX_LOGGED_BYTES
    assert redacted(b"\xff\xfe") == "\ufffd\ufffd"
