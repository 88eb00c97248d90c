"""The dashboards."""

import json

from .anatomy import anatomy
from .capacity import capacity
from .overview import overview
from .providers import providers

BOARDS = {"overview": overview, "anatomy": anatomy, "providers": providers, "capacity": capacity}


def files():
    """Name from dashboards/ → text."""
    return {f"{name}.json": json.dumps(made(), indent=1, ensure_ascii=False) + "\n" for name, made in BOARDS.items()}
