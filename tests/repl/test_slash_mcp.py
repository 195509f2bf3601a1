"""``/mcp`` on a real session with real servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agentcli.config.paths import Paths
from agentcli.domain.errors import UsageError
from tests.repl.direct_chat import DirectChat, talk
from tests.support.cli import agent_env
from tests.support.model_server import ModelServer
from tests.support.oauth_server import OAuthServer

HOSTILE = str(Path(__file__).resolve().parent.parent / "support/mcp_hostile.py")


def configure(**servers: object) -> None:
    """In the user's file for this project alone: what ``agent mcp add -s local`` writes."""
    paths = Paths.from_env(agent_env())
    paths.config_dir.mkdir(parents=True, exist_ok=True)
    text = "".join(
        f"[mcp.servers.{name}]\n"
        + "".join(f"{key} = {json.dumps(each)}\n" for key, each in e.items())
        for name, e in servers.items()
        if isinstance(e, dict)
    )
    paths.config_file.write_text(text)


@pytest.mark.spec("MCP-1", "UI-5")
def test_servers_are_shown_started_again_and_switched(
    model_server: ModelServer, tmp_path: Path
) -> None:
    dies = "import sys; sys.stderr.write('no licence\\n'); sys.exit(3)"
    configure(
        good={"command": sys.executable, "args": [HOSTILE, "good"]},
        bad={"command": sys.executable, "args": ["-c", dies]},
    )

    async def body(chat: DirectChat) -> None:
        good, bad, how = await chat.do("/mcp")
        assert good.startswith("good: not started") and bad.startswith("bad: not started")
        assert "/mcp NAME" in how
        (restarted,) = await chat.do("/mcp restart good")
        assert restarted.startswith("good: ready, ")
        shown = "\n".join(await chat.do("/mcp good"))
        assert "tools: " in shown and "config.toml" in shown
        with pytest.raises(Exception, match="no licence"):
            await chat.do("/mcp restart bad")
        assert "failed: " in (await chat.do("/mcp"))[1]
        assert "switched off in this project" in (await chat.do("/mcp off bad"))[0]
        assert (await chat.do("/mcp"))[1].startswith("bad: failed")  # until it is opened again
        for words in ("/mcp nope", "/mcp restart nope"):
            with pytest.raises(UsageError, match="there are: good, bad"):
                await chat.do(words)
        with pytest.raises(UsageError, match="cannot do /mcp dance good"):
            await chat.do("/mcp dance good")

    async def again(chat: DirectChat) -> None:
        assert (await chat.do("/mcp"))[1].startswith("bad: switched off")
        with pytest.raises(UsageError, match="/mcp on bad"):
            await chat.do("/mcp restart bad")
        await chat.do("/mcp on bad")

    talk(DirectChat(tmp_path, model_server), body)
    talk(DirectChat(tmp_path, model_server), again)


@pytest.mark.spec("MCP-5", "UI-5")
def test_the_chat_logs_in_and_out(
    model_server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = tmp_path / "bin/xdg-open"
    browser.parent.mkdir()
    get = "import sys, urllib.request as u; u.urlopen(sys.argv[1]).read()"
    browser.write_text(f"#!{sys.executable} -P\n{get}\n")
    browser.chmod(0o755)
    (tmp_path / "repo/.git").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{browser.parent}:/usr/bin:/bin")
    screen = {"DISPLAY": ":0", "SSH_CONNECTION": ""}
    with OAuthServer() as remote:
        configure(api={"url": remote.url})

        async def body(chat: DirectChat) -> None:
            shown = await chat.do("/mcp login api")
            assert f"Go on in the browser: {remote.origin}/authorize?" in shown[0]
            assert "logged in to api" in shown[1]
            assert (await chat.do("/mcp"))[0].startswith("api: ready, 1 tool")
            assert await chat.do("/mcp logout api") == ["Logged out of api."]
            assert await chat.do("/mcp logout api") == ["There was no login to api."]

        talk(DirectChat(tmp_path / "repo", model_server, **screen), body)


def test_without_servers_it_says_how_to_add_one(model_server: ModelServer, tmp_path: Path) -> None:
    async def body(chat: DirectChat) -> None:
        assert "agent mcp add" in (await chat.do("/mcp"))[0]

    talk(DirectChat(tmp_path, model_server), body)
