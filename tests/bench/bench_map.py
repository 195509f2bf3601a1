"""The map of Django and Flask: the first pass, an answer, an answer after an edit, memory.

Run: python -m tests.bench.bench_map [DIRECTORY ...]
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agentcli.app.codemap import ProjectMap
from agentcli.domain.cancel import CancelToken

WHEELS = ("django==5.2", "flask==3.1.0")
ANSWERS = 20


def sources(into: Path) -> list[Path]:
    """The packages, unpacked; none where no registry can be reached."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
    found = []
    for wheel in WHEELS:
        place = into / wheel.partition("=")[0]
        if subprocess.run([*pip, "--target", str(place), wheel], check=False).returncode:
            print(f"skipped {wheel}: no registry can be reached")
        else:
            found.append(place)
    return found


async def measure(root: Path, maps: Path) -> None:
    """One project; the last line is appended to one of its files."""
    project, token = ProjectMap(maps, root), CancelToken()
    start = time.perf_counter()
    _, state = await project.symbols("", "", None, token)
    first = time.perf_counter() - start
    start = time.perf_counter()
    for _ in range(ANSWERS):
        await project.symbols("Query", "", None, token)
    answer = (time.perf_counter() - start) / ANSWERS
    file = next(path for path in sorted(root.rglob("*.py")) if path.stat().st_size > 1_000)
    file.write_text(file.read_text() + "\n\ndef one_more(): pass\n")
    start = time.perf_counter()
    found, _ = await project.symbols("one_more", "", None, token)
    edit = time.perf_counter() - start
    assert found
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"{root.name}: {state.files:,} files, {state.symbols:,} symbols; first {first:.1f} s,"
        f" answer {answer * 1000:.0f} ms, after an edit {edit * 1000:.0f} ms, {memory:.0f} MB"
    )


def main() -> None:
    """Measure the directories that are named (a file of each is appended to), or the packages."""
    with tempfile.TemporaryDirectory() as place:
        roots = [Path(name) for name in sys.argv[1:]] or sources(Path(place))
        for root in roots:
            asyncio.run(measure(root.resolve(), Path(place) / "maps"))


if __name__ == "__main__":
    main()
