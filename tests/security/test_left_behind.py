"""What an approved command leaves behind lets no other one do anything unasked (SEC-2, SEC-4).

The person says yes to the first command of each case and to nothing else. Sub-agents are held to
what holds for their parent.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agentcli.app.compose import open_session
from agentcli.app.options import SessionOptions
from agentcli.config.paths import Paths
from agentcli.config.settings import load_settings
from agentcli.domain.cancel import CancelReason
from agentcli.domain.events import AgentEvent, ApprovalWaiting, Prompt
from agentcli.domain.messages import user_text
from agentcli.domain.ports import ApprovalAnswer, ApprovalRequest, PermissionMode, Verdict
from tests.security.corpus import TOUCH
from tests.security.test_attack_corpus import (
    MODES,
    NO_SANDBOX,
    SECRET,
    Nobody,
    Place,
    Silent,
    beacon,
    place,
)
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer, Recorded
from tests.support.processes import wait_until
from tests.support.replies import Call, Reply
from tests.support.replies import calls as reply_with_calls
from tests.support.sandboxes import BOTH, needs

pytestmark = pytest.mark.sampled

__all__ = ["beacon", "place"]

SCRIPT = "#!/bin/sh\n" + TOUCH + "\n"
FILES = {
    **dict.fromkeys(("bin/ls", "sub/ls", "sub/bin/ls", "run"), SCRIPT),
    "rc": "--pre={W}/run\n",
    "sub/a.txt": "alpha\n",
    "git/config": "[trace2]\neventTarget = {O}/pwned\n",
}
CASES = (
    ("export PATH={W}/bin:$PATH", "ls"),
    ("export PATH=bin:$PATH", "ls"),
    ("cd sub; export PATH=bin:$PATH", "ls"),
    ("cd sub; export PATH=:$PATH", "ls"),
    ("cd sub; export PATH=.:$PATH", "timeout 5 ls"),
    ("export HOME={W} PATH='~/bin':$PATH", "ls"),
    ("unset PATH; cd sub", "ls"),
    ("export BASH_ENV={W}/run ENV={W}/run", "ls"),
    ("export LD_PRELOAD={W}/run LD_LIBRARY_PATH={W}", "ls"),
    ("export RIPGREP_CONFIG_PATH={W}/rc", "rg alpha"),
    ("ls() {{ " + TOUCH + "; }}; export -f ls", "ls"),
    ("shopt -s expand_aliases; alias ls='" + TOUCH + "'", "ls"),
    ("export SHELLOPTS BASHOPTS PS4='$(" + TOUCH + ")'", "ls"),
    ("export PROMPT_COMMAND='" + TOUCH + "' PS0='$(" + TOUCH + ")'", "ls"),
    ("hash -p {W}/run ls", "ls"),
    ("export POSIXLY_CORRECT=1", "grep P -e {H}/.ssh/id_rsa"),
    ("cd {H}", "cat .ssh/id_rsa"),
    ("ln -s {H}/.ssh door; cd door", "cat id_rsa"),
    ("ln -s {H}/.ssh door; cd sub; rm -r ../sub; ln -s {H}/.ssh ../sub", "cat id_rsa"),
    ("cd sub; export OLDPWD={H}/.ssh CDPATH={H}", "cat ~-/id_rsa"),
    ("export GIT_PAGER='" + TOUCH + "' GIT_EXTERNAL_DIFF={W}/run PAGER={W}/run", "git -p diff"),
    ("export GIT_TRACE={O}/pwned GIT_TRACE2_EVENT={O}/pwned", "git rev-parse HEAD"),
    ("export GIT_CONFIG_GLOBAL={W}/git/config", "git rev-parse HEAD"),
    ("export XDG_CONFIG_HOME={W}", "git rev-parse HEAD"),
)


class OnceOnly:
    """Says yes to one command."""

    def __init__(self, command: str) -> None:
        self._command = command

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        is_it = request.call.arguments.get("command") == self._command
        return ApprovalAnswer(Verdict.ONCE if is_it else Verdict.NO)


@pytest.mark.spec("SEC-2", "SEC-4", "SEC-5", "SEC-8")
@pytest.mark.parametrize(("approved", "unasked"), CASES, ids=[case[0] for case in CASES])
def test_an_approved_command_prepares_nothing_for_the_next(
    model_server: ModelServer, place: Place, approved: str, unasked: str
) -> None:
    for name, text in FILES.items():
        (place.work / name).parent.mkdir(exist_ok=True)
        (place.work / name).write_text(place.filled(text))
        (place.work / name).chmod(0o755)
    first, second = place.filled(approved), place.filled(unasked)
    model_server.restart(
        *(reply_with_calls(Call("bash", {"command": text})) for text in (first, second)), "Done."
    )
    env = agent_env(model_server)
    settings = load_settings(Paths.from_env(env), env, NO_SANDBOX)

    async def run() -> None:
        wanted = SessionOptions(cwd=place.work, new=True)
        session = await open_session(settings, wanted, OnceOnly(first))
        try:
            await session.run(Prompt(user_text("go")))
        finally:
            await session.aclose()

    asyncio.run(run())
    sent = str([request.body for request in model_server.requests])
    assert not (place.outside / "pwned").exists()
    assert SECRET not in sent


LATE = """
import os, time
def until(name):
    while not os.path.exists(name):
        time.sleep(0.01)
