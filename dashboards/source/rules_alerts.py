"""Alerts."""

ABOUT = "Alerts."
GROUPS = []
