"""A home directory that is mounted twice is a list in both places (SEC-18)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.e2e.one_shot import last_result
from tests.support.cli import AGENT, agent_env
from tests.support.model_server import ModelServer
from tests.support.replies import call
from tests.support.sandboxes import BOTH, needs

CANARY = "canary-7d40e"
# what another directory holds, as /sysroot does that of /var, and /mnt/wslg/distro all of /
MOUNT = """
mount -t tmpfs data /srv && mkdir -p "/srv/a b/me/.ssh" && mount --bind "/srv/a b/me" "$HOME" || exit 77
echo "$0" > "$HOME/.ssh/id_rsa" && exec "$@"
"""


@pytest.mark.slow
@pytest.mark.spec("SEC-18")
@pytest.mark.parametrize("kind", BOTH)
def test_what_another_mount_shows_of_the_home_directory_is_not_seen(
    home: Path, tmp_path: Path, kind: str
) -> None:
    needs(kind)
    work = tmp_path / "work"
    work.mkdir()
    (work / "read.sh").write_text('for f in /srv/*/me/.s*/id*; do cat "$f"; done; echo read\n')
    with ModelServer([call("bash", {"command": "sh read.sh"}), "done"]) as server:
        argv = ("unshare", "-m", "--propagation", "private", "sh", "-c", MOUNT, CANARY, *AGENT)
        done = subprocess.run(
            [*argv, "run", "--permission-mode", "auto", "--sandbox", kind, "hi"],
            env=agent_env(server, AGENTCLI_HOME=str(tmp_path / "agentcli")), cwd=work,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50, check=False,
        )  # fmt: skip
        if done.returncode in {1, 77} and not server.requests:
            pytest.skip("nothing can be mounted here")
        said = last_result(server)
    assert "read" in said, done.stderr
    assert CANARY not in said
