"""The official conformance suite against the real client, scenario by scenario (MCP-7).

It comes from the npm registry, with the version of Node.js that it needs, and is kept between runs;
without npm these tests are skipped. What a revision requires is all here; what it runs unscored and
is left out:

- ``auth/client-credentials-jwt``, ``auth/wif-jwt-bearer``, ``auth/enterprise-managed-authorization``
  (extensions): they need keys that sign, thus a cryptography library, for companies' set-ups
- ``auth/dpop``, ``auth/dpop-nonce`` (an extension that is a draft): the same
- ``json-schema-2020-12-preservation`` (added after the release): providers refuse ``$schema`` and
  ``allOf`` at the root of a tool's parameters, so they are not kept there
- ``sep-2640-…`` (an extension): skills of servers are not read
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120), pytest.mark.spec("MCP-7")]

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NODE = "node@22"
CLIENT = Path(__file__).resolve().parent.parent / "support/mcp_conformance_client.py"
INSTALL_S = 100

AUTH = (
    *("metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "basic-cimd"),
    *("scope-from-www-authenticate", "scope-from-scopes-supported", "scope-step-up"),
    *("scope-omitted-when-undefined", "scope-retry-limit", "token-endpoint-auth-basic"),
    *("token-endpoint-auth-post", "token-endpoint-auth-none", "pre-registration"),
    "client-credentials-basic",
)
OLD = ("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry")
NEW_AUTH = (
    *("resource-mismatch", "offline-access-scope", "offline-access-not-supported"),
    *("authorization-server-migration", "iss-supported", "iss-not-advertised", "iss-normalized"),
    *("iss-supported-missing", "iss-wrong-issuer", "iss-unexpected", "metadata-issuer-mismatch"),
)
NEW = (
    *("tools_call", "request-metadata", "sep-2322-client-request-state", "http-standard-headers"),
    *("http-custom-headers", "http-invalid-tool-headers", "json-schema-ref-no-deref"),
)
FIRST = ("2025-03-26-oauth-metadata-backcompat", "2025-03-26-oauth-endpoint-fallback")
REQUIRED = [
    *(("2025-03-26", f"auth/{name}") for name in FIRST),
    *(("2025-11-25", name) for name in OLD),
    *(("2025-11-25", f"auth/{name}") for name in AUTH),
    *(("2026-07-28", name) for name in NEW),
    *(("2026-07-28", f"auth/{name}") for name in (*AUTH, *NEW_AUTH)),
]


@pytest.fixture(scope="session")
def suite() -> tuple[str, str]:
    """Node.js and the suite's program, installed once for this machine's user."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    name = "-".join(("agentcli", SUITE.rpartition("@")[2], NODE, str(os.getuid())))
    place = Path(tempfile.gettempdir()) / name
    place.mkdir(mode=0o700, exist_ok=True)
    if place.stat().st_uid != os.getuid():
        pytest.skip(f"{place} is somebody else's")
    modules = place / "node_modules"
    node = modules / "node/bin/node"
    program = modules / "@modelcontextprotocol/conformance/dist/index.js"
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (node.exists() and program.exists()):
            command = [
                npm,
                "install",
                "--no-audit",
                "--no-fund",
                "--prefix",
                str(place),
                SUITE,
                NODE,
            ]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_S)
            except (OSError, subprocess.SubprocessError):
                pytest.skip("the suite cannot be installed from the npm registry")
            if not (node.exists() and program.exists()):
                pytest.skip(f"npm has not installed {NODE}")
    return str(node), str(program)


@pytest.mark.parametrize(
    ("revision", "scenario"),
    [
        pytest.param(*case, marks=pytest.mark.campaign if number % 10 else ())
        for number, case in enumerate(REQUIRED)
    ],
    ids=lambda value: value,
)
def test_the_client_conforms(
    suite: tuple[str, str], tmp_path: Path, revision: str, scenario: str
) -> None:
    command = [*suite, "client", "--command", f"{sys.executable} {CLIENT}"]
    options = ["--scenario", scenario, "--spec-version", revision, "--timeout", "60000"]
    root = str(CLIENT.parent.parent.parent)
    env = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": root}
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, env=env, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
