"""The user's settings are kept in a repository, to which links at home lead: it is worked in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.one_shot import one_shot
from tests.support.model_server import ModelServer
from tests.support.replies import call
from tests.support.repositories import git
from tests.support.sandboxes import BOTH, needs
from tests.support.wire_facts import facts_of

FILES = {
    "zshrc": "# mine\n",
    "vimrc": "set nu\n",
    "gitconfig": "[user]\n\tname = A\n\temail = a@example.org\n"
    "[core]\n\thooksPath = ~/.githooks\n[include]\n\tpath = ~/dotfiles/more\n",
    "more": "[alias]\n\tst = status\n",
    "githooks/pre-commit": "#!/bin/sh\necho checked\n",
    "sshconfig": "Host x\n",
    "gpgagent": "default-cache-ttl 9\n",
    "fish/config.fish": "# mine\n",
    "nvim/init.lua": "-- mine\n",
    "kitty.conf": "# mine\n",
    "tmux.conf": "# mine\n",
    "notes": "mine\n",
}
LINKS = {
    ".zshrc": "dotfiles/zshrc",
    ".vimrc": "dotfiles/vimrc",
    ".gitconfig": "dotfiles/gitconfig",
    ".githooks": "dotfiles/githooks",
    ".ssh/config": "../dotfiles/sshconfig",
    ".gnupg/gpg-agent.conf": "../dotfiles/gpgagent",
    ".config/fish/config.fish": "../../dotfiles/fish/config.fish",
    ".config/nvim": "../dotfiles/nvim",
    ".config/kitty/kitty.conf": "../../dotfiles/kitty.conf",
    ".tmux.conf": "dotfiles/tmux.conf",
    ".dotfiles": "dotfiles",
    "notes": "dotfiles/notes",
}
EVIL = "[core]\n\tfsmonitor = touch evil\n"
ATTACK = f"""
for f in */* [fgkmntvz]* sshconfig; do printf '{EVIL}' > $f; done 2>/dev/null
for f in githooks/post-commit githooks/pre-push; do echo '#!/bin/sh' > $f; chmod +x $f; done
"""


@pytest.fixture
def dotfiles(home: Path) -> Path:
    root = home / "dotfiles"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "githooks/pre-commit").chmod(0o700)
    for name, target in LINKS.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).symlink_to(target)
    git(root, "init", "-q")
    return root


@pytest.mark.spec("SEC-3", "SEC-17")
@pytest.mark.parametrize("kind", BOTH)
def test_no_command_changes_what_takes_effect_at_home(
    model_server: ModelServer, dotfiles: Path, kind: str
) -> None:
    needs(kind)
    commit = "git add -A && git commit -qm first && git log --format='%s by %an'"
    (dotfiles / "attack.sh").write_text(ATTACK)
    commands = (commit, "sh attack.sh")
    model_server.add(*(call("bash", {"command": each}) for each in commands), "Done.")
    auto = ("--permission-mode", "auto", "--sandbox", kind)
    one_shot(model_server, *auto, "go", cwd=dotfiles)
    (committed, *_) = facts_of(model_server.requests[-1]).results.values()
    assert "checked\nfirst by A\n" in committed
    left = {name: (dotfiles / name).read_text() for name in FILES}
    assert left.pop("notes") == EVIL
    assert left == {name: text for name, text in FILES.items() if name != "notes"}
    assert {path.name for path in (dotfiles / "githooks").iterdir() if path.stat().st_mode & 1} <= {
        "pre-commit"
    }


@pytest.mark.spec("SEC-3")
def test_no_tool_edits_what_takes_effect_at_home_unasked(
    model_server: ModelServer, dotfiles: Path
) -> None:
    model_server.add(
        *(call("write_file", {"path": name, "content": "evil\n"}) for name in FILES),
        call("write_file", {"path": "new", "content": "mine\n"}),
        "Done.",
    )
    one_shot(model_server, "--permission-mode", "accept-edits", "go", cwd=dotfiles)
    told = facts_of(model_server.requests[-1]).results.values()
    assert any("zshrc (your " in text and "is protected" in text for text in told)
    left = {name: (dotfiles / name).read_text() for name in FILES}
    assert left == {**FILES, "notes": left["notes"]}
    assert (dotfiles / "new").exists()


@pytest.mark.spec("SEC-3", "SEC-17")
def test_yolo_asks_about_a_command_that_says_it_writes_what_others_run(
    model_server: ModelServer, dotfiles: Path
) -> None:
    names = ("zshrc", "githooks/pre-commit", "githooks/pre-push", "more", "notes")
    commands = (f"echo evil >> {name}" for name in names)
    model_server.add(*(call("bash", {"command": each}) for each in commands), "Done.")
    one_shot(model_server, "--yolo", "go", cwd=dotfiles)
    *told, free = facts_of(model_server.requests[-1]).results.values()
    assert all("is protected" in text for text in told), told
    assert "exit code 0" in free
    assert {name: (dotfiles / name).read_text() for name in FILES} == {
        **FILES,
        "notes": "mine\nevil\n",
    }
    assert not (dotfiles / "githooks/pre-push").exists()


@pytest.mark.spec("SEC-3", "SEC-17")
@pytest.mark.parametrize("way", ["directory", "files"])
def test_what_agents_obey_in_every_project_is_protected_behind_links_at_home(
    model_server: ModelServer, home: Path, way: str
) -> None:
    """The user's hooks, skills, agents and commands: they take effect unasked, and outside."""
    needs("bwrap")
    root, own = home / "dotfiles", home / ".claude"
    (root / "claude/agents").mkdir(parents=True)
    (root / "claude/settings.json").write_text("{}")
    git(root, "init", "-q")
    names = ["claude/settings.json", "claude/agents/x.md"]
    if way == "directory":
        own.symlink_to("dotfiles/claude")
        names.append("claude/skills/x/SKILL.md")
    else:
        own.mkdir()
        (own / "agents").symlink_to("../dotfiles/claude/agents")
        (own / "settings.json").symlink_to("../dotfiles/claude/settings.json")
    (root / "write.sh").write_text(
        f"for f in {' '.join(names)} out; do mkdir -p $(dirname $f); echo evil > $f; done\n"
    )
    edits = [call("write_file", {"path": name, "content": "evil\n"}) for name in names]
    model_server.add(call("bash", {"command": "sh write.sh"}), *edits, "Done.")
    one_shot(model_server, "--permission-mode", "auto", "--sandbox", "bwrap", "go", cwd=root)
    told = [*facts_of(model_server.requests[-1]).results.values()][1:]
    assert len(told) == len(names) and all("approval" in text for text in told), told
    changed = [n for n in names if (root / n).exists() and "evil" in (root / n).read_text()]
    assert (root / "out").exists() and not changed
