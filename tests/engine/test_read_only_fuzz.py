"""What is called read-only is run for real: the canary must not sing, no file may change (SEC-4)."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcli.domain.tools import Workspace
from tests.support.reads import is_read_only

EXAMPLES = int(os.environ.get("BASH_FUZZ_EXAMPLES", "150"))
BASH = shutil.which("bash")

CANARY = ["touch CANARY", "canary", "tee CANARY", "cp a.txt CANARY", "sed -i s/a/b/ a.txt"]
LOOKS = [
    "ls", "cat a.txt", "echo", "grep -n a a.txt", "find .", "sort a.txt", "wc -l", "head -1",
    "sed -n", "rg a", "uniq", "printf %s", "true", "test", "xxd", "date", "cut -c1", "timeout 5",
    "nice", "time", "diff a.txt", "tr a b", "base64", "type", "command", "cd", "env", "[",
]  # fmt: skip
PIECES = [
    " ", " ", " ", "\t", "\n", ";", "&&", "||", "|", "&", "|&", "!", "(", ")", "{", "}", "$(", "`",
    "'", '"', "\\", "\\\n", "$", "$x", "${x:-", "$'", "<", ">", ">>", "2>&1", "2>/dev/null", ">CANARY",
    "> CANARY", "<<E\n", "\nE\n", "<<'E'\n", "<<<", "<(", ">(", "#", " # ", "*", "?", "[", "]", "~",
    "{a,b}", "x=1 ", "PATH=. ", "if ", "then ", "fi", "do ", "done", "for i in a; ", "-o CANARY",
    "-oCANARY", "--output=CANARY", "-exec", "-delete", "-fprint CANARY", "w CANARY", "1,5p", "1wCANARY",
    "-i", "-n", "--pre", "sudo ", "env ", "xargs ", "bash -c ", "eval ", "exec ", "command ", "-v",
    "a.txt", "sub", "..", "--", "-s", "-c", "1", "\r", "\u00a0", "\x0b", "f() ", "coproc ", "^", "}",
    "for PATH in .; do ", "for x in a.txt CANARY; do ", '"$x"', "printf %n PATH", "cd sub && ", "awk ",
    "'{print > \"CANARY\"}'", "'{print $1}'", "| xargs ", "find . ", ".*", "case a in a) ", ";;", "esac",
]  # fmt: skip


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve() / "root"
        (root / "sub").mkdir(parents=True)
        (root / "a.txt").write_text("a\n")
        (root / "-oCANARY").write_text("")
        (root.parent / "bin").mkdir()
        program = root.parent / "bin" / "canary"
        program.write_text("#!/bin/sh\n: > CANARY\n")
        program.chmod(0o755)
        yield root


def state(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text() if path.is_file() else ""
        for path in sorted(root.rglob("*"))
    }


quoted = st.sampled_from(CANARY).map(lambda text: f"'{text}'")
piece = st.one_of(st.sampled_from(PIECES), st.sampled_from(LOOKS), st.sampled_from(CANARY), quoted)
loose = st.lists(piece, min_size=1, max_size=8).map("".join)
spaced = st.lists(piece, min_size=1, max_size=6).map(" ".join)
hidden = st.tuples(
    st.sampled_from(LOOKS),
    loose,
    st.sampled_from(CANARY),
    st.sampled_from(["", ")", "'", '"', "`"]),
).map(lambda parts: f"{parts[0]} {parts[1]}{parts[2]}{parts[3]}")


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.spec("SEC-4", "LOOP-4")
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=st.one_of(loose, spaced, hidden))
def test_what_is_read_only_changes_nothing_when_it_is_run(text: str, root: Path) -> None:
    search_path = f"{root.parent / 'bin'}:/usr/bin:/bin"
    if not is_read_only(text, Workspace(root, root), search_path):
        return
    before = state(root)
    assert BASH is not None
    subprocess.run(
        [*_contained(root), BASH, "--noprofile", "--norc", "-c", text],
        cwd=root,
        env={"PATH": search_path, "HOME": str(root)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert state(root) == before


@lru_cache(maxsize=1)
def _contained(root: Path) -> list[str]:
    """Bubblewrap around it where that works: what goes wrong here stays here."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return []
    base = str(root.parent)
    command = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--bind", base, base, "--"]
    works = subprocess.run([*command, "/bin/true"], capture_output=True, check=False)
    return command if works.returncode == 0 else []
