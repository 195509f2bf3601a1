"""The map of Django, Flask and a generated tree: first pass, answers, an edit, memory.

Run: python -m tests.bench.bench_map [--files N] [DIRECTORY ...]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from agentcli.app.codemap import ProjectMap
from agentcli.domain.cancel import CancelToken

SOURCES = ("django==5.2", "flask==3.1.0")
ANSWERS = 20
FILES = 50_000
MAX_PASSES = 20
MODULE = """\
import os
from pkg{a}.mod{b}.file_{j} import Class{j}, helper_{j}

LIMIT_{i} = {i}

class Class{i}(Class{j}):
    size = 3

    def run_{i}(self, other):
        return other.run_{j}(self) + helper_{j}(self.value)

    def save(self):
        return helper_{j}(LIMIT_{i})

def helper_{i}(value):
    print(value, os.getcwd())
    return Class{j}(value).save()
"""


def sources(into: Path) -> list[Path]:
    """The source distributions, unpacked; none where no registry can be reached."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
    found = []
    for name in SOURCES:
        place = into / name.partition("=")[0]
        place.mkdir()
        if subprocess.run([*pip, "--dest", str(place), name], check=False).returncode:
            print(f"skipped {name}: no registry can be reached")
            continue
        with tarfile.open(next(place.glob("*.tar.gz"))) as archive:
            archive.extractall(place, filter="data")
        found.append(place)
    return found


def generated(root: Path, files: int) -> Path:
    """A tree of that many small modules that use each other."""
    chosen = random.Random(1)
    for i in range(files):
        j = chosen.randrange(files)
        place = root / f"pkg{i // 1000}" / f"mod{i // 50 % 20}"
        place.mkdir(parents=True, exist_ok=True)
        text = MODULE.format(i=i, j=j, a=j // 1000, b=j // 50 % 20)
        (place / f"file_{i}.py").write_text(text)
    return root


async def measure(root: Path, maps: Path) -> None:
    """One project; a line is appended to one of its files."""
    project, token = ProjectMap(maps, root), CancelToken()
    passes, start = 0, time.perf_counter()
    while passes < MAX_PASSES:
        passes += 1
        overview, state = await project.symbols("", "", None, token)
        if not state.waiting:
            break
    first = time.perf_counter() - start
    name = overview[0].name
    await project.symbols(name, "", None, token)  # from here on it is told what changes

    async def answer(*, uses: bool) -> float:
        times = []
        for _ in range(ANSWERS):
            start = time.perf_counter()
            if uses:
                await project.references(name, None, 0, token)
            else:
                await project.symbols(name, "", None, token)
            times.append(time.perf_counter() - start)
        return statistics.median(times) * 1000

    symbols, references = await answer(uses=False), await answer(uses=True)
    file = next(path for path in sorted(root.rglob("*.py")) if path.stat().st_size > 300)
    file.write_text(file.read_text() + "\n\ndef one_more(): pass\n")
    start = time.perf_counter()
    found, _ = await project.symbols("one_more", "", None, token)
    edit = (time.perf_counter() - start) * 1000
    assert found
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"{root.name}: {state.files:,} files, {state.symbols:,} symbols; first {first:.1f} s in"
        f" {passes} passes, {memory:.0f} MB; symbols {symbols:.1f} ms, references {references:.1f}"
        f" ms, after an edit {edit:.1f} ms"
    )


def main() -> None:
    """Measure the directories that are named (a file of each is appended to), or the packages."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=FILES)
    parser.add_argument("directories", nargs="*", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        roots = given.directories or [
            *sources(Path(place)),
            *([generated(Path(place) / "generated", given.files)] if given.files else ()),
        ]
        for root in roots:
            asyncio.run(measure(root.resolve(), Path(place) / "maps"))


if __name__ == "__main__":
    main()
