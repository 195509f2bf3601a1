"""What a skill or command has allowed covers that and nothing else, however it is written (SEC-4)."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from agentcli.app.extensions.calling import as_rule
from agentcli.domain.tools import Workspace
from agentcli.policy.decision import Answer, CallFacts, CallPlace, Policy
from agentcli.policy.judge import judge
from agentcli.tools.bash import TOOL
from tests.e2e.one_shot import one_shot
from tests.support.model_server import ModelServer
from tests.support.replies import call, say

BEGINNINGS = ("git diff HEAD", "git diff", "git diff -- a.txt", "git diff --stat")
BETWEEN = (";", "\n", "&&", "||", "|", "&", "|&", "\r\n", " ", "\t", "\\\n")
AROUND = (
    "$({})", "`{}`", "<({})", ">({})", '"$({})"', "${{x:-$({})}}", "$((a[$({})]))", "<<<$({})",
    "<<E\n$({})\nE\n", "<<'E'\nE\n{}\n", "{{ {}; }}", "({})", "[[ a =~ $({}) ]]", "<<-E\n`{}`\n\tE\n",
    "if {}; then :; fi", "while {}; do break; done", "! {}", "time {}", "coproc {}", "f() {{ {}; }}; f",
    "case x in x) {};; esac", "for i in 1; do {}; done", "eval '{}'", "bash -c '{}'", "env {}",
    "command {}", "x=1 {}", "> {}", "trap '{}' EXIT", "git -c alias.x='!{}' x", "git() {{ {}; }}",
    "GIT_EXTERNAL_DIFF='{}'", "export GIT_EXTERNAL_DIFF='{}'", "-O'{}'", "--output='{}'", "$'\\x24({})'",
    "'{}'", "# {}\n", "\\\n{}", "$[$({})]", "${{x/$({})/b}}", "xargs {}", "exec {}", "{{{},x}}", "&> {}",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.spec("SEC-4", "EXT-3")
@pytest.mark.timeout(120)
def test_what_runs_by_an_allowance_makes_nothing_else(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    (tmp_path / "a.txt").write_text("a")
    before = {path.name for path in tmp_path.iterdir()}
    policy = Policy(command_rules=[as_rule("Bash(git diff:*)")])
    place = CallPlace(Workspace(tmp_path, tmp_path), policy)
    chance = random.Random(20_261_123)
    allowed: set[str] = set()
    for _ in range(6_000):
        evil = "touch pwned"
        for _ in range(chance.randrange(1, 3)):
            evil = chance.choice(AROUND).format(evil)
        parts = [chance.choice(BEGINNINGS), evil]
        chance.shuffle(parts)
        command = chance.choice(BETWEEN).join(parts)
        call = CallFacts(TOOL.definition, {"command": command}, ())
        if judge(call, place).answer is Answer.ALLOW:
            allowed.add(command)
    assert allowed
    for command in sorted(allowed):
        argv = ["bash", "--noprofile", "--norc", "-c", command]
        subprocess.run(
            argv,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=10,
        )
        assert {path.name for path in tmp_path.iterdir()} == before, command


@pytest.mark.slow
@pytest.mark.spec("SEC-4", "UI-7")
def test_what_was_allowed_is_given_nothing_to_read(tmp_path: Path) -> None:
    """It was approved as it ran: with nothing on its standard input."""
    (tmp_path / "ask.sh").write_text("read -r line; echo $line > said; eval $line")
    commands = (
        "echo 'touch pwned # sh ask.sh' | sh ask.sh",
        "sh ask.sh; echo touch pwned | sh ask.sh",
    )
    steps = [*(call("bash", {"command": each}) for each in commands), say("done")]
    with ModelServer(steps, strict=False) as server:
        done = one_shot(server, "hi", "--allow-tool", "bash(sh ask.sh)", cwd=tmp_path)
    assert done.code == 4 and {path.name for path in tmp_path.iterdir()} == {"ask.sh"}
