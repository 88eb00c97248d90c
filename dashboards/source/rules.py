"""Recording rules and alerts."""


def files(time_scale):
    """Name from dashboards/ → text."""
    return {}
