"""The dashboards."""


def files():
    """Name from dashboards/ → text."""
    return {}
