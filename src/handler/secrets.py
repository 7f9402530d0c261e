"""Secrets by reference: a setting may say where its value is kept instead of holding it.

    secretsmanager:NAME-OR-ARN            the secret's string
    secretsmanager:NAME-OR-ARN#FIELD      one field of a JSON secret; NAME:SecretString:FIELD means the same
    ssm:/PARAMETER/NAME                   a parameter, decrypted

They are fetched through Powertools at start and again when they are SECRETS_TTL_SECONDS old, so that a rotated key
or token works without a deployment.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from bridge.values import dataclass
from handler.settings import SettingsError, is_secret, setting_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_REFERENCE = re.compile(r"(secretsmanager|ssm):(.+?)(?:(?:#|:SecretString:)([^#:]+))?")


@dataclass(frozen=True, slots=True)
class Reference:
    """Where the value of one variable is kept."""

    variable: str
    service: str
    name: str
    field: str | None = None


def find_references(environment: Mapping[str, str]) -> tuple[Reference, ...]:
    """The secret settings of an environment that are given by reference."""
    names = [name for name, field in setting_fields().items() if is_secret(field)]
    found = ((name, _REFERENCE.fullmatch(environment.get(name, "").strip())) for name in names)
    return tuple(Reference(name, match[1], match[2], match[3]) for name, match in found if match)


def fetch(references: Iterable[Reference]) -> dict[str, str]:
    """The values by variable; SettingsError names the variable of one that cannot be had. Blocks."""
    return {reference.variable: _value(reference) for reference in references}


def _value(reference: Reference) -> str:
    from aws_lambda_powertools.utilities import parameters
    from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError
    from botocore.exceptions import BotoCoreError, NoRegionError

    try:
        if reference.service == "ssm":
            said = parameters.get_parameter(reference.name, decrypt=True, force_fetch=True)
        else:
            said = parameters.get_secret(reference.name, force_fetch=True)
    except (BotoCoreError, GetParameterError) as error:
        what = "parameter" if reference.service == "ssm" else "secret"
        why = "no AWS region is set (AWS_DEFAULT_REGION)" if isinstance(error, NoRegionError) else error
        raise SettingsError(f"{reference.variable}: {what} {reference.name} cannot be read: {why}") from None
    text = str(said)
    return text if reference.field is None else _field(reference, text)


def _field(reference: Reference, text: str) -> str:
    try:
        value = orjson.loads(text)[reference.field]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise SettingsError(f"{reference.variable}: the secret is no JSON object with {reference.field!r}") from None
    return str(value)
