"""``/permissions``: rules come, go and are explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.domain.errors import UsageError
from agentcli.policy.decision import Rule
from tests.repl.direct_chat import DirectChat, talk
from tests.support.model_server import ModelServer
from tests.support.replies import call
from tests.support.sandboxes import needs


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.mark.spec("UI-5", "SEC-3")
def test_permissions_adds_and_removes_rules_at_once_and_in_the_file(work: Path, home: Path) -> None:
    file = home / "agentcli" / "config.toml"

    async def body(chat: DirectChat) -> None:
        for kind, rule in (("allow", "bash(make *)"), ("deny", "bash(rm *)"), ("ask", "web_fetch")):
            (line,) = await chat.do(f"/permissions {kind} {rule}")
            assert line.startswith(f"{rule}: ")
            assert str(file) in line
            assert [str(each) for each in getattr(chat.session.policy, kind)] == [rule]
        assert 'deny = ["bash(rm *)"]' in file.read_text()
        assert (await chat.do("/permissions explain make x"))[0].startswith(
            "It runs without asking"
        )
        told = await chat.do("/permissions explain ls; rm x")
        assert told[0] == "It does not run: denied by the rule bash(rm *)"
        assert f"  rule        bash(rm *)  ({file})" in told
        told = await chat.do("/permissions explain read_file path=/etc/passwd")
        assert told[0] == "It asks: /etc/passwd is outside the workspace"
        assert "is removed from" in (await chat.do("/permissions remove bash(rm *)"))[0]
        assert chat.session.policy.deny == ()
        assert "bash(rm" not in file.read_text()
        chat.session.policy.add_rules("allow", ["bash(x)"], "--allow-tool")
        (line,) = await chat.do("/permissions remove bash(x)")
        assert line == "bash(x) is removed for this session only."

    talk(DirectChat(work), body)


@pytest.mark.spec("UI-5", "SEC-14")
def test_what_mode_yolo_asks_about_is_said_as_it_was_started(work: Path) -> None:
    async def body(chat: DirectChat) -> None:
        assert "destructive commands and your rules ask" in "".join(await chat.do("/permissions"))
        chat.session.policy.yolo_twice = True
        for line in ("/permissions", "/permissions yolo"):
            shown = "".join(await chat.do(line))
            assert "only protected places and your rules ask, destructive commands run" in shown

    talk(DirectChat(work), body)


@pytest.mark.spec("UI-5", "CLI-11")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("allow bash(", "not a permission rule"), ("remove bash(x)", "there is no rule"),
        ("allow", "of what"), ("explain", "of what"), ("explain read_file x=1", "does not take"),
    ],
)  # fmt: skip
def test_what_permissions_cannot_do_is_said(line: str, said: str, work: Path, home: Path) -> None:
    async def body(chat: DirectChat) -> None:
        with pytest.raises(UsageError, match=said):
            await chat.do(f"/permissions {line}")
        assert not (home / "agentcli" / "config.toml").exists()

    talk(DirectChat(work), body)


@pytest.mark.spec("SEC-15", "UI-7")
@pytest.mark.parametrize("sandbox", ["auto", "landlock", "off"])
def test_a_command_is_explained_as_it_would_run_where_the_shell_is(
    work: Path, home: Path, model_server: ModelServer, sandbox: str
) -> None:
    if sandbox == "landlock":
        needs(sandbox)
    (home / "agentcli").mkdir(exist_ok=True)
    (home / "agentcli" / "config.toml").write_text(f'sandbox = "{sandbox}"\n')
    (work / "sub").mkdir()

    async def body(chat: DirectChat) -> None:
        rule = Rule("bash", "./build.sh", exact=True, directory=work)
        chat.session.policy.granted.append(rule)
        told = await chat.do("/permissions explain ./build.sh")
        assert told[0].startswith("It runs without asking: allowed by the rule")
        model_server.add(call("bash", {"command": "cd sub"}), "There.")
        await chat.say("go")
        told = await chat.do("/permissions explain ./build.sh")
        assert told[0] == "It asks: it runs a command"
        told = await chat.do("/permissions explain ls ..")
        assert told[0].startswith("It runs without asking: reads inside the workspace")
        told = await chat.do("/permissions explain read_file path=../x")
        assert told[0].endswith("is outside the workspace")

    talk(DirectChat(work, model_server), body)


@pytest.mark.spec("UI-7", "SEC-3")
def test_a_yes_for_the_session_is_listed_with_where_it_holds(work: Path, home: Path) -> None:
    async def body(chat: DirectChat) -> None:
        yes = Rule("bash", "./build.sh", exact=True, directory=work / "sub", is_inside=True)
        chat.session.policy.granted.append(yes)
        shown = "\n".join(await chat.do("/permissions"))
        assert f"  bash(./build.sh)  - in {work / 'sub'}, in the sandbox" in shown

    talk(DirectChat(work), body)
