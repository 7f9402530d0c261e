"""`python -m bench.floor_lambda`: the relay under the bridge's own Lambda loop."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from handler.lambda_runtime import serve

if TYPE_CHECKING:
    from bench.relay import Relay


def _relay() -> Relay:
    # Here, as in the bridge's entry, so that loading the app counts as its start.
    from bench.relay import UPSTREAM, Relay

    return Relay(os.environ[UPSTREAM])


if __name__ == "__main__":
    sys.exit(serve(_relay, os.environ["AWS_LAMBDA_RUNTIME_API"]))
