"""What the hooks of a repository lead to; with real repositories."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from agentcli.process.git_config import run_by_git

pytestmark = pytest.mark.spec("SEC-17")
PARTLY_SAID = {
    "python3 -m tools.check": ("tools/check.py", "tools/check/__main__.py", "tools/__init__.py"),
    "python -W error -m tools": ("tools.py", "tools/__main__.py", "tools/__init__.py"),
    "uv run -m tools.a.check src": ("tools/a/check.py", "tools/a/__init__.py"),
    'exec "$PYTHON" -mchecks "$@"': ("checks.py", "checks/__main__.py"),
    "cd tools && python -m check": ("tools/check.py", "check.py"),
    "python tools/lint": ("tools/lint/__main__.py",),
    "node tools/x --fix": ("tools/x.js", "tools/x.cjs", "tools/x.mjs", "tools/x/index.js"),
    'node "$(git rev-parse --show-toplevel)/tools/x"': ("tools/x.js",),
    "node .": ("index.js",),
    "bun run ./tools/x": ("tools/x.ts", "tools/x/index.tsx"),
    "deno run -A tools/x.tsx": ("tools/x.tsx",),
    "bun tools/x.ts; ruby tools/x.rb; php tools/x": ("tools/x.ts", "tools/x.rb"),
}


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("hook", PARTLY_SAID)
def test_what_a_hook_names_in_part_is_run_by_it(tmp_path: Path, hook: str, is_there: bool) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".git/hooks/pre-commit").write_text(f"#!/bin/sh\n{hook}\n")
    (tmp_path / "tools").mkdir()
    for name in (*PARTLY_SAID[hook], "src/__init__.py", "other.py"):
        if is_there:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        is_free = name in {"src/__init__.py", "other.py"}
        assert run_by_git(tmp_path / name) == ("" if is_free else "run by a hook of git's"), name


def test_an_option_of_another_program_names_no_module(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".git/hooks/pre-commit").write_text("git commit -m tools && pytest -m slow\n")
    assert not run_by_git(tmp_path / "tools/__init__.py")
    assert not run_by_git(tmp_path / "slow.py")


NOT_SAID = {
    "bun test && bun run lint && deno lint": ("test.js", "test/index.ts", "run.js", "lint.ts"),
    '"$dir/node_modules/lefthook/bin/index.js"': ("index.js", "bin/index.js", "bin/new"),
    '"$dir/node_modules/a-${os}/bin/a-${cpu}/a"': ("bin/a", "bin/new", "a"),
}


@pytest.mark.parametrize("hook", NOT_SAID)
def test_what_a_hook_does_not_run_is_free(tmp_path: Path, hook: str) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".git/hooks/pre-commit").write_text(f"#!/bin/sh\n{hook}\n")
    for name in NOT_SAID[hook]:
        assert not run_by_git(tmp_path / name), name
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch(0o755)
        assert not run_by_git(tmp_path / name), name


@pytest.mark.parametrize("is_there", [True, False])
def test_a_program_of_a_package_that_a_hook_names_is_run_by_it(
    tmp_path: Path, is_there: bool
) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    hook = '"$dir/node_modules/lefthook/bin/index.js"; sh "node_modules/../tools/x.sh"\n'
    (tmp_path / ".git/hooks/pre-commit").write_text(hook)
    (tmp_path / "node_modules/lefthook/bin").mkdir(parents=True)
    (tmp_path / "tools").mkdir()
    for name in ("node_modules/lefthook/bin/index.js", "tools/x.sh"):
        if is_there:
            (tmp_path / name).touch()
        assert run_by_git(tmp_path / name), name


EXCLUDED = """
repos:
- repo: https://example.org
  exclude: setup.py
  hooks:
  - id: check
    exclude: |
      (?x)^(
        tests/conftest.py|
        docs/conf.py
      )$
    files: x
  - id: other
    entry: python tools/x.py
    exclude: ^tests/(__init__|a)\\.py$
"""


def test_what_a_managers_configuration_excludes_is_free(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".git/hooks/pre-commit").write_text("#!/bin/sh\npre-commit run\n")
    (tmp_path / ".pre-commit-config.yaml").write_text(EXCLUDED)
    run = ("tools/x.py",)
    free = ("setup.py", "tests/conftest.py", "docs/conf.py", "tests/__init__.py")
    for name in run + free:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        assert bool(run_by_git(tmp_path / name)) == (name in run), name


HOSTILE = {
    "links in a circle": "extends: ["
    + ", ".join(f"'d/{'l*/' * n}x.yml'" for n in range(90))
    + "]\n",
    "no name": "extends:\n- a\0b.yml\n- '[z-a]*/x.yml'\n- '~\0'\n- " + "x" * 5_000 + "\n",
    "unfinished": "extends: [\n" * 20_000,
    "many": "remotes: x\nextends: [" + ", ".join(f"a{n}*" for n in range(40_000)) + "]\n",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_configuration_takes_no_time(tmp_path: Path, text: str) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".git/hooks/pre-commit").write_text("lefthook run pre-commit\n")
    (tmp_path / "lefthook.yml").write_text(text)
    (tmp_path / "d").mkdir()
    for number in range(20):
        (tmp_path / f"d/l{number}").symlink_to(".")
    begun = time.monotonic()
    assert not run_by_git(tmp_path / "README.md")
    assert run_by_git(tmp_path / ".lefthook.yml")
    assert time.monotonic() - begun < 4.0
