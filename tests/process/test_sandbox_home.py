"""What commands see of the home directory: a list, in any shape that a home takes."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentcli.domain.sandbox import Access, Confined
from agentcli.policy.places import credentials_below
from agentcli.process import sandbox_home
from agentcli.process.sandbox_places import OwnPlaces
from agentcli.process.sandbox_setup import takes_open_files
from tests.support.sandboxes import BOTH, Sandboxed, told

pytestmark = pytest.mark.sampled

both = pytest.mark.parametrize("kind", BOTH)
CANARY = "canary-91b2"
NOT_LISTED = (
    ".ssh/id_rsa", ".m2/settings.xml", ".boto", ".s3cfg", ".claude.json", ".cargo/credentials.toml",
    ".gradle/gradle.properties", "other/.env", "other/main.py", ".config/anything/token", "notes",
    ".local/share/keyrings/login", ".cache/huggingface/token", ".hex/hex.config", "go/src/p/a.go",
    ".local/share/uv/credentials/credentials.toml", ".local/share/gem/credentials",
    ".stack/upload/credentials.json", ".dotnet/corefx/cryptography/x509stores/my/a.pfx",
)  # fmt: skip
LISTED = (
    ".rustup/settings.toml", ".cargo/registry/index", ".pyenv/version", ".nvm/nvm.sh",
    "go/pkg/mod/cache/x", ".local/bin/tool", ".local/share/uv/python/x", ".m2/repository/a.jar",
    ".sdkman/candidates/java/x", ".npm/_cacache/x", ".tool-versions", ".stack/programs/ghc",
    ".local/share/gem/ruby/3.3/x", ".dotnet/sdk/x",
)  # fmt: skip


def fill(home: Path, names: tuple[str, ...], text: str) -> None:
    for name in names:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def seen(home: Path, env: dict[str, str] | None = None, *added: Path) -> set[str]:
    """What is listed, named from ``home``."""
    found = sandbox_home.seen(home, (home,), env or {}, added)
    return {str(path.relative_to(home)) for path in found}


# --- the list --------------------------------------------------------------------------------


@pytest.mark.spec("SEC-18")
def test_toolchains_and_caches_are_listed_and_nothing_else(home: Path) -> None:
    fill(home, LISTED, "tool")
    fill(home, NOT_LISTED, CANARY)
    paths = [home / name for name in sorted(seen(home))]
    for name in LISTED:
        assert any((home / name).is_relative_to(path) for path in paths), name
    for name in NOT_LISTED:
        assert not any((home / name).is_relative_to(path) for path in paths), name


@pytest.mark.spec("SEC-18")
def test_programs_of_path_are_listed_with_what_belongs_to_them(home: Path) -> None:
    fill(home, ("opt/tool/bin/t", "opt/tool/lib/t.so", "opt/tool/.env", "bin/mine"), "x")
    fill(home, ("apps/real/run", "apps/real/secret", "opt/python/bin/python3"), "x")
    fill(home, ("venv/bin/pip", "opt/python/lib/os.py"), "x")
    (home / "venv" / "pyvenv.cfg").write_text(f"home = {home}/opt/python/bin\nversion = 3\n")
    (home / "bin" / "link").symlink_to(home / "apps" / "real" / "run")
    entries = (home / "opt" / "tool" / "bin", home / "bin", home / "venv" / "bin")
    path = ":".join((*map(str, entries), "relative", "", str(home)))
    assert seen(home, {"PATH": path}) == {
        "opt/tool/bin", "opt/tool/lib", "bin", "apps/real/run", "venv/bin", "venv/pyvenv.cfg",
        "opt/python/bin", "opt/python/lib",
    }  # fmt: skip


@pytest.mark.spec("SEC-18")
def test_what_another_project_is_deployed_with_is_not_listed_for_its_programs(home: Path) -> None:
    fill(home, ("app/bin/run", "app/lib/a", "app/conf/app.conf", "app/shared/master.key"), "x")
    env = {"PATH": str(home / "app" / "bin")}
    assert seen(home, env) == {"app/bin", "app/lib", "app/conf", "app/shared"}
    fill(home, ("app/.git/HEAD", "app/pyvenv.cfg", "app/main.py"), "x")
    env["VIRTUAL_ENV"] = str(home / "app")  # made there
    assert seen(home, env) == {"app/bin", "app/lib", "app/pyvenv.cfg"}


@pytest.mark.spec("SEC-18")
def test_what_stands_beside_programs_in_another_home_is_not_listed(home: Path) -> None:
    fill(home, ("user/.local/bin/tool", "user/.local/share/app/token"), "x")
    assert seen(home, {"PATH": str(home / "user" / ".local" / "bin")}) == {"user/.local/bin"}


@pytest.mark.spec("SEC-18")
def test_no_variable_lists_a_whole_home_or_cargos_credentials(home: Path) -> None:
    fill(home, ("cargo/credentials.toml", "cargo/bin/c", "jdk/bin/java"), "x")
    env = {"CARGO_HOME": str(home / "cargo"), "GOROOT": str(home), "JAVA_HOME": str(home / "jdk")}
    assert seen(home, {**env, "NVM_DIR": str(home.parent)}) == {"cargo/bin", "jdk"}


@pytest.mark.spec("SEC-18")
def test_a_tools_configuration_is_listed_unless_it_holds_a_credential(home: Path) -> None:
    fill(home, (".config/mise/config.toml",), '[tools]\nnode = "22"')
    fill(home, (".gem/credentials", ".gem/gems/a"), "x")
    env = {"GEM_HOME": str(home / ".gem"), "MISE_CONFIG_DIR": str(home / ".config/mise")}
    assert seen(home, env) == {".config/mise/config.toml", ".gem/gems"}
    fill(home, (".config/mise/config.toml",), f'[env]\nX_TOKEN = "{CANARY}"')
    fill(home, (".condarc",), f"channels:\n- https://x.com/t/tk-{CANARY}/main")
    assert seen(home, env) == {".gem/gems"}


@pytest.mark.spec("SEC-18")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".config/mise/config.toml", f'[env]\nENCRYPTION_KEY = "{CANARY}"'),
        (".config/mise/config.toml", f"env = {{'DB_PWD'='{CANARY}'}}"),
        (".config/mise/config.toml", '[env]\nSTRIPE = "sk_live_51HqZzKxYwVuTsRqPoNmLkJi"'),
        (".cargo/config.toml", '[env]\nMODEL = "sk-proj-Zk3mQ8vR2tY7wX1nB5cL9dF4"'),
        (".config/go/env", "GOFLAGS=-ldflags=-X=main.id=AKIAQ7ZPLM3N8R2TVXWY"),
        (".yarnrc", f'"//npm.example.org/:_auth" "{CANARY}"'),
    ],
)
def test_a_key_is_known_by_its_form_and_by_what_a_variable_is_called(
    home: Path, name: str, text: str
) -> None:
    fill(home, (name,), text)
    assert seen(home) == set()


@pytest.mark.spec("SEC-18")
def test_what_signs_and_sorts_is_no_credential(home: Path) -> None:
    fill(home, (".config/jj/config.toml",), '[signing]\nkey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"')
    (home / ".gitconfig").write_text(f"{GIT}\tsigningKey = 0A46826A973F45C5\n")
    fill(home, (".config/mise/config.toml",), '[settings]\npublic_keys = ["task-sk-runner"]')
    names = {".gitconfig", ".config/jj/config.toml", ".config/mise/config.toml"}
    assert seen(home) == names
    assert sandbox_home.git_configuration(home) is None


@pytest.mark.spec("SEC-18")
def test_gits_configuration_is_listed_unless_it_holds_a_credential(home: Path) -> None:
    (home / ".gitconfig").write_text(
        "[user]\n\tname = A\n[include]\n\tpath = ~/.gitconfig-work\n[core]\n\texcludesFile = ~/ign\n"
    )
    fill(home, (".gitconfig-work", "ign"), "# plain")
    assert seen(home) == {".gitconfig", ".gitconfig-work", "ign"}
    within_another = sandbox_home.seen(home, (home.parent,), {})
    assert home / ".gitconfig" in within_another
    assert sandbox_home.git_configuration(home) is None
    with (home / ".gitconfig").open("a") as file:
        file.write(f'[url "https://me:{CANARY}@host/"]\n\tinsteadOf = https://host/\n')
        file.write(f"[http]\n\textraHeader = Authorization: {CANARY}\n")
        file.write(f"[sendemail]\n\tsmtpPass = {CANARY}\n[imap]\n\tpass=\\\n{CANARY}\\\n{CANARY}\n")
        file.write(f"[alias]\n\tl = !curl -H 'Authorization: Bearer {CANARY}' x\n")
        file.write(f'[url "https://{CANARY}0123456789abcdef@host/"]\n\tinsteadOf = gh:\n')
    assert ".gitconfig" not in seen(home)
    copy = sandbox_home.git_configuration(home)
    assert copy is not None
    assert b"name = A" in copy
    assert CANARY.encode() not in copy


@pytest.mark.spec("SEC-18")
def test_what_is_said_for_an_address_with_a_key_holds_for_no_other_one(home: Path) -> None:
    (home / ".gitconfig").write_text(
        f'[http]\n\tproxy = x\n[http "https://me:{CANARY}@host/"]\n\tsslVerify = false\n'
    )
    copy = home / "copy"
    copy.write_bytes(sandbox_home.git_configuration(home) or b"")
    listed = subprocess.run(
        ["git", "config", "--list", "--file", copy], capture_output=True, text=True, check=True
    )
    assert listed.stdout.splitlines() == ["http.proxy=x", "withheld.sslverify=false"]


@pytest.mark.spec("SEC-7", "SEC-18")
@pytest.mark.skipif(os.getuid() != 0, reason="root alone sees what others have shut")
def test_what_another_user_has_shut_is_not_listed(tmp_path: Path) -> None:
    """Root sees it, bubblewrap does not get there, and would not start at all."""
    other = tmp_path / "other"
    fill(other, (".local/share/mise/a", ".cargo/bin/c"), "x")
    for each in (other, *other.rglob("*")):
        os.chown(each, 4711, 4711)
    (other / ".local/share").chmod(0o700)
    assert sandbox_home.seen(tmp_path / "none", (other,), {}) == (other / ".cargo/bin",)


GIT = "[user]\n\tname = A\n"


@both
@pytest.mark.spec("SEC-18")
@pytest.mark.parametrize(
    "files",
    [
        {".config/git/ignore": "secrets.yml\n"},
        {".gitconfig": f"{GIT}[core]\n\texcludesFile = ~/rules\n", "rules": "*.token\n"},
        {".gitconfig": f"{GIT}[core]\n\texcludesFile = ~/rules\n", "rules": ""},
        {".gitconfig": f"{GIT}[include]\n\tpath = more\n", "more": "[x]\n\ty = 1\n"},
        {".gitconfig": f"{GIT}[include]\n\tpath = ~/more\n", "more": f"[x]\n\ttoken = {CANARY}\n"},
        {
            ".gitconfig": f"{GIT}[include]\n\tpath = more\n",
            "more": "[include]\n\tpath = last\n",
            "last": "[x]\n\ty = 1\n",
        },
        {
            ".gitconfig": f"{GIT}[include]\n\tpath = ~/more\n[x]\n\ttoken = {CANARY}\n",
            "more": "[include]\n\tpath = last\n",
            "last": f"[x]\n\ttoken = {CANARY}\n",
        },
    ],
)
def test_git_works_whatever_the_users_configuration_names(
    home: Path, tmp_path: Path, kind: str, files: dict[str, str]
) -> None:
    """What is there and cannot be read would have it fail, where Landlock hides it."""
    work = tmp_path / "work"
    work.mkdir()
    for name, text in files.items():
        fill(home, (name,), text)
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    (status,) = told(work, "git status && git config --list", kind=kind)
    assert "No commits yet" in status and "exit code 0" in status, status
    assert ("user.name=A" in status) == (".gitconfig" in files)
    assert ("x.y=1" in status) == any("y = 1" in text for text in files.values())
    assert CANARY not in status


@pytest.mark.spec("SEC-18")
def test_a_home_that_is_worked_in_or_holds_the_system_is_no_list(
    home: Path, tmp_path: Path
) -> None:
    own = set(sandbox_home.homes(tmp_path / "none", []))  # the account's

    def found(place: Path, *work: Path) -> set[Path]:
        return set(sandbox_home.homes(place, work)) - own

    assert found(home, home / "work") == {home}
    assert found(home, home) == set()
    assert found(home, home.parent) == set()
    assert found(Path("/")) == set()
    (tmp_path / "link").symlink_to(home)
    assert found(tmp_path / "link") == {home}


# --- in a real sandbox -----------------------------------------------------------------------


@both
@pytest.mark.spec("SEC-18")
@pytest.mark.parametrize("at", ["in the home", "beside it"])
def test_of_the_home_directory_commands_read_the_list_alone(
    home: Path, tmp_path: Path, kind: str, at: str
) -> None:
    work = home / "code" / "mine" if at == "in the home" else tmp_path / "mine"
    fill(home, NOT_LISTED, CANARY)
    fill(home, LISTED, "tool")
    fill(work, ("a", ".env"), "mine")
    told_of = told(
        work,
        " ".join(("cat", *(f"'{home}/{name}'" for name in NOT_LISTED))),
        f"cat {home}/* {home}/*/* {home}/.*/* {home}/.*/*/*; ls -la {home} {home}/other",
        " ".join(("cat", *(f"'{home}/{name}'" for name in LISTED), "a", ".env")),
        f"echo x > {home}/new; echo x > {home}/.local/bin/tool; mkdir {home}/d; echo y > b; cat b",
        kind=kind,
    )
    assert CANARY not in "".join(told_of)
    assert "main.py" not in told_of[1]
    assert told_of[2].count("tool\n") == len(LISTED)
    assert told_of[2].count("mine\n") == 2
    assert not (home / "new").exists()
    assert not (home / "d").exists()
    assert (home / ".local" / "bin" / "tool").read_text() == "tool\n"
    assert (work / "b").read_text() == "y\n"


@both
@pytest.mark.spec("SEC-18")
def test_programs_of_the_users_path_run(
    home: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, venv = home / "work", home / "tools" / "venv"
    work.mkdir()
    python = os.path.realpath(sys.executable)
    subprocess.run([python, "-m", "venv", "--without-pip", str(venv)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "mine.py").write_text("print('of mine')")
    monkeypatch.setenv("PATH", f"{venv}/bin:/usr/local/bin:/usr/bin:/bin")
    (text,) = told(work, "git --version && command -v python && python -c 'import mine'", kind=kind)
    assert text.startswith("git version")
    assert f"{venv}/bin/python\nof mine\n" in text


@both
@pytest.mark.spec("SEC-18")
def test_a_linked_worktree_and_git_without_credentials_work(home: Path, kind: str) -> None:
    (home / ".gitconfig").write_text(
        "[user]\n\tname = A\n\temail = a@example.org\n[credential]\n\thelper = store\n"
        f"[http]\n\textraHeader = {CANARY}\n"
    )
    main, tree = home / "main", home / "trees" / "one"
    subprocess.run(["git", "init", "-q", str(main)], check=True)
    subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "first"], check=True, cwd=main)
    subprocess.run(["git", "worktree", "add", "-q", str(tree)], check=True, cwd=main)
    (main / "secret").write_text(CANARY)
    texts = told(
        tree,
        "echo 1 > f && git add f && git commit -qm second && git log --format='%s by %an'",
        f"git config --list --show-origin; cat ~/.gitconfig {main}/secret",
        kind=kind,
    )
    assert texts[0].startswith("second by A\nfirst by A\n"), texts
    assert CANARY not in texts[1]


@both
@pytest.mark.spec("SEC-4", "SEC-18")
@pytest.mark.parametrize("part", ["packages/api", "modules/lib", "modules/lib/src"])
def test_git_works_in_a_part_of_a_repository_and_in_a_module_of_one(
    home: Path, kind: str, part: str
) -> None:
    """What lies around the workspace is read, but for credentials, and never changed."""
    mono, where = home / "mono", home / "mono" / part
    fill(mono, ("packages/api/a", "packages/other/b", ".npmrc", ".env"), "x")
    fill(home, ("elsewhere/secret",), CANARY)
    fill(home / "lib", ("src/c",), "x")
    identity = ("-c", "user.name=A", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    module = ("submodule", "--quiet", "add", str(home / "lib"), "modules/lib")
    for place in (home / "lib", mono):
        for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
            subprocess.run(["git", *identity, *words], check=True, cwd=place)
    subprocess.run(["git", *identity, *module], check=True, cwd=mono)
    fill(mono, (".env.local", "packages/other/.env"), CANARY)
    (where / "new").write_text("new")

    async def run() -> None:
        own = OwnPlaces(credentials=credentials_below)
        async with Sandboxed(where, kind, own=own) as inside:
            for access in (Access.READ_ONLY, Access.INSIDE):
                status = "git log --format=%s && git status --short && git diff --stat"
                log = await inside.with_access(access, status)
                assert log.startswith("first\n") and "exit code 0" in log and "a |" not in log, log
                assert "?? new\n" in log and "warning" not in log, log
                assert (part[0] == "m") is ("?? ../../.env.local" not in log), log
                names = "../other/b ../../.npmrc ../../.env ../../.env.local ../other/.env"
                read = await inside.with_access(access, f"cat {names} {home}/elsewhere/secret")
                is_read = read.startswith("x\nx\nx\n")
                assert CANARY not in read and is_read is (part[0] == "p"), read
            written = await inside.say("echo y > ../other/b; git config x.y z; git status --short")
            assert (part[0] == "p") is ("A  ../../modules/lib" in written), written

    asyncio.run(run())
    assert (mono / "packages/other/b").read_text() == "x\n"
    assert all(b"y = z" not in path.read_bytes() for path in mono.glob("**/config"))


@both
@pytest.mark.spec("SEC-18")
def test_another_repository_in_the_one_around_is_not_shown(
    home: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git does not read it: it is another project, wherever that was cloned.

    But for what is seen for another reason.
    """
    top = home / "top"
    fill(top, ("clones/other/bin/tool",), "#!/bin/sh\necho ours")
    (top / "clones/other/bin/tool").chmod(0o755)
    monkeypatch.setenv("PATH", f"{top}/clones/other/bin:{os.environ['PATH']}")
    fill(top, ("notes/a", "clones/other/deep/secret", "clones/tree/secret"), CANARY)
    fill(top, (".gitignore",), "/clones/")
    identity = ("-c", "user.name=A", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    for place, *words in (
        (top, "init", "-q"),
        (top, "add", "."),
        (top, "commit", "-qm", "first"),
        (top, "worktree", "add", "-q", "linked"),
        (top / "clones/other", "init", "-q"),
    ):
        subprocess.run(["git", *identity, *words], check=True, cwd=place)
    (top / "clones/tree/.git").write_text(f"gitdir: {top}/clones/other/.git\n")
    own = OwnPlaces(credentials=credentials_below)
    look = "tool; cat ../clones/*/deep/secret ../clones/*/secret; git status --short; ls ../linked"
    (said,) = told(top / "notes", look, kind=kind, own=own)
    assert (
        CANARY not in said and "ours\n" in said and "notes\n" in said and "?? ../linked/\n" in said
    ), said


@both
@pytest.mark.spec("SEC-18")
def test_no_git_file_or_repository_around_a_home_shows_what_lies_there(
    home: Path, kind: str
) -> None:
    other, work = home / "other", home / "work" / "sub"
    fill(home, ("work/sub/a", "other/secret", "notes"), CANARY)
    for place in (other, home):
        subprocess.run(["git", "init", "-q"], check=True, cwd=place)
    (work / ".git").write_text(f"gitdir: {other}/.git\n")
    for _ in range(2):
        (said,) = told(work, f"cat {other}/secret {other}/.git/config ../../notes", kind=kind)
        assert CANARY not in said and "repositoryformat" not in said, said
        (work / ".git").unlink(missing_ok=True)


@both
@pytest.mark.spec("SEC-17", "SEC-18")
@pytest.mark.parametrize("name", ["~/.githooks", "~/linked"])
def test_hooks_of_the_users_own_run_for_a_commit_and_stay_as_they_are(
    home: Path, tmp_path: Path, kind: str, name: str
) -> None:
    """Git takes hooks that it cannot see for none; those that it cannot run end the commit."""
    (home / ".gitconfig").write_text(
        f"{GIT}\temail = a@example.org\n[core]\n\thooksPath = {name}\n[x]\n\ttoken = {CANARY}\n"
    )
    hook = home / ".githooks" / "pre-commit"
    fill(home, (".githooks/pre-commit",), "#!/bin/sh\necho checked")
    hook.chmod(0o700)
    (home / "linked").symlink_to(".githooks")
    subprocess.run(["git", "init", "-q", str(tmp_path / "work")], check=True)
    committed, written = told(
        tmp_path / "work",
        "git commit -q --allow-empty -m first && git log --format='%s by %an'",
        f"sh -c 'echo x > {hook}'; python3 -c 'open(\"{hook}\", \"w\")'; ls {home}/.githooks",
        kind=kind,
    )
    assert committed.startswith("checked\nfirst by A\n"), committed
    assert "pre-commit\n" in written
    assert hook.read_text() == "#!/bin/sh\necho checked\n"


@both
@pytest.mark.spec("SEC-18")
@pytest.mark.parametrize("access", [Access.INSIDE, Access.READ_ONLY])
def test_what_is_listed_has_its_name_also_where_that_is_a_link(
    home: Path, tmp_path: Path, kind: str, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``stow`` and its kind make them: a commit has its author, what is ignored stays out."""
    (tmp_path / "elsewhere" / "bin").mkdir(parents=True)
    fill(home, ("dotfiles/gitconfig",), f"{GIT}[core]\n\texcludesFile = ~/.rules")
    fill(home, ("dotfiles/rules",), "*.swp")
    fill(home, ("dotfiles/secret",), CANARY)
    fill(home, ("dotfiles/nvm/nvm.sh",), "of nvm")
    fill(home, ("dotfiles/ssh/id_rsa",), CANARY)
    links = {
        ".gitconfig": "dots/gitconfig",
        "dots": "dotfiles",
        ".rules": f"{home}/dots/rules",
        ".nvm": "dotfiles/nvm",
        ".ssh": "dotfiles/ssh",
        ".cargo": f"{tmp_path}/elsewhere",
    }
    for name, target in links.items():
        (home / name).symlink_to(target)
    monkeypatch.setenv("PATH", f"{home}/.cargo/bin:{os.environ['PATH']}")
    subprocess.run(["git", "init", "-q", str(tmp_path / "work")], check=True)
    (tmp_path / "work" / "a.swp").touch()

    async def run() -> str:
        async with Sandboxed(tmp_path / "work", kind) as inside:
            command = (
                "git config user.name; git status -s; cat ~/.nvm/nvm.sh; ls ~/.ssh/ ~/dots/secret"
            )
            return await inside.with_access(access, command)

    text = asyncio.run(run())
    assert text.startswith("A\nof nvm\n"), text
    assert CANARY not in text
    assert "id_rsa" not in text


@pytest.mark.spec("SEC-13", "SEC-18")
def test_a_configuration_of_empty_lines_is_read_at_once(home: Path) -> None:
    (home / ".gitconfig").write_text("\n" * 100_000)
    assert sandbox_home.seen(home, [home], {}) == (home / ".gitconfig",)


@both
@pytest.mark.spec("SEC-18")
def test_what_is_added_is_read_and_credentials_in_it_are_not(
    home: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = home / "work"
    work.mkdir()
    fill(home, ("more/notes", ".config/gh/hosts.yml"), "added")
    own = OwnPlaces(seen=(home / "more", home / ".config"))
    password = f"url = https://a:{CANARY}@example.org/x"
    held = (
        ".nvm/versions/node/v1/etc/npmrc",
        ".cache/pre-commit/a/.git/config",
        ".cargo/git/db/a/FETCH_HEAD",
        "miniconda3/.condarc",
        ".local/state/mise/github-oauth-tokens.toml",
        ".volta/tools/image/node/20/etc/npmrc",
        ".pyenv/versions/3/pip.conf",
        ".local/share/pipx/venvs/x/pipx_metadata.json",
        ".local/share/uv/tools/x/uv-receipt.toml",
    )
    fill(home, held, f"[x]\n{password}\n")
    fill(home, ("more/.env", ".dotnet/corefx/cryptography/a.pfx"), CANARY)
    fill(home, (".cargo/git/db/b/FETCH_HEAD", ".dotnet/dotnet"), "public\n")
    monkeypatch.setenv("PATH", f"{home}/.dotnet:{os.environ['PATH']}")
    looks = (
        "cat ~/more/notes; cat ~/.config/gh/hosts.yml; cat ~/.cargo/git/db/b/* ~/.dotnet/dotnet;"
    )
    (text,) = told(
        work,
        f"{looks} grep -r . ~/.nvm ~/.cache ~/.cargo ~/more ~/.dotnet ~/miniconda3 ~/.volta"
        " ~/.pyenv ~/.local/share/pipx ~/.local/share/uv/tools;"
        " cat ~/.local/state/mise/github-oauth-tokens.toml",
        kind=kind,
        own=own,
    )
    assert text.startswith("added\ncat:") and CANARY not in text
    assert text.count("public\n") > 1


@pytest.mark.spec("SEC-18")
@pytest.mark.parametrize(
    ("listed", "held"),
    [
        (".local/share/fnm", "node-versions/v1/installation/etc/npmrc"),
        (".nodenv", "versions/1/etc/npmrc"),
        (".nodebrew", "node/v1/etc/npmrc"),
        (".local/share/pnpm", "global/5/.npmrc"),
        (".virtualenvs", "a/pip.conf"),
        ("venv", "pip.conf"),
        ("miniconda3", "envs/a/pip.conf"),
        (".local/share/pipx", "venvs/a/pip.conf"),
        (".pyenv", "versions/3/envs/a/pip.conf"),
        (".cargo/registry", "index/a/.git/config"),
        (".sdkman/candidates", "maven/3/conf/settings.xml"),
        (".asdf", "installs/maven/3/conf/settings.xml"),
        ("maven/conf", "settings.xml"),
        ("gradle", "gradle.properties"),
        (".sdkman/candidates", "gradle/8/gradle.properties"),
    ],
)
def test_a_toolchains_own_settings_are_hidden_where_they_hold_a_credential(
    home: Path, listed: str, held: str
) -> None:
    fill(home, (f"{listed}/{held}",), "<!-- <password>x</password> -->" * held.endswith("xml"))
    assert not [*sandbox_home.credentials_in([home / listed])]
    os.utime(home / listed, (1, 1))  # what is known of it is forgotten
    fill(home, (f"{listed}/{held}",), f"nexusPassword=a\nurl=https://a:{CANARY}@x.org/")
    assert [*sandbox_home.credentials_in([home / listed])] == [home / listed / held]


@both
@pytest.mark.spec("SEC-18")
def test_a_home_behind_a_link_and_none_at_all_work(
    home: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, ("other/secret",), CANARY)
    fill(home, (".local/bin/tool", "work/a"), "mine")
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(tmp_path / "link"))
    (text,) = told(home / "work", "cat ~/other/secret ~/.local/bin/tool a", kind=kind)
    assert CANARY not in text
    assert text.count("mine\n") == 2
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    (text,) = told(home / "work", "cat a; echo ~", kind=kind)
    assert text.startswith(f"mine\n{tmp_path}/none\n")
    monkeypatch.delenv("HOME")
    (text,) = told(home / "work", "cat a", kind=kind)
    assert text.startswith("mine\n")


@pytest.mark.spec("SEC-7", "SEC-18")
def test_what_becomes_a_link_while_the_sandbox_is_set_up_is_not_followed(home: Path) -> None:
    work = home / "work"
    subprocess.run(["git", "init", "-q", str(work / "sub")], check=True)
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text(CANARY)

    async def run() -> list[str]:
        async with Sandboxed(work) as inside:
            confine = inside.sandbox.confine

            async def confine_and_swap(argv: Sequence[str], cwd: Path, access: Access) -> Confined:
                confined = await confine(argv, cwd, access)
                if not (work / "away").exists():
                    (work / "sub" / ".git").rename(work / "away")
                    (work / "sub" / ".git").symlink_to(home / ".ssh")
                return confined

            inside.sandbox.confine = confine_and_swap  # type: ignore[method-assign] # a race, made sure
            return [await inside.say("cat sub/.git/config; echo x > sub/.git/authorized_keys")]

    if not takes_open_files(shutil.which("bwrap") or "bwrap"):
        pytest.skip("this bubblewrap has no --bind-fd")
    (text,) = asyncio.run(run())
    assert CANARY not in text
    assert not (home / ".ssh" / "authorized_keys").exists()
    assert "sandbox" in text


@pytest.mark.spec("SEC-17", "SEC-3")
def test_what_the_user_saves_by_a_rename_is_read_only_no_more_and_compared(home: Path) -> None:
    """The rename takes the mount away with which a command that runs was kept from it."""
    names = (".envrc", ".bashrc")
    for name in names:
        (home / name).write_text("mine\n")
    os.mkfifo(home / "pipe")

    def save() -> None:
        with (home / "pipe").open("w") as pipe:  # waits for the command
            for name in names:
                (home / "new").write_text("mine\n")
                (home / "new").rename(home / name)
            pipe.write("\n")

    async def run() -> str:
        async with Sandboxed(home) as inside:
            append = "; ".join(f"echo evil >> {name}" for name in names)
            saving = asyncio.create_task(asyncio.to_thread(save))
            text = await inside.say(f"read _ < pipe; {append}")
            await saving
            return text

    text = asyncio.run(run())
    assert [(home / name).read_text() for name in names] == ["mine\n"] * 2, text
    assert [(home / f"{name}.set-aside").read_text() for name in names] == ["mine\nevil\n"] * 2


@both
@pytest.mark.spec("SEC-18")
@pytest.mark.parametrize("way", ["link", "chain", "environment", "variable"])
def test_what_lies_in_the_workspace_leads_to_nothing_in_the_home_directory(
    home: Path, kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, venv = home / "work", home / "work" / ".venv"
    (venv / "bin").mkdir(parents=True)
    fill(home, (".ssh/id_rsa", "other/lib/a.py"), CANARY)
    fill(home, ("python/bin/python3", "python/lib/python3.12/os.py"), "of python")
    (venv / "pyvenv.cfg").write_text(f"home = {home}/python/bin\n")
    (home / "bin").mkdir()
    (home / "bin" / "tool").symlink_to(venv / "bin" / "tool")
    programs = home / "bin" if way == "chain" else venv / "bin"
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    if way == "variable":
        monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    change = {
        "environment": f"mkdir -p .venv/bin; echo home = {home}/other/bin > .venv/pyvenv.cfg",
        "variable": f"ln -s {home}/other .venv",
    }.get(way, f"mkdir -p .venv/bin; ln -s {home}/.ssh/id_rsa .venv/bin/tool")
    before, _, after = told(
        work,
        "cat ~/python/bin/python3 ~/python/lib/python3.12/os.py",
        f"mv .venv old; {change}",
        "cat ~/.ssh/id_rsa ~/other/lib/a.py",
        kind=kind,
    )
    assert before.count("of python") == (0 if way == "chain" else 2)
    assert CANARY not in after


@both
@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.skipif(bool(os.getuid()), reason="only root reads it anyway")
def test_what_root_alone_may_read_no_search_of_roots_shows(tmp_path: Path, kind: str) -> None:
    first = Path("/etc/shadow").read_text().partition(":")[0]

    async def run() -> tuple[list[str], str]:
        async with Sandboxed(tmp_path, kind) as inside:
            command = (
                'cat "$(printf /etc/shad%s ow)"; grep -r x /etc/shadow-; cat /etc/hostname; ls /etc'
            )
            ways = (Access.SEARCH, Access.INSIDE_SEARCH)
            asked = await inside.with_access(Access.READ_ONLY, "cat /etc/shadow")
            return [await inside.with_access(access, command) for access in ways], asked

    hidden, asked = asyncio.run(run())
    assert asked.startswith(f"{first}:")
    for said in hidden:
        assert f"{first}:" not in said and "hostname" in said and "ermission denied" in said, said
