"""Writes docs/settings.md from the settings themselves: `make settings`."""

from __future__ import annotations

from pathlib import Path

from handler.settings import is_secret, setting_fields

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
HEAD = """# Settings

Every setting is an environment variable. `bridge` commands also read a `.env` file in the current folder (or
`--env-file FILE`); the environment wins. An empty variable counts as unset. A value that a setting cannot take stops
the start with a message that names the variable. Names of levels and modes are case-insensitive.

Base URLs may be plain http and private: local models are welcome. Link-local and cloud metadata addresses are refused.
boto3's own variables (`AWS_DEFAULT_REGION`, `AWS_ENDPOINT_URL_DYNAMODB`, credentials) work as boto3 defines them.

| variable | default | what it does |
|---|---|---|
"""


def main() -> None:
    rows = [f"| `{name}` | {default_of(field)} | {description_of(field)} |" for name, field in setting_fields().items()]
    PAGE.write_text(HEAD + "\n".join(rows) + "\n")


def default_of(field: object) -> str:
    default = getattr(field, "default", None)
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, float):
        return f"`{default:g}`"
    return f"`{default}`" if isinstance(default, int) or (isinstance(default, str) and default) else ""


def description_of(field: object) -> str:
    text = str(getattr(field, "description", ""))
    return text + (" *Secret.*" if is_secret(field) else "")  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
