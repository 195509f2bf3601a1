"""``agent plugin`` and what a plugin does, with real repositories and the real program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from agentcli.app.extensions.plugin_store import keep, plugin_places, remove, staged
from agentcli.config.paths import Paths
from agentcli.extensions.packages import SCHEMA
from tests.e2e.chat import Chat, leave
from tests.e2e.one_shot import one_shot
from tests.support.cli import AGENT, Finished, agent_env, run_agent
from tests.support.model_server import ModelServer
from tests.support.pty_driver import Terminal
from tests.support.replies import call
from tests.support.sandboxes import BOTH, needs
from tests.support.wire_facts import facts_of

pytestmark = pytest.mark.sampled

FILES = {
    ".claude-plugin/plugin.json": json.dumps({"name": "demo", "version": "1.0"}),
    "skills/greet/SKILL.md": "---\nname: greet\ndescription: Greets people\n---\nSay hello.\n",
    "commands/ship.md": "---\ndescription: Ships\n---\nShip it now.\n",
    "agents/helper.md": "---\nname: helper\ndescription: helps\n---\nHelp.\n",
    ".mcp.json": json.dumps({"mcpServers": {"db": {"command": "npx"}}}),
    "run.sh": '#!/bin/sh\necho "$PLUGIN_ROOT" > hooked\n',
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    hook = {"type": "command", "command": '"${CLAUDE_PLUGIN_ROOT}/run.sh"'}
    hooks = {"hooks": {"PostToolUse": [{"matcher": "Write", "hooks": [hook]}]}}
    for name, text in {**FILES, "hooks/hooks.json": json.dumps(hooks)}.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (root / "run.sh").chmod(0o755)
    return root


def plugin(*args: str, cwd: Path | None = None) -> Finished:
    return run_agent("plugin", *args, env=agent_env(), cwd=cwd)


def add(source: str) -> Finished:
    """As a script does it: look, then say yes to exactly that."""
    looked = plugin("add", source)
    assert looked.code == 4, looked.stderr
    return plugin("add", source, "--yes", looked.stderr.split()[-1])


def git(repository: Path, *args: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    done = subprocess.run(
        ["git", *who, *args], cwd=repository, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.spec("EXT-5")
def test_all_is_shown_before_a_yes_that_names_the_content(source: Path) -> None:
    looked = plugin("add", str(source))
    assert looked.code == 4 and "nothing was added" in looked.stderr
    for text in ("Say hello.", "Ship it now.", "helps", "run.sh", "PLUGIN_ROOT", "npx"):
        assert text in looked.stdout
    assert plugin("list", "--format", "json").stdout.strip() == "[]"
    mark = looked.stderr.split()[-1]
    (source / "commands/ship.md").write_text("Something else.")
    other = plugin("add", str(source), "--yes", mark)
    assert other.code == 4 and "is not that of" in other.stderr
    assert add(str(source)).code == 0
    (row,) = json.loads(plugin("list", "--format", "json").stdout)
    assert (row["name"], row["version"], row["source"]) == ("demo", "1.0", str(source))


@pytest.mark.slow
@pytest.mark.spec("EXT-5", "SEC-17")
def test_what_was_shown_is_what_takes_effect_whatever_becomes_of_its_source(
    model_server: ModelServer, source: Path, work: Path, home: Path
) -> None:
    add(str(source))
    (source / "run.sh").write_text("#!/bin/sh\ntouch evil\n")
    model_server.add(call("write_file", {"path": "a.txt", "content": "x\n"}), "Done.")
    done = one_shot(
        model_server, "--permission-mode", "accept-edits", "--sandbox", "off", "go", cwd=work
    )
    assert done.code == 0 and "agent plugin update demo" in done.stderr, done.stderr
    root = (work / "hooked").read_text().strip()
    assert root.startswith(str(home)) and Path(root, "run.sh").is_file()
    assert not (work / "evil").exists()
    assert "touch evil" in plugin("update", "demo").stdout
    assert plugin("update", "demo").code == 4


@pytest.mark.slow
@pytest.mark.spec("EXT-5", "EXT-1", "EXT-3")
def test_its_skills_agents_and_commands_are_there_after_the_users_own(
    model_server: ModelServer, source: Path, work: Path, home: Path
) -> None:
    manifest = source / ".claude-plugin/plugin.json"
    manifest.write_text(json.dumps({"name": "acme.demo"}))
    add(str(source))
    for line in ("/acme.demo:ship v1", "/ship v1"):
        model_server.add("Done.")
        assert one_shot(model_server, line, cwd=work).code == 0
        assert "Ship it now." in facts_of(model_server.requests[-1]).prompts[-1]
    told = json.dumps(model_server.requests[-1].body)
    assert "Greets people" in told and "helper" in told
    own = home / ".agents/commands/ship.md"
    own.parent.mkdir(parents=True)
    own.write_text("My own way.")
    model_server.add("Done.")
    assert one_shot(model_server, "/ship v1", cwd=work).code == 0
    assert "My own way." in facts_of(model_server.requests[-1]).prompts[-1]
    assert plugin("remove", "acme.demo").code == 0
    assert "the command ship is hidden by that of your own" in plugin("add", str(source)).stdout


@pytest.mark.slow
@pytest.mark.spec("EXT-5", "SEC-17")
@pytest.mark.parametrize("kind", BOTH)
def test_its_hooks_run_in_the_sandbox_and_see_its_files(
    model_server: ModelServer, source: Path, work: Path, home: Path, kind: str
) -> None:
    needs(kind)
    outside = home / "outside"
    with (source / "run.sh").open("a") as script:
        script.write(f"touch '{outside}'\n")
    add(str(source))
    model_server.add(call("write_file", {"path": "a.txt", "content": "x\n"}), "Done.")
    done = one_shot(
        model_server, "--permission-mode", "accept-edits", "--sandbox", kind, "go", cwd=work
    )
    assert done.code == 0, done.stderr
    assert (work / "hooked").exists() and not outside.exists()


@pytest.mark.slow
@pytest.mark.spec("EXT-5", "EXT-9")
def test_the_same_hook_of_two_plugins_runs_for_both_unless_hooks_are_off(
    model_server: ModelServer, source: Path, work: Path, home: Path
) -> None:
    hooks = json.loads((source / "hooks/hooks.json").read_text())
    hooks["hooks"]["PostToolUse"][0]["hooks"].append({"type": "prompt", "prompt": "x"})
    (source / "hooks/hooks.json").write_text(json.dumps(hooks))
    (source / "run.sh").write_text('#!/bin/sh\necho "$CLAUDE_PLUGIN_ROOT" >> hooked\n')
    for name in ("one", "two"):
        (source / ".claude-plugin/plugin.json").write_text(json.dumps({"name": name}))
        copy = source.with_name(name)
        shutil.copytree(source, copy)
        assert "of type 'prompt' is not called" in plugin("add", str(copy)).stdout
        assert add(str(copy)).code == 0
    free = ("--permission-mode", "accept-edits", "--sandbox", "off")
    for number in range(2):
        model_server.add(call("write_file", {"path": f"{number}.txt", "content": "x\n"}), "Done.")
        assert one_shot(model_server, *free, "go", cwd=work).code == 0
        lines = (work / "hooked").read_text().splitlines()
        assert sorted(Path(line).parent.name for line in lines) == ["one", "two"]
        (home / ".claude").mkdir(exist_ok=True)
        (home / ".claude/settings.json").write_text('{"disableAllHooks": true}')


@pytest.mark.slow
@pytest.mark.spec("EXT-5")
def test_a_repository_is_pinned_to_a_commit_and_an_update_shows_what_is_new(source: Path) -> None:
    git(source, "init", "-q", "-b", "main")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "one")
    url = f"file://{source}"
    assert add(url).code == 0
    (row,) = json.loads(plugin("list", "--format", "json").stdout)
    assert git(source, "rev-parse", "HEAD").startswith(row["commit"]) and row["commit"]
    assert "up to date" in plugin("update").stdout
    (source / "commands/ship.md").write_text("---\ndescription: Ships\n---\nShip it later.\n")
    git(source, "commit", "-qam", "two")
    shown = plugin("update")
    assert shown.code == 4 and "-Ship it now." in shown.stdout and "+Ship it later." in shown.stdout
    assert "Say hello" not in shown.stdout
    assert plugin("update", "demo", "--yes", shown.stderr.split()[-1]).code == 0
    assert plugin("add", f"{url}@{'0' * 40}").code == 78
    assert plugin("remove", "demo").code == 0
    assert plugin("list", "--format", "json").stdout.strip() == "[]"
    assert plugin("remove", "demo").code == 2


@pytest.mark.spec("EXT-5", "SEC-2")
def test_fetching_runs_nothing_of_the_repository(source: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (source / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (source / ".lfsconfig").write_text("[lfs]\n\turl = http://127.0.0.1:9/\n")
    (source / "out").symlink_to("/etc/hostname")
    (source / "up").symlink_to("../ran")
    (source / "same").symlink_to("commands/ship.md")
    git(source, "init", "-q")
    git(source, "add", "-A")
    for key in ("filter.evil.smudge", "filter.evil.process", "uploadpack.packObjectsHook"):
        git(source, "config", key, f"touch {mark}; cat")
    for name in ("post-checkout", "pre-auto-gc", "reference-transaction", "post-merge"):
        hook = source / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
        hook.chmod(0o755)
    git(source, "-c", "core.hooksPath=/dev/null", "commit", "-qm", "one")
    mark.unlink(missing_ok=True)
    looked = plugin("add", f"file://{source}")
    assert looked.code == 4, looked.stderr
    assert not mark.exists()
    assert "out is a link" in looked.stdout and "up is a link" in looked.stdout
    assert "--- same" in looked.stdout


@pytest.mark.spec("EXT-5", "SEC-12")
@pytest.mark.parametrize(
    "source",
    ["ext::sh -c touch% x", "http://a.example/x", "-x", "nowhere", "git://a.example/x", ""],
)
def test_what_is_no_address_is_a_usage_error(source: str, work: Path) -> None:
    done = plugin("add", "--", source, cwd=work)
    assert done.code == 2 and "Traceback" not in done.stderr
    assert list(work.iterdir()) == []


@pytest.mark.slow
@pytest.mark.spec("EXT-5", "SEC-5")
@pytest.mark.parametrize("is_git", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_one_of_a_marketplace(source: Path, tmp_path: Path, is_git: bool) -> None:
    market = tmp_path / "market"
    (market / ".claude-plugin").mkdir(parents=True)
    source.rename(market / "demo")
    (market / "others").mkdir()
    for number in range(2_100):
        (market / f"others/{number}").touch()
    (market / "secret").write_text("of the market")
    (market / "demo/up").symlink_to("../secret")
    (market / "skills/b").mkdir(parents=True)
    (market / "skills/b/SKILL.md").write_text(FILES["skills/greet/SKILL.md"])
    listed = [
        {"name": "demo", "source": "./demo"},
        {"name": "out", "source": "../.."},
        {"name": "gone", "source": "./gone"},
        {"name": "else", "source": {"source": "github", "repo": "a/b"}},
    ]
    (market / ".claude-plugin/marketplace.json").write_text(json.dumps({"plugins": listed}))
    given = str(market)
    if is_git:
        git(market, "init", "-q")
        git(market, "add", "-A")
        git(market, "commit", "-qm", "one")
        given = f"file://{market}"
    assert "demo, out, gone, else" in plugin("add", given).stderr
    looked = plugin("add", given, "--plugin", "demo")
    assert (
        looked.code == 4 and "of the market" not in looked.stdout and "note: up " in looked.stdout
    )
    for name in ("out", "gone", "else"):
        assert plugin("add", given, "--plugin", name).code == 78
    assert "demo is valid" in plugin("validate", given, "--plugin", "demo").stdout
    mark = looked.stderr.split()[-1]
    assert plugin("add", given, "--plugin", "demo", "--yes", mark).code == 0
    assert "up to date" in plugin("update", "demo").stdout


@pytest.mark.spec("EXT-5")
def test_a_marketplace_may_list_the_skills_of_a_plugin(tmp_path: Path) -> None:
    for name in ("one", "two"):
        file = tmp_path / f"skills/{name}/SKILL.md"
        file.parent.mkdir(parents=True)
        file.write_text(FILES["skills/greet/SKILL.md"].replace("greet", name))
    entry = {"name": "some", "source": "./", "strict": False, "skills": ["./skills/two"]}
    (tmp_path / ".claude-plugin").mkdir()
    (tmp_path / ".claude-plugin/marketplace.json").write_text(json.dumps({"plugins": [entry]}))
    done = plugin("validate", str(tmp_path))
    assert "some is valid (Claude Code): skills two\n" in done.stdout


@pytest.mark.spec("EXT-5")
def test_validate_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "plugin.json").write_text('{"name": "x"}')
    done = plugin("validate", cwd=tmp_path)
    assert done.code == 1 and "$schema" in done.stderr
    (tmp_path / "plugin.json").write_text(json.dumps({"$schema": SCHEMA, "name": "x", "more": 1}))
    (tmp_path / "skills/empty").mkdir(parents=True)
    (tmp_path / "skills/empty/SKILL.md").write_text("---\nname: empty\n---\n")
    done = plugin("validate", cwd=tmp_path)
    assert done.code == 0 and "x is valid (Agent Plugins 1.0)" in done.stdout
    assert "the field more is unknown" in done.stdout and "skills/empty/SKILL.md" in done.stdout


@pytest.mark.slow
@pytest.mark.spec("EXT-5")
@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_at_a_terminal_it_is_asked(source: Path, work: Path, answer: str, code: int) -> None:
    arguments = [*AGENT, "plugin", "add", str(source)]
    with Terminal(arguments, agent_env(), work, 60, 100) as terminal:
        terminal.wait_for("Enter confirms")
        assert "Add demo? All of the above takes effect." in terminal.text()
        terminal.send("yes please")  # a sentence is no choice
        terminal.wait_for("This is none of the choices")
        terminal.key("enter")
        terminal.confirm(answer)
        assert terminal.wait_exit() == code
    assert len(json.loads(plugin("list", "--format", "json").stdout)) == (code == 0)


@pytest.mark.slow
@pytest.mark.spec("EXT-5", "UI-10")
def test_where_nothing_is_redrawn_a_line_answers(source: Path, work: Path) -> None:
    env = agent_env(TERM="dumb")
    with Terminal([*AGENT, "plugin", "add", str(source)], env, work, 60, 100) as terminal:
        terminal.wait_for("[y]es / [n]o:")
        terminal.line("perhaps")
        terminal.wait_until(lambda: terminal.text().count("Add demo?") == 2)
        terminal.line("y")
        assert terminal.wait_exit() == 0


@pytest.mark.slow
@pytest.mark.spec("EXT-5")
def test_the_chat_lists_them(source: Path, chat: Chat) -> None:
    terminal = chat()
    terminal.line("/plugins")
    terminal.wait_for("No plugin was added")
    leave(terminal)
    add(str(source))
    terminal = chat()
    terminal.line("/plugins")
    terminal.wait_for(re.compile(r"^demo\b", re.MULTILINE))
    terminal.wait_for("helper")
    leave(terminal)


@pytest.mark.slow
@pytest.mark.spec("EXT-5")
def test_a_book_that_makes_no_sense_stops_nothing(
    model_server: ModelServer, home: Path, work: Path
) -> None:
    book = home / "agentcli/plugins/plugins.json"
    book.parent.mkdir(parents=True)
    mark = "0" * 64
    for text in ("{", f'{{"plugins": [{{"name": "../x", "source": "", "mark": "{mark}"}}, 3]}}'):
        book.write_text(text)
        assert plugin("list").code == 0
    model_server.add("Fine.")
    assert one_shot(model_server, "go", cwd=work).code == 0


@pytest.mark.spec("EXT-5")
def test_no_plugin_is_called_so_that_it_harms_another(source: Path, home: Path) -> None:
    def kept(name: str) -> None:
        (source / ".claude-plugin/plugin.json").write_text(json.dumps({"name": name}))
        with staged(paths, str(source)) as new:
            keep(paths, new)

    paths = Paths(home / "config", home / "data", home / "state")
    kept("demo")
    state = paths.plugins_file.parent / "data" / "demo" / "state"
    state.write_text("mine")
    for name in ("data", "copies", "plugins.json"):
        kept(name)
        assert len(plugin_places(paths)) == 2
        remove(paths, name)
    assert [name for name, root in plugin_places(paths) if root.is_dir()] == ["demo"]
    assert state.read_text() == "mine"


@pytest.mark.slow
@pytest.mark.spec("EXT-5", "SEC-13")
@pytest.mark.parametrize("kind", ["links", "deep", pytest.param("trees", marks=pytest.mark.slow)])
def test_a_repository_that_unfolds_without_end_is_refused(
    source: Path, tmp_path: Path, kind: str
) -> None:
    def put(text: str, *args: str) -> str:
        done = subprocess.run(
            ["git", *args], cwd=source, input=text, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git(source, "init", "-q")
    if kind == "links":  # each of them is a copy of ten megabytes
        (source / "big").write_bytes(bytes(10_000_000))
        for number in range(300):
            (source / f"l{number}").symlink_to("big")
    git(source, "add", "-A")
    blob = put("x", "hash-object", "-w", "--stdin")
    if kind == "deep":
        git(source, "update-index", "--add", "--cacheinfo", f"100644,{blob},{'a/' * 1500}f")
    git(source, "commit", "-qm", "a")
    if kind == "trees":  # ten to the tenth files in a few hundred bytes
        tree = put("".join(f"100644 blob {blob}\tf{at}\n" for at in range(10)), "mktree")
        for _ in range(9):
            tree = put("".join(f"040000 tree {tree}\td{at}\n" for at in range(10)), "mktree")
        git(source, "update-ref", "HEAD", git(source, "commit-tree", tree, "-m", "bomb"))
    done = plugin("validate", source.as_uri(), cwd=tmp_path)
    assert (done.code, done.stderr.count("\n")) == (1, 1), done.stderr[-500:]
    assert "the plugin has more than" in done.stderr


@pytest.mark.spec("SEC-6", "EXT-5")
def test_no_name_in_a_plugin_is_taken_for_a_line_of_ours(source: Path) -> None:
    fake = "It brings nothing that takes effect."
    manifest = {"name": "demo", "version": f"1\n{fake}"}
    (source / ".claude-plugin/plugin.json").write_text(json.dumps(manifest))
    (source / f"commands/a\n{fake}\n--- b.md").write_text("Do it.")
    looked = plugin("add", str(source))
    assert looked.code == 4
    begins = [line for line in looked.stdout.splitlines() if line.startswith((fake, "--- b"))]
    assert not begins, looked.stdout


@pytest.mark.slow
@pytest.mark.spec("SEC-13", "EXT-5")
def test_a_link_of_great_length_is_not_read(source: Path, tmp_path: Path) -> None:
    git(source, "init", "--quiet")
    git(source, "add", "--all")
    long = tmp_path / "long"
    long.write_bytes(b"A" * 40_000_000)
    blob = git(source, "hash-object", "-w", str(long)).strip()
    git(source, "update-index", "--add", "--cacheinfo", f"120000,{blob},link")
    git(source, "commit", "--quiet", "--message", "x")
    tracemalloc.start()
    with staged(Paths.from_env(os.environ), f"file://{source}") as new:
        assert any("link is a link" in notice for notice in new.notices)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 << 20


@pytest.mark.spec("EXT-5", "SEC-5")
def test_no_byte_hides_what_takes_effect(source: Path) -> None:
    script = source / "run.sh"
    script.write_bytes(b"#!/bin/sh\n# \0\xff\nfirst-command\n")
    (source / "commands/ship.md").write_text("\N{GRINNING FACE}" * 200_000 + "\nrest\n")
    (source / "data.bin").write_bytes(b"\0\1")
    shown = plugin("add", str(source))
    assert "first-command" in shown.stdout
    assert "(cut: 800,006 bytes)" in shown.stdout
    assert "(binary, 2 bytes)" in shown.stdout
    plugin("add", str(source), "--yes", shown.stderr.split()[-1])
    script.write_bytes(b"#!/bin/sh\n# \0\xff\nother-command\n")
    (source / "data.bin").chmod(0o755)
    changed = plugin("update", "demo").stdout
    assert "+other-command" in changed
    assert "data.bin (changed, a program by now)" in changed


@pytest.mark.slow
@pytest.mark.spec("EXT-5")
def test_a_plugin_that_has_lost_its_files_says_so_and_is_fetched_again(source: Path) -> None:
    add(str(source))
    (name, root), *_ = plugin_places(Paths.from_env(os.environ))
    shutil.rmtree(root)
    assert "has lost its files" in plugin("list").stdout
    started = run_agent("run", "hi", "-m", "offline/demo", env=agent_env())
    assert started.code == 0
    assert f"the plugin {name} has lost its files" in started.stderr
    mark = plugin("update", name).stderr.split()[-1]
    assert plugin("update", name, "--yes", mark).code == 0
    assert (root / "commands/ship.md").is_file()
