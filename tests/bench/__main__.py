"""All figures, and at the end the table for the topic ``figures``: ``python -m tests.bench [RUNS]``."""

from __future__ import annotations

import os
import platform
import sys
from importlib import import_module

from tests.bench.table import markdown, show

runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
found = []
# each is imported when its turn comes: what this process holds would count as its children's peak
for name in (
    "startup",
    "codex",
    "skills",
    "stream",
    "resilience",
    "interrupt",
    "store",
    "rendering",
    "context",
    "gates",
    "sandbox",
    "policy",
    "doctor",
):
    found += show(import_module(f"tests.bench.bench_{name}").rows(runs))
for name in ("screen", "background", "batch", "idle"):
    found += show(import_module(f"tests.bench.bench_{name}").rows())
print(f"\n{platform.system()}, Python {platform.python_version()}, {os.cpu_count()} processors")
print(f"medians of {runs}, load average before the end {os.getloadavg()[0]:.1f}\n")
print(markdown(found))
