"""Protected places, by every name that leads to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentcli.domain.sandbox import HOME_SECRETS, plain_name
from agentcli.domain.worktrees import is_git_directory
from agentcli.policy import places
from agentcli.policy.bash_syntax import parse_bash
from agentcli.policy.places import (
    CREDENTIAL_NAMES,
    OPEN,
    credential_place,
    credentials_below,
    expanded,
    forms_of,
    moves,
    places_of,
    protected_place,
    seen_words,
    starts_of,
)

PROTECTED = [
    ".git", ".git/config", ".git/hooks/pre-commit", "sub/.git", ".GIT/config", ".Git./config",
    ".git /config", ".g\u200cit/config", "GIT~1/config", ".gitmodules", ".bashrc", ".ZSHRC",
    ".profile", ".envrc", ".env", ".env.local", ".ssh/config", ".aws/credentials", ".netrc",
    ".config/fish/x", ".config/git/config", ".cargo/credentials.toml", ".agents/commands/x.md",
    ".agentcli/config.toml", "deep/.ssh/id_ed25519", "x/../.git/config", "authorized_keys",
    ".husky/pre-commit", "a/.vscode/tasks.json", ".idea/runConfigurations/a.xml", ".exrc",
    ".claude/settings.json", ".zed/tasks.json", ".claude/commands/x.md", ".claude/skills/x/SKILL.md",
    ".local/share/gem/credentials",
    ".local/share/uv/credentials/credentials.toml", ".stack/upload/credentials.json",
]  # fmt: skip
FREE = [
    "src/a.py", ".gitignore", ".github/workflows/x.yml", "git/config", "profile", "env",
    ".env.example", ".env.sample", "config/fish.py", "head", "objects/x", "ssh/x",
    ".vscode/extensions.json", ".claude/rules/x.md", ".idea/misc.xml", "husky/x",
    ".worktrees/hooks/x", ".x/hooks/a", "x/hooks/a", ".github/ISSUE_TEMPLATE/config.yml",
    ".astro/settings.json", "out/.doctrees/commands/x",
]  # fmt: skip


@pytest.mark.spec("SEC-3", "SEC-5")
@pytest.mark.parametrize("name", PROTECTED)
def test_a_protected_place_is_known_by_any_form_of_its_name(name: str, tmp_path: Path) -> None:
    assert protected_place((tmp_path / name,), ())
    assert protected_place((tmp_path / "src/ok.py", tmp_path / name), ())
    assert protected_place((Path(f"/proc/self/root{tmp_path / name}"),), ())
    assert protected_place((Path(f"/proc/1/root{tmp_path / name}"),), ())


@pytest.mark.spec("SEC-6")
def test_what_is_protected_is_named_from_the_hidden_directory_that_it_lies_in(
    tmp_path: Path,
) -> None:
    for name in (".qwen/hooks/start", ".own/mcp.json", ".claude/skills/a/SKILL.md", ".envrc"):
        assert protected_place((tmp_path / "a" / name,), ()) == name
    assert protected_place((tmp_path / ".state/a/b/c/.envrc",), ()) == ".envrc"


@pytest.mark.spec("SEC-3")
def test_whatever_is_a_credential_to_read_is_protected_from_being_written(tmp_path: Path) -> None:
    below = (
        ".codex/auth.json", ".m2/settings.xml", ".config/op/x", ".terraform.d/x", ".env.local",
    )  # fmt: skip
    for name in (*CREDENTIAL_NAMES, *below):
        assert credential_place((tmp_path / name,)) and protected_place((tmp_path / name,), ()), (
            name
        )


@pytest.mark.spec("SEC-13")
def test_below_what_is_not_there_nothing_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Path] = []

    def lexists(path: Path) -> bool:
        looked.append(path)
        return os.access(path, os.F_OK)

    monkeypatch.setattr("os.path.lexists", lexists)
    assert protected_place((tmp_path / ("x/" * 1000),), ()) is None
    assert len(looked) < 100


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("name", FREE)
def test_its_neighbours_are_not(name: str, tmp_path: Path) -> None:
    assert protected_place((tmp_path / name,), ()) is None


@pytest.mark.spec("SEC-3", "SEC-5")
def test_links_are_followed_and_a_protected_name_that_is_a_link_counts(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "alias").symlink_to(".git")
    (tmp_path / "plain").write_text("")
    (tmp_path / ".bashrc").symlink_to("plain")
    assert protected_place((tmp_path / "alias/config",), ())
    assert protected_place((tmp_path / ".bashrc",), ())
    assert protected_place((tmp_path / "plain",), ()) is None


@pytest.mark.spec("SEC-3")
def test_our_own_directories_are_protected_whatever_the_case(tmp_path: Path) -> None:
    own = (tmp_path / "Mine",)
    assert protected_place((tmp_path / "mine/settings.toml",), own) == "agentcli's own directory"
    assert protected_place((tmp_path / "Mine",), own)
    assert protected_place((tmp_path / "Mine2/x",), own) is None


@pytest.mark.spec("SEC-3")
def test_a_repository_s_own_directory_is_known_whatever_its_name(tmp_path: Path) -> None:
    bare = tmp_path / "store"
    for name in ("objects", "refs", "hooks"):
        (bare / name).mkdir(parents=True)
    assert not is_git_directory(bare)
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    assert is_git_directory(bare)
    assert protected_place((bare / "hooks/post-receive",), ())
    assert protected_place((tmp_path / "other",), ()) is None


@pytest.mark.spec("SEC-3", "SEC-17")
@pytest.mark.parametrize(
    "last", [("HEAD",), ("objects", "x"), ("refs", "x", "y"), ("commondir",)], ids="/".join
)
def test_the_file_that_makes_a_directory_a_repository_s_is_protected(
    tmp_path: Path, last: tuple[str, ...]
) -> None:
    made = tmp_path / "b"
    made.mkdir()
    for name in {"HEAD", "objects", "refs"} - {last[0]}:
        (made / name).mkdir()
    if last == ("commondir",):
        (made / "refs").rmdir()
    assert protected_place((made / "config",), ()) is None
    assert protected_place((made.joinpath(*last),), ())
    (made / last[0]).symlink_to("refs/heads/dangling")
    assert protected_place((made / "config",), ())


@pytest.mark.spec("SEC-3", "SEC-17")
def test_a_repository_that_one_call_makes_as_a_whole_is_protected(tmp_path: Path) -> None:
    """One patch may add all of its files, with a configuration that has git run a program."""
    names = ("objects/x", "refs/heads/x", "config")
    made = [tmp_path / "b" / name for name in names]
    assert protected_place(made, ()) is None
    assert protected_place([*made, tmp_path / "b/HEAD"], ())
    assert protected_place([tmp_path / "b/HEAD", tmp_path / "c/objects/x", *made[1:]], ()) is None


@pytest.mark.spec("SEC-5")
def test_what_cannot_be_looked_at_is_still_judged(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert protected_place((tmp_path / "loop/x",), ()) is None
    assert protected_place((tmp_path / ("a" * 300) / "x",), ()) is None
    assert protected_place((Path(os.sep),), ()) is None
    assert plain_name("...") == "..."


HERE = Path("/work")


@pytest.mark.spec("SEC-14", "SEC-5")
@pytest.mark.parametrize(
    ("command", "starts", "is_sure"),
    [
        ("ls", ["/work"], True), ("cd a && ls", ["/work", "/work/a"], True),
        ("cd / && ls", ["/work", "/"], True), ("cd a; cd b", ["/work", "/work/a", "/work/b", "/work/a/b"], True),
        ("cd $X && ls", ["/work"], False), ("cd -", ["/work"], False), ("cd -P a", ["/work", "/work/a"], True),
        ("env -C a ls", ["/work", "/work/a"], True), ("/usr/bin/env --chdir=/ ls", ["/work", "/"], True),
        ("sudo -D $X ls", ["/work"], False), ("env A=b ls", ["/work"], True),
        ("pushd a; popd", ["/work", "/work/a"], True),
    ],
)  # fmt: skip
def test_directories_are_followed(command: str, starts: list[str], *, is_sure: bool) -> None:
    commands = parse_bash(command).commands
    found = starts_of(commands, HERE)
    assert ([str(each) for each in found.directories], found.is_sure) == (starts, is_sure)
    assert moves(commands) is ("cd" in command or "pushd" in command)


def test_cd_alone_leads_home(home: Path) -> None:
    assert home in starts_of(parse_bash("cd").commands, HERE).directories


@pytest.mark.spec("SEC-14")
@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("~/x", "~/x"), ("$HOME/x", "~/x"), ("${HOME}", "~"), ("$PWD", "."), ("*.py", "*.py"),
        ("$HOMER", None), ("$(pwd)", "."), ("${HOME:?}/x", "~/x"), ("${HOME:+x}", None), ("`x`", None), ("${X}", None),
    ],
)  # fmt: skip
def test_what_is_surely_expanded_is(source: str, seen: str | None) -> None:
    assert expanded(source) == seen
    assert seen_words(parse_bash(f"A=1 rm -rf {source}").commands[0])[-1] in {seen, None}


@pytest.mark.spec("SEC-14")
def test_what_braces_make_of_a_word_are_words() -> None:
    (command,) = parse_bash("rm {-rf,a}.b $X '{c,d}'").commands
    assert seen_words(command) == ("rm", "-rf.b", "a.b", None, "{c,d}")
    assert expanded("x!(y)") is None


@pytest.mark.spec("SEC-14", "SEC-5")
def test_names_lead_to_paths(home: Path) -> None:
    def of(name: str) -> list[str]:
        return [str(path) for path in places_of(name, [HERE])]

    assert of("a{b,c}") == ["/work/ab", "/work/ac"]
    assert of("~/x") == [f"{home}/x"]
    assert of("~nobody-of-that-name/x") == ["/work/~nobody-of-that-name/x"]
    assert of("/proc/self/cwd/x") == ["/work/x"]
    assert of("/proc/12/root/etc") == ["/etc"]
    assert of("{a,b}" * 20) == ["/work/" + "*" * 20, "/work/." + "*" * 20]


@pytest.mark.spec("SEC-3", "SEC-14")
def test_a_directory_with_a_backslash_is_a_directory() -> None:
    odd = Path("/w/a\\1\\")
    assert list(places_of("/proc/self/cwd/x", [odd])) == [odd / "x"]
    assert list(places_of("x", [odd])) == [odd / "x"]


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("source", "forms"),
    [
        ("$f/.env", ("a/.env", "b/.env")), ('"${f}$f"', ("aa", "ab", "ba", "bb")),
        ("${x:-.env}", (OPEN, ".env")), ("${f%x}", (OPEN,)), ("${!f}", (OPEN,)), ("`a`", (OPEN,)),
        (".@(env)", (f".{OPEN}",)), (".{e..f}nv", (f".{OPEN}nv",)), ("$(ls)/x", (f"{OPEN}/x",)),
        ("'a'$'\\x65'\\b", ("aeb",)), ('"$PWD/$HOME"', ("./~",)), ("x$((1+2))", (f"x{OPEN}",)),
        ("$(a (b (c (d))))", (OPEN,)), ("*.py", ("*.py",)), ("${x", (OPEN,)), ("a'b", (OPEN,)),
    ],
)  # fmt: skip
def test_a_word_is_told_in_every_form_that_it_may_have(source: str, forms: tuple[str, ...]) -> None:
    assert forms_of(source, {"f": ("a", "b")}) == forms


@pytest.mark.spec("SEC-3")
def test_what_the_sandbox_hides_of_a_home_is_read_and_written_by_asking_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".kaggle").mkdir(parents=True)
    (home / ".kaggle/kaggle.json").touch()
    (tmp_path / "link").symlink_to(home)
    for named in (home, tmp_path / "link"):
        monkeypatch.setenv("HOME", str(named))
        for name in HOME_SECRETS:
            for path in (home / name, home / name / "below", tmp_path / "link" / name.upper()):
                assert credential_place((path,)), path
                assert protected_place((path,), ()), path
        assert credential_place((home / "work/../.vnc/passwd",))
        assert list(credentials_below(home)) == [home / ".kaggle"]
        for path in (home / ".config", home / "src/.wrangler/state", tmp_path / ".kaggle"):
            assert not credential_place((path,)), path


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    "name",
    [
        ".config/Bitwarden/data.json", ".config/filezilla/sitemanager.xml", ".dbt/profiles.yml",
        ".config/solana/id.json", ".snowsql/config", ".aliyun/config.json", ".tsh/keys/host/me",
        ".config/helm/registry/config.json", ".config/syncthing/key.pem", ".android/adbkey",
        ".Xauthority", ".erlang.cookie", ".config/remmina/a.remmina", ".sqlite_history",
        ".yarnrc.yml", ".aider.conf.yml", ".continue/config.json", ".cursor/mcp.json", ".muttrc",
        ".config/Cursor/User/globalStorage/state.vscdb", ".Renviron", ".ivy2/.credentials",
        ".config/helm/repositories.yaml", ".local/share/jupyter/runtime/jpserver-1.json",
        ".config/fish/fish_variables", ".copilot/config.json", ".vault_pass.txt",
        ".influxdbv2/configs", ".twilio-cli/config.json",
        ".cache/huggingface/stored_tokens", ".passwd-s3fs", ".bash_eternal_history", ".zhistory",
        ".local/state/zsh/history", ".local/share/zsh/history", ".augment/session.json",
        ".gitlab-runner/config.toml",
    ],
)  # fmt: skip
def test_what_less_known_programs_keep_in_a_home_is_read_by_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert credential_place((tmp_path / name,))
    assert not credential_place((tmp_path / "work" / name,))


@pytest.mark.spec("SEC-3")
def test_stores_of_keys_are_credentials_wherever_they_lie() -> None:
    for name in (
        "a/b/mine.kdbx",
        "x.ppk",
        "ios/dist.p12",
        "cert.PFX",
        ".dev.vars",
        ".dev.vars.production",
        "config/master.key",
        ".env~",
        ".secrets.toml",
        ".sentryclirc",
        "app/.streamlit/secrets.toml",
    ):
        assert credential_place((Path("/w", name),)), name
    plain = ("a/b/cert.pem", "talk.key", "master.key", "kdbx", "config/app.key", "secrets.toml")
    for name in (*plain, ".dev.vars.example"):
        assert not credential_place((Path("/w", name),)), name


@pytest.mark.spec("SEC-3")
def test_keys_in_a_home_are_read_by_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("prod.pem", "keys/server.key", "AuthKey.P8"):
        assert credential_place((tmp_path / name,)), name
        assert not credential_place((tmp_path / "src" / "work" / name,)), name


@pytest.mark.spec("SEC-3")
def test_logins_and_keys_in_hidden_directories_of_a_home_are_known_by_their_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    held = (
        ".local/share/opencode/auth.json", ".pi/agent/auth.json", ".qwen/oauth_creds.json",
        ".any/token", ".config/any/Access_Token.txt", ".cache/any/api-key", ".any/keys.toml",
    )  # fmt: skip
    for name in held:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        assert credential_place((tmp_path / name,)), name
    assert set(credentials_below(tmp_path)) == {tmp_path / name for name in held}
    for name in ("auth.json", "src/auth.json", ".any/settings.json", ".a/b/c/d/auth.json", ".any"):
        assert not credential_place((tmp_path / name,)), name
    assert not credential_place((tmp_path.parent / ".any/auth.json",))


@pytest.mark.spec("SEC-3")
def test_a_look_that_is_kept_sees_every_change(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "SETTLED_NS", -1)  # as if all were old
    deep = tmp_path / "a/b/c"
    probe = tmp_path_factory.mktemp("clock")

    def go_on() -> None:
        """Until the clock of the file system does."""
        last = max(deep.stat().st_ctime_ns, tmp_path.stat().st_ctime_ns)
        while probe.stat().st_ctime_ns <= last:
            os.utime(probe)

    deep.mkdir(parents=True)
    (deep / "f").touch()
    (tmp_path / "link").symlink_to("a/b/c/f")
    (tmp_path / "token").symlink_to("a/b/c/f")
    assert [*credentials_below(tmp_path)] == []
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", None)  # nothing is read again
        assert [*credentials_below(tmp_path)] == []
    go_on()
    (deep / ".env").touch()
    (deep / "f").rename(deep / "id_rsa")
    (deep / "f").symlink_to("id_rsa")
    assert {*credentials_below(tmp_path)} == {
        tmp_path / "link", tmp_path / "token", deep / ".env", deep / "id_rsa", deep / "f",
    }  # fmt: skip
    go_on()
    (deep / ".env").unlink()
    (tmp_path / "a").rename(tmp_path / "z")
    assert {*credentials_below(tmp_path)} == {tmp_path / "z/b/c/f", tmp_path / "z/b/c/id_rsa"}


@pytest.mark.spec("SEC-3", "SEC-9")
def test_our_own_keys_are_read_by_asking_alone_wherever_our_directory_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "cache/of-agents"
    own.mkdir(parents=True)
    (tmp_path / "link").symlink_to(own)
    (own / "seal.key").touch()
    for name in ("credentials.json", "seal.key", "mcp-logins/x.json", "mcp.json", "config.toml"):
        assert not credential_place((tmp_path / "other" / name,))
        for named in (own, tmp_path / "link"):
            monkeypatch.setenv("AGENTCLI_HOME", str(named))
            assert credential_place((own / name, tmp_path / "a")), name
            assert credential_place((tmp_path / "link" / name,)), name
    assert list(credentials_below(tmp_path / "cache")) == [own / "seal.key"]
    assert not credential_place((own / "memory/x.md", own / "deeper/mcp.json"))
    monkeypatch.delenv("AGENTCLI_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    assert credential_place((tmp_path / "settings/agentcli/config.toml",))
    assert not credential_place((tmp_path / "agentcli/config.toml",))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", "settings")
    assert credential_place((tmp_path / ".config/agentcli/config.toml",))
