"""``/sandbox`` on a real session."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.domain.errors import UsageError
from agentcli.domain.ports import PermissionMode
from tests.repl.direct_chat import DirectChat, talk
from tests.support.model_server import ModelServer
from tests.support.sandboxes import needs


@pytest.mark.parametrize("setting", ['sandbox = "landlock"', "sandbox_network = true"])
@pytest.mark.spec("SEC-7", "SEC-18")
def test_single_hosts_are_offered_only_where_they_can_be_opened(
    model_server: ModelServer, tmp_path: Path, home: Path, setting: str
) -> None:
    needs("landlock")
    (home / "agentcli").mkdir(exist_ok=True)
    (home / "agentcli" / "config.toml").write_text(f"{setting}\n")

    async def body(chat: DirectChat) -> None:
        assert "/sandbox allow" not in "\n".join(await chat.do("/sandbox"))

    talk(DirectChat(tmp_path, model_server), body)


@pytest.mark.parametrize(
    ("setting", "why"),
    [('sandbox = "off"', "without a sandbox"), ("sandbox_network = true", "sandbox_network opens")],
)
@pytest.mark.spec("SEC-7", "SEC-18")
def test_where_nothing_is_closed_no_host_is_opened(
    model_server: ModelServer, tmp_path: Path, home: Path, setting: str, why: str
) -> None:
    needs("bwrap")
    (home / "agentcli").mkdir(exist_ok=True)
    (home / "agentcli" / "config.toml").write_text(f"{setting}\n")

    async def body(chat: DirectChat) -> None:
        with pytest.raises(UsageError, match=f"npmjs.org is reached as it is: .*{why}") as raised:
            await chat.do("/sandbox allow npmjs.org")
        assert raised.value.advice == "see what is in force: /sandbox"

    talk(DirectChat(tmp_path, model_server), body)


@pytest.mark.spec("SEC-7", "UI-5")
def test_the_state_is_shown_and_it_is_switched_off_and_on(
    model_server: ModelServer, tmp_path: Path
) -> None:
    needs("bwrap")
    (Path.home() / ".local" / "bin").mkdir(parents=True)

    async def body(chat: DirectChat) -> None:
        shown = "\n".join(await chat.do("/sandbox"))
        assert "Sandbox of commands: bubblewrap" in shown
        assert str(tmp_path) in shown
        assert "Network: none" in shown
        assert "/sandbox allow HOST" in shown
        assert "they read, too: ~/.local/bin" in shown or ", ~/.local/bin" in shown
        assert "Unix sockets: those of its own session" in shown or "Unix sockets: none" in shown
        assert "Commands that only read run with nothing to write to" in shown
        assert "(.envrc), asks and runs outside" in shown
        assert "from now on" in (await chat.do("/sandbox off"))[0]
        assert "none" in (await chat.do("/sandbox"))[0]
        assert "bubblewrap" in (await chat.do("/sandbox on"))[0]
        assert "nobody is asked" not in shown
        chat.session.policy.mode = PermissionMode.PLAN
        held = await chat.do("/sandbox")
        assert "Mode plan: what would leave it is refused" in held[1]
        assert "Network: none" in held
        chat.session.policy.mode = PermissionMode.YOLO
        assert "Not in use: mode yolo has no boundary" in (await chat.do("/sandbox"))[1]
        assert "Commands run without a sandbox" in "".join(await chat.do("/permissions"))
        chat.session.policy.is_bound = True  # the sandbox was named
        held = await chat.do("/sandbox")
        assert held[1] == "Mode yolo: what would leave it is refused, nobody is asked."
        assert "Not in use" not in "".join(held)
        assert "Network: none" in held and "(.envrc), is refused." in "\n".join(held)
        assert "ask" not in "\n".join(held[2:])
        assert "Commands run in a sandbox (bwrap)" in "".join(await chat.do("/permissions"))
        with pytest.raises(UsageError, match="not valid"):
            await chat.do("/sandbox maybe")
        with pytest.raises(UsageError, match="is no host"):
            await chat.do("/sandbox allow https://npmjs.org/")
        allowed = "\n".join(await chat.do("/sandbox allow NPMjs.org"))
        assert "reach npmjs.org, in this session" in allowed
        assert "Network: npmjs.org" in await chat.do("/sandbox")
        chat.session.policy.mode = PermissionMode.DEFAULT
        assert "Network: npmjs.org; for more the agent asks you" in await chat.do("/sandbox")
        await chat.do("/sandbox off")
        assert chat.session.policy.hosts == ()

    talk(DirectChat(tmp_path, model_server), body)
