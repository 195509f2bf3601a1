"""What a pattern allows is what bash would run, told by running it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain.ports import PermissionMode as Mode
from agentcli.domain.tools import Effect, ToolDefinition, Workspace
from agentcli.policy.approval import decide
from agentcli.policy.bash_command import SimpleCommand
from agentcli.policy.command_rules import covers, covers_literally, is_transparent, may_touch
from agentcli.policy.rules import parsed_command
from agentcli.policy.rules_values import Answer, CallFacts, Policy

BASH = shutil.which("bash")
TOOL = ToolDefinition("bash", "bash", "", {"type": "object"}, Effect.EXEC, "shell")


class Ground:
    """A directory with a program ``ok`` that does nothing and a ``canary`` that leaves a mark."""

    def __init__(self, root: Path) -> None:
        self.work = root / "work"
        self.programs = root / "bin"
        self.mark = root / "mark"
        self.work.mkdir()
        self.programs.mkdir()
        for name, body in (("ok", ":"), ("canary", f": > {self.mark}")):
            file = self.programs / name
            file.write_text(f"#!/bin/sh\n{body}\n")
            file.chmod(0o755)
        self.workspace = Workspace(self.work, self.work)

    def is_allowed(self, text: str, *rules: str) -> bool:
        policy = Policy.from_texts(Mode.DEFAULT, rules, [])
        facts = CallFacts(TOOL, {"command": text}, (), self.workspace)
        return decide(facts, policy).answer is Answer.ALLOW

    def sings(self, text: str) -> bool:
        """Whether the canary runs when bash is given ``text``, or a file comes into being."""
        self.mark.unlink(missing_ok=True)
        env = {"PATH": f"{self.programs}:{os.environ['PATH']}", "HOME": str(self.work)}
        subprocess.run(
            [str(BASH), "--noprofile", "--norc", "-c", text], env=env, cwd=self.work, timeout=5,
            stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip
        made = list(self.work.iterdir())
        for each in made:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        return self.mark.exists() or bool(made)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("ground"))


_PIECES = st.sampled_from(
    ["ok x", "ok x", "ok x 'a b'", "echo x", "canary", "canary x", "ok x canary", "ok x 'canary'"]
)
_JOINS = st.sampled_from(
    ["; ", " && ", " || ", " | ", " & ", "\n", "\\\n", " ", "'", '"', "`", " > f ", " >f;", " #", " 2>&1 ",
     " <(", " $(", ")", "(", "{ ", "; }", " <<E\n", "\nE\n", "! ", "if ", "; then ", "; fi", " \\", "\t",
     "\r", "\0", "$'", "${x:-", "}", "f() { ", "; f", "A=b ", "case x in x) ", ";; esac", "eval ", "xargs ",
     "bash -c ", "sudo ", "env ", "timeout 1 ", "nice ", "cd / && ", "for i in 1; do ", "; done", "\u00a0"]
)  # fmt: skip
_COMMANDS = st.lists(st.one_of(_PIECES, _JOINS), min_size=1, max_size=8).map("".join)


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.spec("SEC-4")
@settings(max_examples=400, deadline=None)
@given(text=_COMMANDS)
def test_the_canary_never_runs_under_a_rule_for_another_command(ground: Ground, text: str) -> None:
    if ground.is_allowed(text, "bash(ok x *)", "bash(ok x)"):
        assert not ground.sings(text), text


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    "text",
    ["canary", "ok x; canary", "ok x $(canary)", "echo `canary`", "ok x > f", "ok x\ncanary"],
)
def test_the_ground_can_tell(text: str, ground: Ground) -> None:
    assert ground.sings(text)
    assert not ground.is_allowed(text, "bash(ok x *)")


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    "text", ["ok x", "ok x a | ok x b", "timeout 5 ok x", "ok x && echo done", "(ok x; ok x y)"]
)
def test_what_the_rule_means_runs_unasked(text: str, ground: Ground) -> None:
    assert ground.is_allowed(text, "bash(ok x *)")


def first(text: str) -> SimpleCommand:
    return parsed_command(text).commands[0]


@pytest.mark.spec("SEC-4")
def test_words_keep_their_ends_in_a_pattern() -> None:
    assert covers("git diff *", first("git diff 'a b'"))
    assert not covers("git diff *", first("git 'diff x'"))
    assert not covers("git diff *", first("git diff $X"))
    assert covers("echo * x", first("echo 'a b' x"))


@pytest.mark.spec("SEC-4")
def test_a_text_covers_a_part_only_in_the_same_place_and_unfed() -> None:
    for whole, covered in (("make", True), ("ls; make", True), ("ls | make", False)):
        parsed = parsed_command(whole)
        assert covers_literally("make", parsed.commands[-1], whole, parsed) is covered


def test_a_wrapper_is_transparent_only_where_what_it_runs_is_listed() -> None:
    parsed = parsed_command("timeout 5 make")
    assert is_transparent(parsed.commands[0], parsed)
    assert not is_transparent(parsed.commands[1], parsed)
    sudo = parsed_command("sudo make")
    assert not is_transparent(sudo.commands[0], sudo)


def test_an_unknown_word_may_be_the_denied_one() -> None:
    assert may_touch("git push *", "git $X", parsed_command("git $X"))
    assert not may_touch("git push *", "make $X", parsed_command("make $X"))
