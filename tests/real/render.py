"""Dashboards drawn by Grafana's own packages in a browser, from a real Prometheus fed by the real gauge.

A page gives the dashboards' JSON to Grafana's code for transformations, field config, units, thresholds and legends, and to its
components; what it shows is then read from the page, and held against what Prometheus says to the same queries.
"""

import contextlib
import functools
import hashlib
import http.server
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import boards
import grafana
from monitoring import installed, prometheus, until
from packages import proofs_folder
from parts import HERE, Fault, check, table
from playwright.sync_api import sync_playwright
from traffic import Traffic, gauge

PAGE = HERE / "render"
