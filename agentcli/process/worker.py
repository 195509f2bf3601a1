"""One question to a process of its own, for what a hostile file can use up (SEC-13).

Law: it is our own interpreter with our own modules; nothing is imported from the working directory
(SEC-2). It ends with its time, its memory, or when nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import sys
from pathlib import Path

from agentcli.domain.cancel import uninterruptible

_PACKAGE = Path(__file__).resolve().parents[2]
_OWN_LIBRARIES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


async def answer_of(module: str, library: str, question: bytes, within_s: float) -> bytes:
    """What ``main`` of ``module``, which needs ``library``, prints; empty when it fails."""
    try:
        worker = await asyncio.create_subprocess_exec(
            *_command(module, library),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd="/",
            env={name: os.environ[name] for name in _OWN_LIBRARIES if name in os.environ},
        )
    except OSError:
        return b""
    try:
        async with asyncio.timeout(within_s):
            out, _ = await worker.communicate(question)
    except (TimeoutError, OSError):
        return b""
    else:
        return out if worker.returncode == 0 else b""
    finally:
        with contextlib.suppress(ProcessLookupError):
            worker.kill()
        await uninterruptible(_joined(worker))


async def _joined(worker: asyncio.subprocess.Process) -> None:
    await worker.wait()


def _command(module: str, library: str) -> list[str]:
    found = importlib.util.find_spec(library)
    places = [str(_PACKAGE)]
    if found is not None and found.origin is not None:
        places.append(str(Path(found.origin).resolve().parents[1]))
    code = f"import sys; sys.path += {places!r}; import {module} as worker; worker.main()"
    return [sys.executable, "-I", "-X", "utf8", "-c", code]
