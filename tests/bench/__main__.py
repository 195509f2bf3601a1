"""All figures, and at the end the table for the README: ``python -m tests.bench [RUNS]``."""

from __future__ import annotations

import os
import platform
import sys

from tests.bench import (
    bench_background,
    bench_context,
    bench_doctor,
    bench_gates,
    bench_idle,
    bench_interrupt,
    bench_policy,
    bench_rendering,
    bench_resilience,
    bench_sandbox,
    bench_screen,
    bench_startup,
    bench_store,
    bench_stream,
)
from tests.bench.table import markdown, show

runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
found = []
for bench in (
    bench_startup,
    bench_stream,
    bench_resilience,
    bench_interrupt,
    bench_store,
    bench_rendering,
):
    found += show(bench.rows(runs))
found += show(bench_context.rows(runs))
found += show(bench_gates.rows(runs))
found += show(bench_sandbox.rows(runs))
found += show(bench_policy.rows(runs))
found += show(bench_doctor.rows(runs))
found += show(bench_screen.rows())
found += show(bench_background.rows())
found += show(bench_idle.rows())
print(f"\n{platform.system()}, Python {platform.python_version()}, {os.cpu_count()} processors")
print(f"medians of {runs}, load average before the end {os.getloadavg()[0]:.1f}\n")
print(markdown(found))
