"""What of the user's environment is given to what nobody was asked about (SEC-8, SEC-18)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentcli.domain.sandbox import Access
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import call, say
from tests.support.sandboxes import Sandboxed, needs
from tests.support.wire_facts import facts_of

KEPT_BACK = {
    "GITHUB_TOKEN": "ghp_0123456789abcdefABCDEF0123456789abcd",
    "UV_PUBLISH_TOKEN": "pypi-AgEIcHlwaS5vcmcCJDAwMDAwMDAw",
    "NPM_CONFIG__AUTH": "dXNlcjpwYXNzd29yZDE=",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzz",
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7ABCDEFG",
    "PGPASSWORD": "Sommer2024!",
    "DATABASE_URL": "postgres://app:g7TsQp02xLmZ@db.shop.com/app",
    "UV_EXTRA_INDEX_URL": "https://bot:Zk29sQpLmX77@pypi.shop.com/simple",
    "MY_SETTING": "ghp_0123456789abcdefABCDEF0123456789abce",
    "GIT_CONFIG_VALUE_0": "Authorization: Basic eC1hY2Nlc3MtdG9rZW46Z2hwXzAxMjM=",
}
PASSED_ON = {
    "GIT_CONFIG_COUNT": "1",
    "MAX_TOKENS": "4096",
    "DEV_DATABASE_URL": "postgres://postgres:postgres@localhost/app",
}
MORE = {
    "GIT_CONFIG_KEY_0": "http.https://github.com/.extraheader",
    "LENT_TOKEN": "lent-to-commands-8Hq2ZkPw",
}
ALL = {**KEPT_BACK, **PASSED_ON, **MORE}


def found(values: dict[str, str], text: str) -> list[str]:
    return [name for name, value in values.items() if value in text]


@pytest.mark.sampled
@pytest.mark.spec("SEC-8", "SEC-18")
@pytest.mark.parametrize("kind", ["bwrap", pytest.param("landlock", marks=pytest.mark.slow), "off"])
def test_what_runs_unasked_gets_no_credential(tmp_path: Path, home: Path, kind: str) -> None:
    if kind != "off":
        needs(kind)
    (home / "agentcli").mkdir(exist_ok=True)
    (home / "agentcli" / "config.toml").write_text('sandbox_variables = ["LENT_TOKEN"]\n')
    work = tmp_path / "work"
    work.mkdir()
    (work / "t.sh").write_text("env; git config --list; tr '\\0' '\\n' </proc/$PPID/environ\n")
    shows = "cat <<<$GITHUB_TOKEN$PGPASSWORD" + ("" if kind == "off" else "; printenv")
    reads = call("bash", {"command": shows}, id="reads")
    runs = call("bash", {"command": "sh t.sh"}, id="runs")
    allow = ("--allow-tool", "bash(sh t.sh)")
    with ModelServer([reads, runs, say("done")], strict=False) as server:
        env = agent_env(server, **ALL)
        done = run_agent("run", "--sandbox", kind, *allow, "go", env=env, cwd=work)
        assert done.stdout == "done\n", done.stderr
        said = facts_of(server.requests[-1]).results
    assert not found(KEPT_BACK, said["reads"])
    if kind == "off":  # what shows a variable asks there; the other one the user has allowed
        assert found(KEPT_BACK, said["runs"]) == [*KEPT_BACK]
    else:
        assert found(PASSED_ON, said["reads"]) == [*PASSED_ON]
        assert "[GITHUB_TOKEN, PGPASSWORD of the user's environment is not given" in said["reads"]
        assert not found(KEPT_BACK, said["runs"])
        assert found({**PASSED_ON, **MORE}, said["runs"]) == [*PASSED_ON, *MORE]


@pytest.mark.spec("SEC-8", "SEC-15")
def test_what_is_set_outside_comes_inside_without_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "from-the-environment-1")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:Zk29sQpLmX77@proxy.shop.com:3128")

    async def session_of_a_user() -> None:
        async with Sandboxed(tmp_path, "landlock") as session:
            show = 'echo "$DEPLOY_TOKEN|$NEW_TOKEN|$OTHER|$OWN_SECRET|$HTTPS_PROXY"'
            begin = "export NEW_TOKEN=set-outside-22 OTHER=plain"
            assert "from-the" in await session.with_access(Access.OUTSIDE, f"{begin}; {show}")
            inside = await session.say(f"export OWN_SECRET=made-inside-3; {show}")
            assert "||plain|made-inside-3|\n" in inside
            # what is made inside stays there, and is no secret of the user's
            assert "||plain|made-inside-3|\n" in await session.say(show)
            connected = await session.with_access(Access.NETWORK, show)
            assert "||plain|made-inside-3|http://me:" in connected
            outside = await session.with_access(Access.OUTSIDE, show)
            assert "from-the-environment-1|set-outside-22|plain||http://me:" in outside
            again = await session.with_access(Access.OUTSIDE, show)
            assert "from-the-environment-1|set-outside-22|plain||http://me:" in again

    asyncio.run(session_of_a_user())


@pytest.mark.spec("SEC-8", "SEC-9", "TOOL-11")
def test_a_key_that_is_exported_is_not_kept_as_another_value(tmp_path: Path) -> None:
    key = KEPT_BACK["GITHUB_TOKEN"]
    sets = call("bash", {"command": "export OTHER=$GITHUB_TOKEN PLAIN=b"}, id="sets")
    shows = call(
        "bash",
        {"command": 'echo "<${OTHER-none}|$PLAIN|${LLM-none}|${LLM_ADDRESS-none}>"'},
        id="shows",
    )
    with ModelServer([sets, shows, say("done")], strict=False) as server:
        env = agent_env(server, GITHUB_TOKEN=key)
        env["LLM"] = env["ANTHROPIC_API_KEY"] = "sk-ant-7Qw2Lk9Xz4Pv8Nb1Mt6Rj3"
        env["LLM_ADDRESS"] = f"https://llm.example.com/?k={env['LLM']}"
        done = run_agent("run", "--yolo", "go", env=env, cwd=tmp_path)
        assert done.stdout == "done\n", done.stderr
        said = facts_of(server.requests[-1]).results
    assert "[OTHER: a key is not stored; set it in the command that needs it]" in said["sets"]
    assert "<none|b|none|none>" in said["shows"]
