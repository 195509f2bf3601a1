"""What users already have, in the real program: skills, commands and agents of both homes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.e2e.one_shot import assert_one_line_error, one_shot
from tests.extensions.places import skill, write
from tests.support.cli import agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.replies import call, say
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.sampled


def system_of(server: ModelServer, number: int = 0) -> str:
    body = server.requests[number].body
    return "".join(part["text"] for part in body["system"])


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / ".git").mkdir(parents=True)
    (root / "sub").mkdir()
    return root


@pytest.mark.slow
@pytest.mark.spec("EXT-1", "CTX-2", "SEC-1")
def test_skills_of_all_places_reach_the_model_and_their_files_can_be_read(
    repository: Path, home: Path
) -> None:
    places = [
        repository / "sub" / ".agents", repository / ".claude", home / ".agents",
        home / ".claude", home / "agentcli",
    ]  # fmt: skip
    paths = [skill(place, f"s{i}", f"Use it for case {i}.") for i, place in enumerate(places)]
    notes = write(paths[2].parent, "references/notes.md", "the notes")
    read = [call("read_file", {"path": str(path)}) for path in (paths[2], notes)]
    with ModelServer([*read, "done", "again"]) as server:
        done = one_shot(server, "hi", "--trust", "--quiet", cwd=repository / "sub")
        untrusted = one_shot(server, "hi", cwd=repository / "sub")
    assert (done.code, done.stderr.strip()) == (0, ""), done.stderr
    for i, path in enumerate(paths):
        assert f"- s{i}: Use it for case {i}. ({path})" in system_of(server)
    assert len({system_of(server, number) for number in range(3)}) == 1
    results = list(facts_of(server.requests[2]).results.values())
    assert "Do it." in results[0] and "the notes" in results[1]
    assert "case 2" in system_of(server, 3) and "case 0" not in system_of(server, 3)
    assert "is ignored" in untrusted.stderr and "sub/.agents" in untrusted.stderr


@pytest.mark.slow
@pytest.mark.spec("CLI-14", "EXT-3", "SEC-4")
def test_a_command_is_resolved_in_one_shot_with_what_it_runs_and_names(
    tmp_path: Path, home: Path
) -> None:
    write(tmp_path, "a.txt", "alpha")
    write(tmp_path, "b.txt", "beta")
    head = "---\ndescription: d\nallowed-tools: Bash(printf *)\nmodel: haiku\n---\n"
    body = "Look at $1, @a.txt.\nState: !`printf '@b.txt $9 !`\n```!\nprintf 'two\\n'\n```\nEnd."
    body = body.replace("$9 !`", "%s' '$1'`")
    write(home, ".claude/commands/team/review.md", head + body)
    with ModelServer(["ok", "ok"]) as server:
        done = one_shot(server, "/team:review x", cwd=tmp_path, input="piped")
        again = one_shot(server, "plain", cwd=tmp_path)
    assert done.code == again.code == 0, done.stderr
    prompt = "\n".join(facts_of(server.requests[0]).prompts)
    listed = run_agent("sessions", "list", "--format", "json", env=agent_env())
    assert "/team:review x" in [each["title"] for each in json.loads(listed.stdout)]
    assert "Look at x, @a.txt.\nState: @b.txt x\ntwo\nEnd." in prompt
    assert "alpha" in prompt and "beta" not in prompt and "piped" in prompt
    assert "haiku" in server.requests[0].body["model"]
    assert "haiku" not in server.requests[1].body["model"]


@pytest.mark.slow
@pytest.mark.spec("CLI-14", "CLI-7", "EXT-3")
def test_a_command_that_may_not_run_sends_nothing(tmp_path: Path, home: Path) -> None:
    write(home, ".agents/commands/ship.md", "Ship.\n!`touch made`")
    for flags in ([], ["--plan"], ["--deny-tool", "bash"]):
        with ModelServer([]) as server:
            done = one_shot(server, "/ship", "-o", "json", "--sandbox", "off", *flags, cwd=tmp_path)
            assert not server.requests
        result = json.loads(done.stdout)
        assert (done.code, result["is_error"]) == (1 if flags else 4, True)
        assert "touch made" in done.stderr and not (tmp_path / "made").exists()
    assert result["subtype"] == "error_during_execution"


@pytest.mark.spec("CLI-14")
@pytest.mark.parametrize(
    ("prompt", "near"),
    [("/reveiw it", "did you mean /review"), ("/zzz", "there are: /brew, /review")],
)
def test_an_unknown_command_is_a_usage_error(
    tmp_path: Path, home: Path, prompt: str, near: str
) -> None:
    write(home, ".agents/commands/review.md", "x")
    skill(home / ".agents", "brew")
    with ModelServer([]) as server:
        done = one_shot(server, prompt, cwd=tmp_path)
    assert done.code == 2
    assert_one_line_error(done, "there is no command", near)


@pytest.mark.spec("CLI-14")
@pytest.mark.parametrize("prompt", ["/etc/hosts says what?", "/tmp is full", "/ alone", "// x"])
def test_a_prompt_that_begins_with_a_path_is_a_prompt(tmp_path: Path, prompt: str) -> None:
    with ModelServer(["ok"]) as server:
        assert one_shot(server, prompt, cwd=tmp_path).code == 0
    assert facts_of(server.requests[0]).prompts == [prompt]


@pytest.mark.spec("CLI-14", "EXT-1")
def test_skills_are_called_by_messages_of_a_program_too(tmp_path: Path, home: Path) -> None:
    path = skill(home / ".claude", "brew", body="Heat water for $0.")
    said = [
        {"type": "user", "message": {"role": "user", "content": text}}
        for text in ("/brew tea", "/nothing", "plain")
    ]
    lines = "".join(json.dumps(line) + "\n" for line in said)
    flags = ["--input-format", "stream-json", "-o", "stream-json"]
    with ModelServer(["one", "two"]) as server:
        done = one_shot(server, *flags, cwd=tmp_path, input=lines)
    results = [line for line in done.lines if line["type"] == "result"]
    assert [line["is_error"] for line in results] == [False, True, False]
    first = f"Follow the skill brew. Its files are in {path.parent}.\n\nHeat water for tea."
    assert facts_of(server.requests[1]).prompts == [first, "plain"]


@pytest.mark.slow
@pytest.mark.spec("SEC-17", "SEC-1")
def test_a_trusted_repository_that_has_changed_is_asked_about_again(
    repository: Path, home: Path
) -> None:
    path = skill(repository / ".claude", "ship", "Ships it")
    with ModelServer(["ok"] * 3) as server:
        assert one_shot(server, "hi", "--trust", cwd=repository).code == 0
        trust = home / "agentcli" / "trust.json"
        assert not trust.exists()
        from agentcli.config.paths import Paths
        from agentcli.config.project import decide, read_project

        project = read_project(repository, str(home))
        assert project is not None
        decide(Paths.from_env(os.environ), repository, project.fingerprint, trusted=True)
        assert one_shot(server, "hi", cwd=repository).stderr == ""
        path.write_text(path.read_text() + "more\n")
        changed = one_shot(server, "hi", cwd=repository)
    assert "has changed since you trusted it" in changed.stderr
    assert ["Ships it" in system_of(server, n) for n in range(3)] == [True, True, False]


@pytest.mark.spec("EXT-3")
def test_an_agent_of_claude_code_works_without_a_change(tmp_path: Path, home: Path) -> None:
    skill(home / ".claude", "style", "How code looks", body="Two spaces.")
    head = (
        "---\nname: scout\ndescription: Looks\ntools: Read, Grep, Bash(git log:*), WebFetch\n"
        "disallowedTools: WebFetch\nmodel: haiku\nskills: style, missing\nisolation: worktree\n---\n"
    )
    write(home, ".claude/agents/scout.md", f"{head}Be short.")
    task = {"agent": "scout", "description": "look", "prompt": "look"}
    twice = [call("task", task), "seen", call("task", task), "seen", "done"]
    with ModelServer(twice) as server:
        done = one_shot(server, "hi", cwd=tmp_path)
        child = server.requests[1].body
    assert done.code == 0, done.stderr
    assert {each["name"] for each in child["tools"]} == {"read_file", "grep_files", "bash"}
    system = "".join(part["text"] for part in child["system"])
    assert system.endswith(
        f"Be short.\n\nFollow the skill style. Its files are in {home}/.claude/skills/style.\n\n"
        "Two spaces."
    )
    assert "haiku" in child["model"]
    assert done.stderr.count("'missing'") == done.stderr.count("worktree") == 1


@pytest.mark.slow
@pytest.mark.spec("SEC-3", "EXT-1")
def test_what_takes_effect_everywhere_is_not_written_unasked(home: Path) -> None:
    path = home / ".claude" / "skills" / "x" / "SKILL.md"
    written = call("write_file", {"path": str(path), "content": "x"})
    by_shell = call("bash", {"command": f"mkdir -p {path.parent} && echo x > {path}"})
    with ModelServer([written, by_shell, "done"]) as server:
        done = one_shot(server, "hi", "--permission-mode", "auto", "-o", "json", cwd=home)
    assert not path.exists(), done.stderr


@pytest.mark.spec("EXT-1", "SEC-18")
def test_scripts_of_a_skill_run_in_the_sandbox(tmp_path: Path, home: Path) -> None:
    real = skill(home / "dev", "tool").parent
    write(real, "run.sh", "echo it-ran")
    (home / ".claude" / "skills").mkdir(parents=True)
    (home / ".claude" / "skills" / "tool").symlink_to(real)
    work = tmp_path / "work"
    work.mkdir()
    command = f"sh {home}/.claude/skills/tool/run.sh"
    with ModelServer([call("bash", {"command": command}), "done"]) as server:
        done = one_shot(server, "hi", "--permission-mode", "auto", cwd=work)
        if done.code == 4:
            pytest.skip("no sandbox here")
    assert "it-ran" in next(iter(facts_of(server.requests[1]).results.values()))


@pytest.mark.slow
@pytest.mark.spec("CTX-2", "EXT-1", "EXT-2")
def test_twenty_skills_cost_at_most_8000_characters_and_are_parsed_once(
    tmp_path: Path, home: Path
) -> None:
    with ModelServer(["ok"] * 3) as server:
        assert one_shot(server, "hi", cwd=tmp_path).code == 0
        for number in range(20):
            skill(home / ".claude", f"s{number}", "Words for when it fits. " * 60)
        assert one_shot(server, "hi", cwd=tmp_path).code == 0
        heads = home / "agentcli" / "heads.json"
        kept = heads.read_bytes()
        assert one_shot(server, "hi", cwd=tmp_path).code == 0
    plain, first, second = (system_of(server, number) for number in range(3))
    assert len(json.dumps(server.requests[0].body)) < 20_000
    assert 0 < len(first) - len(plain) <= 8_002  # two line breaks before it
    assert first == second and all(f"/s{number}/SKILL.md" in first for number in range(20))
    assert heads.read_bytes() == kept and heads.stat().st_mode & 0o777 == 0o600


@pytest.mark.spec("SEC-3", "EXT-3")
def test_a_users_own_command_attaches_a_credential_only_where_that_was_typed(
    repository: Path, home: Path, model_server: ModelServer
) -> None:
    """A repository may have given any name to it, and a text that came with a plugin may name it."""
    write(repository, ".env", "KEY=canary\n")
    (repository / "README.md").symlink_to(".env")
    write(repository, "a.py", "plain = 1\n")
    write(home, ".claude/commands/look.md", "Look at @README.md @.env @a.py\n$ARGUMENTS")
    model_server.default = say("Done.")
    for typed, is_sent in (("/look", False), ("/look @.env", True), ("/look @README.md", False)):
        done = one_shot(model_server, typed, cwd=repository)
        assert done.code == 0, done.stderr
        sent = json.dumps(model_server.requests[-1].body)
        assert ("canary" in sent, "plain = 1" in sent) == (is_sent, True), typed
