"""Whole processes, measured in turn: wall time, time of the request's arrival, peak memory."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Sample:
    """One run: seconds to its end, to the request's arrival, of the processor; peak MB."""

    wall_s: float
    arrival_s: float | None
    peak_mb: float
    cpu_s: float = 0.0


@contextlib.contextmanager
def service(chunks: int, *options: str) -> Iterator[int]:
    """The prepared service; yields its port."""
    with _ports(chunks, *options) as ports:
        yield ports[0]


@contextlib.contextmanager
def reached(
    home: Path, chunks: int, *options: str, secure: bool = False
) -> Iterator[tuple[int, dict[str, str]]]:
    """The service's port for questions, and the environment that reaches it; ``secure``: over TLS.

    The authority is our own then, in a file with all those that come with the program, so that
    reading them takes what it takes a user.
    """
    if not secure:
        with service(chunks, *options) as port:
            yield port, environment(home, port)
        return
    import certifi

    authority, certificate = _certificates(home)
    trusted = home / "all.pem"
    trusted.write_bytes(Path(certifi.where()).read_bytes() + authority.read_bytes())
    with _ports(chunks, "--tls", str(certificate), f"{certificate}.key") as (port, tls):
        address = {"ANTHROPIC_BASE_URL": f"https://localhost:{tls}", "SSL_CERT_FILE": str(trusted)}
        yield port, environment(home, port) | address


def _certificates(folder: Path) -> tuple[Path, Path]:
    """An authority and, by it, the certificate of a server on this machine; keys beside them."""
    authority, certificate = folder / "authority.pem", folder / "server.pem"
    signed_by = ("-CA", str(authority), "-CAkey", f"{authority}.key")
    for path, options in (
        (authority, ("-addext", "keyUsage=critical,keyCertSign")),
        (certificate, (*signed_by, "-addext", "basicConstraints=critical,CA:FALSE")),
    ):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
             "-keyout", f"{path}.key", "-out", str(path), "-subj", f"/CN={path.stem}",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", *options],
            check=True,
            capture_output=True,
        )  # fmt: skip
    return authority, certificate


@contextlib.contextmanager
def _ports(chunks: int, *options: str) -> Iterator[list[int]]:
    argv = [sys.executable, str(HERE / "service.py"), str(chunks), *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield [int(port) for port in process.stdout.readline().split()]
        finally:
            process.kill()


def arrivals(port: int) -> list[float]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/arrivals")
    found: list[float] = json.loads(connection.getresponse().read())
    connection.close()
    return found


def run_once(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    port: int = 0,
    tty: bool = False,
    cwd: Path | None = None,
) -> Sample:
    """Run ``argv`` to its end with its output read and thrown away."""
    if port:
        arrivals(port)
    parent, child = pty.openpty() if tty else os.pipe()
    drain = threading.Thread(target=_drain, args=(parent,))
    began = time.time()
    process = subprocess.Popen(
        argv,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=child,
        stderr=subprocess.DEVNULL,
    )
    os.close(child)
    drain.start()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.time() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    drain.join()
    os.close(parent)
    assert process.returncode == 0, (argv, process.returncode)
    arrived = arrivals(port) if port else []
    arrival = arrived[0] - began if arrived else None
    return Sample(wall, arrival, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime)


def _drain(handle: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(handle, 1 << 16):
            pass


def in_turn(runs: int, **commands: object) -> dict[str, list[Sample]]:
    """Each command ``runs`` times, A B A B …, after one warm-up. Values are callables."""
    samples: dict[str, list[Sample]] = {name: [] for name in commands}
    for count in range(runs + 1):
        for name, command in commands.items():
            sample = command()  # type: ignore[operator]
            if count:
                samples[name].append(sample)
    return samples


def median(samples: Sequence[Sample], field: str) -> float:
    return statistics.median(getattr(sample, field) for sample in samples)


@contextlib.contextmanager
def fresh_home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def environment(home: Path, port: int) -> dict[str, str]:
    """What a measured program gets: nothing of the person who measures."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "AGENTCLI_HOME": str(home / "agentcli"),
        "ANTHROPIC_API_KEY": "sk-test-000000",
        "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
        "TERM": "xterm-256color",
    }