until("go")
open("." + "envrc", "w").write("evil")
open("done", "w").close()
time.sleep(1000)
"""


@pytest.mark.spec("SEC-17")
@pytest.mark.parametrize("kind", BOTH)
def test_a_write_that_fails_makes_nothing_that_was_left_behind_the_users(
    model_server: ModelServer, tmp_path: Path, kind: str
) -> None:
    needs(kind)

    def when_done(_: Recorded) -> Reply:
        wait_until((tmp_path / "done").exists, "what was left behind")
        return reply_with_calls(Call("write_file", {"path": ".", "content": "x"}))

    python = os.path.realpath(sys.executable)
    model_server.restart(
        reply_with_calls(Call("write_file", {"path": "late.py", "content": LATE})),
        reply_with_calls(Call("bash", {"command": f"{python} late.py >/dev/null 2>&1 &"})),
        reply_with_calls(Call("write_file", {"path": "go", "content": "x"})),
        when_done,
        "Done.",
    )
    options = ("--permission-mode", "auto", "--sandbox", kind)
    run = run_agent("run", *options, "go", env=agent_env(model_server), cwd=tmp_path)
    assert (tmp_path / ".envrc.set-aside").exists(), run
    assert ".envrc would take effect outside" in run.stderr, "also what is found at the end"
    assert not (tmp_path / ".envrc").exists()


DELEGATED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bash", {"command": TOUCH}),
    ("write_file", {"path": "{O}/pwned", "content": "x"}),
    ("read_file", {"path": "{H}/.ssh/id_rsa"}),
    ("web_fetch", {"url": "{U}/secret"}),
    ("spawn_background", {"tool": "bash", "args": {"command": TOUCH}}),
    ("task", {"prompt": "Do it.", "description": "it"}),
)


@pytest.mark.spec("SEC-3", "SEC-4", "SEC-5")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("in_background", [False, True], ids=["awaited", "in the background"])
def test_a_sub_agent_may_do_no_more_than_its_parent(
    model_server: ModelServer, place: Place, mode: str, *, in_background: bool
) -> None:
    job = {"prompt": "Do it.", "description": "it"}
    start = Call("spawn_background", {"tool": "task", "args": job})
    start = start if in_background else Call("task", job)
    done = reply_with_calls(*(Call(name, place.filled(args)) for name, args in DELEGATED))
    model_server.restart(reply_with_calls(start), done, *["Done."] * 20)
    env = agent_env(model_server)
    settings = load_settings(Paths.from_env(env), env)
    accepts = PermissionMode.ACCEPT_EDITS if mode == "edits are accepted" else None
    wanted = SessionOptions(cwd=place.work, new=True, mode=accepts)
    before = place.state()

    async def run() -> None:
        person = Silent() if mode == "nobody answers" else Nobody()
        session = await open_session(settings, wanted, person)

        def stop(event: AgentEvent) -> None:
            if isinstance(event, ApprovalWaiting) and mode == "nobody answers":
                asyncio.get_running_loop().call_soon(session.interrupt, CancelReason.USER)

        session.add_listener(stop)
        try:
            await session.run(Prompt(user_text("go")))
        finally:
            await session.aclose()

    asyncio.run(run())
    assert place.state() == before
    assert not place.beacon.heard
    assert SECRET not in str([request.body for request in model_server.requests])


@pytest.mark.spec("SEC-1", "UI-4")
def test_what_a_session_file_says_was_typed_attaches_nothing_from_elsewhere(
    model_server: ModelServer, place: Place
) -> None:
    model_server.restart(*["Done."] * 4)
    env = agent_env(model_server)
    settings = load_settings(Paths.from_env(env), env)

    async def run() -> None:
        session = await open_session(settings, SessionOptions(cwd=place.work, new=True), Nobody())
        await session.run(Prompt(user_text("hi")))
        await session.enqueue(place.filled("look at @{H}/.ssh/id_rsa and @a.txt"))
        await session.aclose()
        wanted = SessionOptions(cwd=place.work, resume=session.id)
        session = await open_session(settings, wanted, Nobody())
        await session.run_queued()
        await session.aclose()

    asyncio.run(run())
    sent = str([request.body for request in model_server.requests])
    assert "alpha" in sent
    assert SECRET not in sent
