"""The dashboards."""

import json

from .overview import overview

BOARDS = {"overview": overview}


def files():
    """Name from dashboards/ → text."""
    return {f"{name}.json": json.dumps(made(), indent=1, ensure_ascii=False) + "\n" for name, made in BOARDS.items()}
