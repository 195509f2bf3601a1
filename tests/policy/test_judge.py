"""The judge: modes by effects by places by rules."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcli.domain import files
from agentcli.domain.errors import UsageError
from agentcli.domain.ports import GrantOffer
from agentcli.domain.ports import PermissionMode as Mode
from agentcli.domain.sandbox import Access
from agentcli.domain.tools import Asks, ToolDefinition, ToolHints, Workspace
from agentcli.mcp.protocol import tools_in
from agentcli.policy.decision import Answer, CallFacts, Decision, Effect, Policy, Rule
from agentcli.policy.judge import moves_shell
from agentcli.policy.places import credential_place
from agentcli.policy.rules import touches
from agentcli.tools.common.server_tool import ServedTool
from tests.policy.asking import (
    Asked,
    effect_of,
    judged,
    offers_of,
    policy_of,
    session_rule,
    subject_of,
)

ALLOW, ASK, DENY = Answer.ALLOW, Answer.ASK, Answer.DENY
DECIDED = Decision(ASK, "it runs a command")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "src/a.py").write_text("a")
    (tmp_path / "other").mkdir()
    return Workspace(root, root)


def facts(
    workspace: Workspace,
    tool: str,
    effect: Asks,
    *paths: str,
    always_ask: bool = False,
    **arguments: Any,
) -> Asked:
    definition = ToolDefinition(
        tool, tool, "", {"type": "object"}, effect, "test", always_ask=always_ask
    )
    return Asked(CallFacts(definition, arguments, tuple(map(workspace.resolve, paths))), workspace)


def read(workspace: Workspace, *paths: str) -> Asked:
    return facts(workspace, "read_file", Asks.NOTHING, *paths)


def write(workspace: Workspace, *paths: str) -> Asked:
    return facts(workspace, "write_file", Asks.EDIT, *paths)


def command(workspace: Workspace, text: str, **arguments: str) -> Asked:
    return facts(workspace, "bash", Asks.ANYTHING, command=text, **arguments)


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize(
    ("mode", "what", "answer"),
    [
        (Mode.DEFAULT, "read in", ALLOW), (Mode.DEFAULT, "read out", ASK),
        (Mode.DEFAULT, "write in", ASK), (Mode.DEFAULT, "write out", ASK),
        (Mode.DEFAULT, "look", ALLOW), (Mode.DEFAULT, "exec", ASK), (Mode.DEFAULT, "call", ALLOW),
        (Mode.ACCEPT_EDITS, "read in", ALLOW), (Mode.ACCEPT_EDITS, "read out", ASK),
        (Mode.ACCEPT_EDITS, "write in", ALLOW), (Mode.ACCEPT_EDITS, "write out", ASK),
        (Mode.ACCEPT_EDITS, "exec", ASK), (Mode.ACCEPT_EDITS, "write nowhere", ASK),
        (Mode.ACCEPT_EDITS, "write both", ASK),
        (Mode.PLAN, "read in", ALLOW), (Mode.PLAN, "read out", ASK), (Mode.PLAN, "write in", DENY),
        (Mode.PLAN, "exec", DENY), (Mode.PLAN, "look", ALLOW),
        (Mode.YOLO, "read out", ALLOW), (Mode.YOLO, "write out", ALLOW), (Mode.YOLO, "exec", ALLOW),
    ],
)  # fmt: skip
def test_each_mode_frees_what_the_contract_says(
    mode: Mode, what: str, answer: Answer, workspace: Workspace
) -> None:
    subjects = {
        "read in": read(workspace, "src/a.py"), "read out": read(workspace, "../other/x"),
        "write in": write(workspace, "src/new.py"), "write out": write(workspace, "../other/x"),
        "write both": write(workspace, "src/new.py", "../other/x"),
        "write nowhere": write(workspace), "look": command(workspace, "ls src"),
        "exec": command(workspace, "make"), "call": read(workspace),
    }  # fmt: skip
    decision = judged(subjects[what], Policy(mode))
    assert decision.answer is answer
    assert decision.reason
    is_far = decision.answer is ASK and what in {"read out", "write out", "write both"}
    assert is_far is ("outside the workspace" in decision.reason)


@pytest.mark.spec("SEC-3", "SEC-5")
@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../other/x", "src/../../other", "link/x", "file_link", "~/x", "../work2/x"],
)
def test_paths_are_judged_resolved_and_by_directories(path: str, workspace: Workspace) -> None:
    root = workspace.root
    (root / "link").symlink_to(root.parent / "other")
    (root / "file_link").symlink_to(root.parent / "other" / "x")
    (root.parent / "work2").mkdir()
    assert judged(read(workspace, path), Policy()).answer is ASK
    assert judged(write(workspace, path), Policy(Mode.ACCEPT_EDITS)).answer is ASK


@pytest.mark.spec("SEC-3", "SEC-5")
def test_an_allow_rule_follows_no_link_of_the_workspace(
    workspace: Workspace, tmp_path: Path
) -> None:
    root, other, more = workspace.root, workspace.root.parent / "other", tmp_path / "more"
    more.mkdir()
    for link in (more / "out", root / "out"):
        link.symlink_to(other)
    (root / "file").symlink_to(other / "x")
    (tmp_path / "alias").symlink_to(root)
    workspace = replace(workspace, extra=(more,))
    named = ("out/**", "./out/*", "out/x", "file", f"{root}/out/**", "src/../out/x",
             f"{more}/out/**", f"{tmp_path}/alias/out/**")  # fmt: skip

    def allowing(*patterns: str) -> Policy:
        rules = [f"{tool}({each})" for tool in ("read_file", "edit") for each in patterns]
        return policy_of(Mode.AUTO, rules, [])

    for path in ("out/x", "file", str(more / "out/x")):
        assert judged(read(workspace, path), allowing(*named)).answer is ASK
        assert judged(write(workspace, path), allowing(*named)).answer is ASK
        for place in (f"{other}/**", "../other/*", "../other/x"):  # that the user has named itself
            assert judged(write(workspace, path), allowing(place)).answer is ALLOW
    default = policy_of(Mode.DEFAULT, [f"edit({tmp_path}/alias/src/**)"], [])
    assert judged(write(workspace, "src/a.py"), default).answer is ALLOW


@pytest.mark.spec("SEC-5")
def test_a_workspace_reached_by_a_link_is_still_the_workspace(
    workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "alias").symlink_to(workspace.root)
    linked = Workspace(tmp_path / "alias", tmp_path / "alias")
    assert judged(read(linked, "src/a.py"), Policy()).answer is ALLOW
    assert judged(read(linked, str(workspace.root / "src/a.py")), Policy()).answer is ALLOW
    assert judged(read(linked, "../other/x"), Policy()).answer is ASK


PROTECTED = [
    ".git/config", ".git/hooks/pre-commit", "sub/.git/config", ".GIT/config", ".bashrc", ".zshrc",
    ".ssh/authorized_keys", ".aws/credentials", ".agents/commands/x.md", ".envrc", ".gitconfig",
    ".claude.json", ".codex/auth.json",
    "src/../.git/config", "alias/config", "mine/settings.toml", ".git", ".git-credentials",
]  # fmt: skip


@pytest.mark.spec("SEC-3", "SEC-14")
def test_the_accounts_own_home_is_a_home_directory_wherever_home_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = tmp_path / "account"
    (account / ".kaggle").mkdir(parents=True)
    (account / ".kaggle/kaggle.json").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(files, "_of_account", lambda _: (str(account),))
    at_home, elsewhere = Workspace(account, account), Workspace(tmp_path / "a", tmp_path / "a")
    for call in (
        read(at_home, ".kaggle/kaggle.json"),
        read(at_home, ".bash_history"),
        command(at_home, "cat .kaggle/kaggle.json"),
    ):
        assert "holds credentials" in judged(call, Policy()).reason
    for text in (f"rm -rf {account}", f"rm -rf {account}/*"):
        decision = judged(command(elsewhere, text), Policy(Mode.YOLO))
        assert decision.answer is ASK and str(account) in decision.reason


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("path", PROTECTED)
@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.YOLO])
def test_protected_places_are_never_written_unasked(
    path: str, mode: Mode, workspace: Workspace
) -> None:
    (workspace.root / "alias").symlink_to(".git")
    policy = policy_of(mode, ["write_file", "write_file(**)"], [])
    policy.own_directories = (workspace.root / "mine",)
    policy.granted.append(session_rule(write(workspace, path), policy))
    assert judged(write(workspace, path), policy).answer is ASK
    assert judged(write(workspace, "src/ok.py", path), policy).answer is ASK
    reading = ASK if credential_place([workspace.root / path]) else ALLOW
    assert judged(read(workspace, path), policy).answer is reading


@pytest.mark.spec("SEC-3", "SEC-17")
def test_a_version_is_written_as_any_file_and_nothing_else_in_its_place(
    workspace: Workspace,
) -> None:
    (workspace.root / "src/.nvmrc").symlink_to("../.envrc")
    policy = policy_of(Mode.ACCEPT_EDITS, [], [])

    def written(path: str, content: str, tool: str = "write_file") -> Answer:
        return judged(facts(workspace, tool, Asks.EDIT, path, content=content), policy).answer

    for name in (".nvmrc", ".python-version", "src/.tool-versions"):
        assert written(name, "v20.1.0\n# ours\n") is ALLOW, name
        for text in (
            "path:./tools\n",
            "../evil\n",
            "{{exec(command='x')}}",
            "v20\ud800",
            "1" * 5000,
        ):
            assert written(name, text) is ASK, text
        assert written(name, "v20", "edit_file") is ASK, "the rest of it is not known"
    for name in ("src/.nvmrc", ".husky/.nvmrc", ".git/.nvmrc", "../.nvmrc", ".envrc"):
        assert written(name, "v20") is ASK, name


@pytest.mark.spec("SEC-3", "SEC-5")
def test_a_protected_name_that_is_a_link_is_protected_too(workspace: Workspace) -> None:
    (workspace.root / "dotfiles").mkdir()
    (workspace.root / "dotfiles/bashrc").write_text("")
    (workspace.root / ".bashrc").symlink_to("dotfiles/bashrc")
    assert judged(write(workspace, ".bashrc"), Policy(Mode.YOLO)).answer is ASK


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("path", [".gitignore", ".github/workflows/x.yml", "git/config", "profile"])
def test_neighbours_of_protected_names_are_free(path: str, workspace: Workspace) -> None:
    assert judged(write(workspace, path), Policy(Mode.ACCEPT_EDITS)).answer is ALLOW


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("mode", list(Mode))
def test_deny_wins_over_everything_and_names_its_rule(mode: Mode, workspace: Workspace) -> None:
    policy = policy_of(mode, ["bash", "bash(rm *)"], ["bash(rm *)", "read_file(src/**)"])
    policy.granted += policy.allow
    decision = judged(command(workspace, "ls; sudo rm x"), policy)
    assert decision == Decision(DENY, "denied by the rule bash(rm *)", policy.deny[0], Effect.EXEC)
    assert judged(read(workspace, "./src/../src/a.py"), policy).answer is DENY


@pytest.mark.spec("SEC-3")
def test_an_allow_rule_frees_what_it_covers_and_is_named(workspace: Workspace) -> None:
    policy = policy_of(Mode.DEFAULT, ["bash(make *)", "write_file(src/**)"], [])
    allowed = judged(command(workspace, "make test"), policy)
    assert (allowed.answer, str(allowed.rule)) == (ALLOW, "bash(make *)")
    assert judged(command(workspace, "make test; x"), policy).answer is ASK
    assert judged(write(workspace, "src/x"), policy).answer is ALLOW
    assert judged(write(workspace, "x"), policy).answer is ASK


@pytest.mark.spec("SEC-3")
def test_plan_mode_is_not_opened_by_an_allow_rule(workspace: Workspace) -> None:
    policy = policy_of(Mode.PLAN, ["bash", "write_file"], [])
    assert judged(command(workspace, "make"), policy).answer is DENY
    assert judged(write(workspace, "src/x"), policy).answer is DENY


@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.YOLO])
def test_a_tool_that_always_asks_does(mode: Mode, workspace: Workspace) -> None:
    call = facts(workspace, "dangerous", Asks.NOTHING, always_ask=True)
    assert judged(call, Policy(mode, granted=[session_rule(call, Policy())])).answer is ASK


def test_a_wrong_rule_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        policy_of(Mode.DEFAULT, ["bash("], [])


@pytest.mark.spec("LOOP-4")
def test_a_command_known_to_be_read_only_is_a_read(workspace: Workspace) -> None:
    assert effect_of(command(workspace, "ls")) is Effect.READ
    assert effect_of(command(workspace, "ls; x")) is Effect.EXEC
    assert effect_of(facts(workspace, "bash", Asks.ANYTHING, command=3)) is Effect.EXEC
    assert effect_of(facts(workspace, "mine", Asks.ANYTHING, command="ls")) is Effect.EXEC


# --- "yes, for this session" -----------------------------------------------------------------


@pytest.mark.spec("SEC-4", "UI-7")
@pytest.mark.parametrize("text", ["make", "rm *.o", "echo $X > y", "a\nb", "rm *", "git diff ?"])
def test_yes_for_the_session_covers_this_very_command(text: str, workspace: Workspace) -> None:
    policy = Policy()
    rule = session_rule(command(workspace, text), policy)
    policy.granted.append(rule)
    assert judged(command(workspace, text), policy).answer is ALLOW
    for other in (f"{text} x", "rm -rf src", "rm -f x.o", f"{text}; x", "git diff x"):
        assert judged(command(workspace, other), policy).answer is ASK


@pytest.mark.spec("SEC-3", "UI-7")
def test_a_grant_of_what_stays_in_the_sandbox_holds_where_there_is_one(
    workspace: Workspace,
) -> None:
    policy = policy_of(Mode.DEFAULT, [], [], ["bash(make *)"])
    rule = session_rule(command(workspace, "make x"), policy)
    policy.granted.append(replace(rule, is_inside=True))
    assert judged(command(workspace, "make x"), policy).answer is ASK
    policy.contained = True
    assert judged(command(workspace, "make x"), policy).answer is ALLOW
    policy.mode = Mode.YOLO  # which has no boundary
    assert judged(command(workspace, "make x"), policy).answer is ASK
    policy.granted.append(rule)  # given without one
    assert judged(command(workspace, "make x"), policy).answer is ALLOW


@pytest.mark.spec("SEC-3", "UI-7")
def test_yes_for_the_session_to_an_edit_covers_all_edits_in_the_workspace(
    workspace: Workspace,
) -> None:
    policy = Policy()
    policy.granted.append(session_rule(write(workspace, "src/a.py"), policy))
    assert judged(write(workspace, "src/b.py"), policy).answer is ALLOW
    assert judged(write(workspace, "new/dir/c"), policy).answer is ALLOW
    assert judged(write(workspace, "../other/x"), policy).answer is ASK
    assert judged(write(workspace, ".git/config"), policy).answer is ASK
    edit = facts(workspace, "edit_file", Asks.EDIT, "src/a.py")
    assert judged(edit, policy).answer is ALLOW


@pytest.mark.spec("SEC-3")
def test_yes_for_the_session_outside_or_protected_covers_this_very_path(
    workspace: Workspace,
) -> None:
    for asked, other in (("../other/x", "../other/y"), (".git/config", "src/a.py")):
        policy = Policy()
        policy.granted.append(session_rule(write(workspace, asked), policy))
        assert judged(write(workspace, other), policy).answer is ASK
    policy = Policy()
    policy.granted.append(session_rule(read(workspace, "../other/x*"), policy))
    assert judged(read(workspace, "../other/x*"), policy).answer is ALLOW
    assert judged(read(workspace, "../other/xy"), policy).answer is ASK


@pytest.mark.spec("SEC-5", "LOOP-5")
def test_links_in_a_circle_can_be_judged(workspace: Workspace) -> None:
    (workspace.root / "loop").symlink_to("loop")
    assert judged(read(workspace, "loop"), Policy()).answer is ALLOW
    assert judged(write(workspace, "loop/a"), Policy()).answer is ASK
    assert judged(command(workspace, "cat loop"), Policy()).answer is ALLOW
    policy = policy_of(Mode.DEFAULT, [], ["read_file(loop)"])
    assert judged(read(workspace, "loop"), policy).answer is DENY


@pytest.mark.spec("SEC-11")
def test_yes_for_the_session_to_a_fetch_covers_its_host(workspace: Workspace) -> None:
    def fetch(url: str) -> Asked:
        return facts(workspace, "web_fetch", Asks.ANYTHING, url=url)

    policy = Policy()
    policy.granted.append(session_rule(fetch("https://a.example/x"), policy))
    assert subject_of(fetch("https://A.example/y")).host == "a.example"
    assert judged(fetch("https://a.example/y"), policy).answer is ALLOW
    assert judged(fetch("https://b.a.example/"), policy).answer is ASK
    policy.granted[:] = [session_rule(fetch("http://["), policy)]
    assert judged(fetch("https://a.example/y"), policy).answer is ASK
    assert judged(fetch("http://["), policy).answer is ASK


@pytest.mark.spec("SEC-3")
def test_an_ask_rule_asks_in_every_mode_until_the_session_was_granted_it(
    workspace: Workspace,
) -> None:
    policy = policy_of(Mode.YOLO, ["bash"], [], ["bash(git push *)"])
    assert judged(command(workspace, "git push origin main"), policy).answer is Answer.ASK
    assert judged(command(workspace, "make && git push origin main"), policy).answer is Answer.ASK
    assert judged(command(workspace, "git status"), policy).answer is Answer.ALLOW
    policy.granted.append(Rule("bash", "git push origin main"))
    assert judged(command(workspace, "git push origin main"), policy).answer is Answer.ALLOW


# --- commands by their parts ------------------------------------------------------------------


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    ("text", "answer", "part"),
    [
        ("git diff", ALLOW, ""), ("git diff; rm x", ASK, "rm x"), ("git diff && rm x", ASK, "rm x"),
        ("git diff | cat", ALLOW, ""), ("git diff 2>&1 | head -5", ALLOW, ""),
        ("git diff > f", ASK, ""), ("git diff $(rm x)", ASK, ""),
        ("cd src && git diff", ALLOW, ""), ("cd .. && git diff", ASK, "cd .."),
        ("cd src && git diff; make", ASK, "make"), ("ls; git diff", ALLOW, ""),
        ("git diff $X", ASK, ""), ("PAGER=rm git diff", ASK, ""), ("sudo git diff", ASK, ""),
        ("bash -c 'git diff; rm x'", ASK, ""), ("git diff <(make)", ASK, None),
        ("git diff\nmake", ASK, "make"), ("for i in 1; do git diff; done; rm x", ASK, None),
    ],
)  # fmt: skip
def test_a_rule_for_one_command_leaves_the_others_to_ask_and_names_the_part(
    text: str, answer: Answer, part: str | None, workspace: Workspace
) -> None:
    policy = policy_of(Mode.DEFAULT, ["bash(git diff *)"], [])
    decision = judged(command(workspace, text), policy)
    assert decision.answer is answer, decision
    assert part is None or decision.part == part
    assert not part or decision.why.endswith(f": {part}")


@pytest.mark.spec("SEC-4")
def test_parts_are_free_by_several_rules_and_all_are_named(workspace: Workspace) -> None:
    policy = policy_of(Mode.DEFAULT, ["bash(make *)", "bash(git diff *)"], [])
    decision = judged(command(workspace, "make x && git diff && ls"), policy)
    assert decision.reason == "allowed by the rules bash(make *), bash(git diff *)"
    assert decision.rule == policy.allow[0]


@pytest.mark.spec("SEC-4", "SEC-2")
def test_a_rule_does_not_follow_into_another_repository(workspace: Workspace) -> None:
    policy = policy_of(Mode.DEFAULT, ["bash(git diff *)"], [])
    nested, bare = workspace.root / "nested", workspace.root / "bare"
    (nested / "deep").mkdir(parents=True)
    (nested / ".git").write_text("gitdir: elsewhere\n")
    for name in ("objects", "refs"):
        (bare / name).mkdir(parents=True)
    (bare / "HEAD").write_text("ref: x\n")
    for name in ("nested", "nested/deep", "bare", "bare/refs"):
        decision = judged(command(workspace, f"cd {name} && git diff"), policy)
        assert (decision.answer, decision.part) == (ASK, f"cd {name}")
    assert judged(command(workspace, "cd src && git diff"), policy).answer is ALLOW


@pytest.mark.spec("SEC-4", "UI-7")
@pytest.mark.parametrize("text", ["make", "make test", "npm run build", "python -m x"])
def test_always_for_one_command_never_covers_another(text: str, workspace: Workspace) -> None:
    written = offers_of(command(workspace, text), Policy(), DECIDED)[0].rule
    policy = policy_of(Mode.DEFAULT, [written], [])
    assert judged(command(workspace, text), policy).answer is ALLOW
    others = (f"{text} x", f"{text}; rm x", f"rm x; {text}", f"{text} > f", f"{text} $(rm x)",
              f"cd src && {text}", f"echo rm | {text}", f"A=b {text}", f"sudo {text}", f"./{text}",
              f"bash -c '{text}'", f"{text} &\nrm x", f"{text} < src/a.py", f"x() {{ {text}; }}; x")  # fmt: skip
    for other in others:
        assert judged(command(workspace, other), policy).answer is ASK, other


@pytest.mark.spec("SEC-3")
def test_an_unknown_part_that_may_be_denied_asks_even_in_yolo(workspace: Workspace) -> None:
    policy = policy_of(Mode.YOLO, ["bash"], ["bash(git push *)"])
    assert judged(command(workspace, "git $X"), policy).answer is ASK
    assert judged(command(workspace, "$X push"), policy).rule == policy.deny[0]
    assert judged(command(workspace, "make $X"), policy).answer is ALLOW
    assert judged(command(workspace, "git push $X"), policy).answer is DENY


@pytest.mark.spec("SEC-4")
def test_what_is_not_understood_says_so(workspace: Workspace) -> None:
    decision = judged(command(workspace, "git diff 'x"), policy_of(Mode.DEFAULT, [], []))
    assert "is not understood" in decision.reason


@pytest.mark.spec("UI-7", "SEC-3")
def test_what_asks_every_time_offers_no_lasting_yes(workspace: Workspace) -> None:
    for call in (command(workspace, "rm -rf ."), write(workspace, ".git/config")):
        decision = judged(call, Policy())
        assert offers_of(call, Policy(), decision) == ()
    asking = policy_of(Mode.DEFAULT, [], [], ["bash(make *)"])
    call = command(workspace, "make x")
    (exact, prefix) = offers_of(call, asking, judged(call, asking))
    assert exact == GrantOffer("bash(make x)", session=True, always=False)
    assert prefix == GrantOffer("bash(make x *)", session=True, always=False)


# --- tools that reach out ---------------------------------------------------------------------


def fetch(workspace: Workspace, url: str) -> Asked:
    definition = ToolDefinition(
        "web_fetch", "", "", {"type": "object"}, Asks.HOST, "web", ToolHints(open_world=True)
    )
    return Asked(CallFacts(definition, {"url": url}, ()), workspace)


@pytest.mark.spec("SEC-11", "SEC-3")
def test_a_fetch_asks_in_every_mode_but_yolo_and_says_where_to(workspace: Workspace) -> None:
    call = fetch(workspace, "https://Docs.Python.org/3/")
    for mode in (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.PLAN):
        decision = judged(call, Policy(mode))
        assert (decision.answer, decision.reason) == (ASK, "it fetches from docs.python.org")
    assert judged(call, Policy(Mode.YOLO)).answer is ALLOW
    assert judged(fetch(workspace, "http://["), Policy()).answer is ASK


@pytest.mark.spec("SEC-3")
def test_a_tool_whose_hints_say_that_it_reaches_out_asks_whatever_else_it_says(
    workspace: Workspace,
) -> None:
    for is_open, answer in ((True, ASK), (False, ALLOW)):
        definition = ToolDefinition(
            "look_up", "", "", {}, Asks.NOTHING, "extra", ToolHints(open_world=is_open)
        )
        asked = Asked(CallFacts(definition, {}, ()), workspace)
        assert judged(asked, Policy()).answer is answer


@pytest.mark.spec("SEC-11")
def test_fetches_are_ruled_by_host_in_whole_labels(workspace: Workspace) -> None:
    policy = policy_of(Mode.PLAN, ["web_fetch(python.org)"], ["web_fetch(bad.python.org)"])
    for url, answer in (
        ("https://python.org/x", ALLOW), ("https://docs.python.org", ALLOW),
        ("https://mypython.org", ASK), ("https://python.org.evil.com", ASK),
        ("https://bad.python.org/", DENY), ("https://a.bad.python.org/", DENY),
        ("https://python.org@evil.com", ASK),
    ):  # fmt: skip
        assert judged(fetch(workspace, url), policy).answer is answer, url
    granted = Policy()
    granted.granted.append(session_rule(fetch(workspace, "https://a.example/x"), granted))
    assert judged(fetch(workspace, "https://a.example/y"), granted).answer is ALLOW
    assert judged(fetch(workspace, "https://b.a.example/y"), granted).answer is ASK


@pytest.mark.spec("SEC-3")
def test_a_read_only_command_does_not_count_as_reaching_out(workspace: Workspace) -> None:
    definition = ToolDefinition(
        "bash", "", "", {"type": "object"}, Asks.ANYTHING, "shell", ToolHints(open_world=True)
    )
    call = Asked(CallFacts(definition, {"command": "ls"}, ()), workspace)
    assert judged(call, Policy()).answer is ALLOW


@pytest.mark.spec("SEC-3")
def test_tools_of_a_server_are_ruled_by_family(workspace: Workspace) -> None:
    policy = policy_of(Mode.DEFAULT, ["mcp__github__*"], ["mcp__github__delete_*"])
    for name, answer in (
        ("mcp__github__list", ALLOW), ("mcp__github__delete_repo", DENY), ("mcp__gitlab__list", ASK),
    ):  # fmt: skip
        assert judged(facts(workspace, name, Asks.ANYTHING), policy).answer is answer
    server = policy_of(Mode.DEFAULT, ["mcp__github"], [])
    one = policy_of(Mode.DEFAULT, ["mcp__github__repo"], [])
    for name, answer in (("mcp__github__repo", ALLOW), ("mcp__github__repo__delete", ASK)):
        assert judged(facts(workspace, name, Asks.ANYTHING), one).answer is answer
        assert judged(facts(workspace, name, Asks.ANYTHING), server).answer is ALLOW


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("rule", ["mcp__srv__{}", "mcp__*_everything"])
def test_a_rule_knows_a_tool_of_a_server_whose_name_is_cut_by_its_whole_name(
    workspace: Workspace, rule: str
) -> None:
    name = "in_all_of_the_projects_of_this_account_delete_everything"
    ((tool,), _) = tools_in("srv", [{"tools": [{"name": name}]}])
    definition = ServedTool(tool).definition
    assert len(definition.name) == 64 and not definition.name.endswith("everything")
    call = Asked(CallFacts(definition, {}, ()), workspace)
    assert judged(call, policy_of(Mode.YOLO, [], [rule.format(name)])).answer is DENY


@pytest.mark.spec("SEC-3")
def test_a_rule_for_a_whole_server_knows_its_tools_however_long_its_name_is(
    workspace: Workspace,
) -> None:
    server = "documents-of-all-the-teams-in-the-northern-half-of-this-company"
    ((tool,), _) = tools_in(server, [{"tools": [{"name": "drop"}]}])
    call = Asked(CallFacts(ServedTool(tool).definition, {}, ()), workspace)
    assert judged(call, policy_of(Mode.YOLO, [], [f"mcp__{server}"])).answer is DENY
    assert judged(call, policy_of(Mode.YOLO, [], [f"mcp__{server[:-1]}"])).answer is ALLOW


# --- rules come and go ------------------------------------------------------------------------


def test_rules_are_added_with_their_source_and_removed_by_their_text() -> None:
    policy = policy_of(Mode.DEFAULT, ["bash(a)"], [], source="settings")
    policy.add_rules("allow", ["bash(b)"], "--allow-tool")
    policy.granted.append(Rule("bash", "b", exact=True))
    assert [rule.source for rule in policy.allow] == ["settings", "--allow-tool"]
    assert policy.remove_rule("bash(b)")
    assert [str(rule) for rule in (*policy.allow, *policy.granted)] == ["bash(a)"]
    assert not policy.remove_rule("bash(b)")


# --- properties -------------------------------------------------------------------------------

_WORDS = ("git", "diff", "rm", "-rf", ".", "ls", "make", "$X", ";", "&&", "|", "> f", "$(", ")",
          "'", '"', "\n", "cd", "sudo", "bash -c", ".git/config", "~", "*", "x")  # fmt: skip
_COMMANDS = st.lists(st.sampled_from(_WORDS), max_size=7).map(" ".join)
_RULES = st.lists(
    st.sampled_from(
        ["bash", "bash(git *)", "bash(git diff *)", "bash(rm *)", "bash(make)", "*", "read_file",
         "write_file(src/**)", "web_fetch(python.org)", "read_file(**)", "bash(ls *)"]
    ),
    max_size=3,
)  # fmt: skip
_CALLS = st.one_of(
    st.tuples(st.just("bash"), _COMMANDS),
    st.tuples(
        st.sampled_from(["read_file", "write_file"]),
        st.sampled_from(["src/a.py", ".git/x", "../other/x", "/etc/passwd", "", "~/.bashrc"]),
    ),
    st.tuples(st.just("web_fetch"), st.sampled_from(["https://python.org", "http://x", "["])),
)


def call_of(workspace: Workspace, call: tuple[str, str]) -> Asked:
    name, argument = call
    if name == "bash":
        return command(workspace, argument)
    if name == "web_fetch":
        return fetch(workspace, argument)
    effect = Asks.NOTHING if name == "read_file" else Asks.EDIT
    return facts(workspace, name, effect, argument)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.mktemp("work")
    (root / "src").mkdir()
    (root / ".git").mkdir()
    return Workspace(root, root)


@pytest.mark.spec("SEC-3", "SEC-4")
@settings(max_examples=150, deadline=None)
@given(
    call=_CALLS,
    mode=st.sampled_from(list(Mode)),
    rules=st.tuples(_RULES, _RULES, _RULES),
    more=_RULES,
    contained=st.booleans(),
)
def test_a_decision_is_total_repeatable_and_never_loosened_by_a_deny_rule(
    ground: Workspace,
    call: tuple[str, str],
    mode: Mode,
    rules: tuple[list[str], list[str], list[str]],
    more: list[str],
    contained: bool,
) -> None:
    policy = policy_of(mode, *rules)
    policy.contained = contained
    asked = call_of(ground, call)
    decision = judged(asked, policy)
    assert decision == judged(asked, policy)
    assert decision.reason
    if decision.answer is DENY:
        assert decision.rule in policy.deny or mode is Mode.PLAN
    if decision.rule is not None:
        assert str(decision.rule) in decision.reason
    if mode is Mode.PLAN and decision.answer is not DENY:
        assert decision.effect is Effect.READ
    if any(touches(rule, subject_of(asked)) for rule in policy.deny):
        assert decision.answer is DENY
    order = [ALLOW, ASK, DENY]
    stricter = policy_of(mode, rules[0], [*rules[1], *more], rules[2])
    stricter.contained = contained
    assert order.index(judged(asked, stricter).answer) >= order.index(decision.answer)


@pytest.mark.spec("SEC-4")
@settings(max_examples=150, deadline=None)
@given(text=_COMMANDS)
def test_nothing_is_free_beside_what_a_rule_names_and_what_only_reads(
    ground: Workspace, text: str
) -> None:
    policy = policy_of(Mode.DEFAULT, ["bash(git diff *)"], [])
    asked = command(ground, text)
    if judged(asked, policy).answer is ALLOW:
        for part in subject_of(asked).parsed.commands:
            assert part.words[0] in {"git", "ls", "cd", "diff"}, part
            assert not any(each.writes for each in part.redirections)


# --- where a command runs, and the modes of a sandbox --------------------------------------------


@pytest.mark.spec("SEC-3", "SEC-4")
def test_a_decision_says_where_the_command_would_run(workspace: Workspace) -> None:
    def access(policy: Policy, text: str, **more: str) -> Access | None:
        return judged(command(workspace, text, **more), policy).access

    default = Policy(contained=True)
    assert access(default, "ls src; git status") is Access.READ_ONLY
    assert access(default, "cat src/a.py") is Access.SEARCH  # its words may be read wrongly
    assert access(default, "wc -c < src/a.py") is Access.SEARCH
    assert access(default, "cat .env") is Access.READ_ONLY  # which asks
    assert access(default, "make") is Access.INSIDE
    assert access(default, "make", access="network") is Access.NETWORK
    assert access(default, "ls", access="outside") is Access.OUTSIDE
    assert access(Policy(), "ls") is None  # nothing is promised where there is none
    yolo = Policy(Mode.YOLO, contained=True)
    assert access(yolo, "ls") is access(yolo, "make") is Access.OUTSIDE
    bound = replace(yolo, is_bound=True)
    assert access(bound, "make") is Access.INSIDE
    assert judged(read(workspace, "src/a.py"), default).access is None


@pytest.mark.spec("SEC-3")
def test_auto_frees_what_the_sandbox_contains_and_nothing_else(workspace: Workspace) -> None:
    auto = Policy(Mode.AUTO, contained=True)
    for call in (command(workspace, "make"), command(workspace, "x $(y) > z; python -c q"),
                 write(workspace, "src/a.py"), read(workspace, "src/a.py")):  # fmt: skip
        assert judged(call, auto).answer is ALLOW, call
    for call in (command(workspace, "make", access="network"), write(workspace, "../other/x"), write(workspace, ".git/config"),
                 command(workspace, "rm -rf ."), command(workspace, "echo x > .git/hooks/pre-commit"),
                 facts(workspace, "custom", Asks.ANYTHING), fetch(workspace, "https://a.example/x")):  # fmt: skip
        assert judged(call, auto).answer is ASK, call
    without = Policy(Mode.AUTO)
    assert judged(command(workspace, "make"), without).answer is ASK
    assert judged(write(workspace, "src/a.py"), without).answer is ALLOW
    assert "mode auto" in without.take_auto_notice()
    assert (without.take_auto_notice(), auto.take_auto_notice()) == ("", "")


@pytest.mark.spec("SEC-3")
def test_the_choice_of_auto_is_offered_only_where_it_would_help(workspace: Workspace) -> None:
    contained = Policy(contained=True)
    assert judged(command(workspace, "make"), contained).auto_frees
    assert not judged(command(workspace, "make"), Policy()).auto_frees
    assert not judged(command(workspace, "rm -rf ."), contained).auto_frees
    assert not judged(write(workspace, "src/a.py"), contained).auto_frees


@pytest.mark.spec("SEC-4", "UI-7")
def test_a_read_of_a_file_elsewhere_says_so(workspace: Workspace) -> None:
    contained = Policy(contained=True)
    for text, why in {
        "head -c 9 /etc/hosts": "it reads what lies outside the workspace",
        "ls ~": "it reads what lies outside the workspace",
        "cat ~/notes": "it reads what lies outside the workspace",
        "ls && cat ../other/x": "it reads what lies outside the workspace: cat ../other/x",
        "touch /etc/hosts": "it runs a command",
    }.items():
        assert judged(command(workspace, text), contained).why == why


@pytest.mark.spec("SEC-3", "SEC-7")
@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.AUTO, Mode.YOLO])
def test_a_network_that_all_commands_have_is_not_asked_about(
    workspace: Workspace, mode: Mode
) -> None:
    open_to_all = Policy(mode, contained=True, is_bound=True, network=True)
    plain, asking = (command(workspace, "make", **more) for more in ({}, {"access": "network"}))
    assert judged(asking, open_to_all) == judged(plain, open_to_all)
    leaving = judged(command(workspace, "make", access="outside"), open_to_all)
    assert leaving.answer is (DENY if mode is Mode.YOLO else ASK)


@pytest.mark.spec("SEC-3")
def test_yolo_in_a_named_sandbox_refuses_what_would_leave_it(workspace: Workspace) -> None:
    bound = Policy(Mode.YOLO, contained=True, is_bound=True)
    for how in ("network", "outside"):
        leaving = command(workspace, "make", access=how)
        assert judged(leaving, bound).answer is DENY
        assert judged(leaving, Policy(Mode.YOLO)).answer is ALLOW
    for free in (Policy(Mode.YOLO), Policy(Mode.YOLO, contained=True)):
        assert judged(command(workspace, "make"), free).access is Access.OUTSIDE
    assert judged(command(workspace, "make"), bound).access is Access.INSIDE
    for call in (write(workspace, "../other/x"), read(workspace, "../other/x"),
                 fetch(workspace, "https://a.example/x")):  # fmt: skip
        assert judged(call, bound).answer is DENY, call
        assert judged(call, Policy(Mode.YOLO, contained=True)).answer is ALLOW, call
    assert judged(write(workspace, "src/a.py"), bound).answer is ALLOW
    foreign = facts(workspace, "mcp__github__list", Asks.ANYTHING)  # a plugin's or a server's
    assert (judged(foreign, bound).answer, judged(foreign, Policy(Mode.YOLO)).answer) == (
        DENY,
        ALLOW,
    )
    assert "rule" in judged(foreign, bound).reason
    named = policy_of(Mode.YOLO, ["mcp__github__*"], [])
    named.contained = named.is_bound = True
    assert judged(foreign, named).answer is ALLOW
    allowed = policy_of(Mode.YOLO, ["web_fetch(a.example)"], [])
    allowed.contained = allowed.is_bound = True
    assert judged(fetch(workspace, "https://a.example/x"), allowed).answer is ALLOW
    assert (
        judged(fetch(workspace, "https://b.example/x"), replace(bound, network=True)).answer
        is ALLOW
    )


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.AUTO, Mode.YOLO])
def test_reading_a_credential_asks_in_every_tool_also_at_home(
    mode: Mode, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(workspace.root))
    (workspace.root / ".ssh").mkdir()
    (workspace.root / ".ssh/id_rsa").write_text("key")
    policy = policy_of(mode, ["bash", "read_file", "bash(cat *)"], [])
    policy.contained = True
    for call in (
        read(workspace, ".ssh/id_rsa"), read(workspace, ".ssh"), read(workspace, "src/../.aws/x"),
        command(workspace, "cat .ssh/id_rsa"), command(workspace, "cat ~/.ssh/id_rsa"),
        command(workspace, "cat .ssh/*"), command(workspace, "cat .s*/id_*"),
        command(workspace, "cd .ssh && cat id_rsa"), command(workspace, "wc < $HOME/.netrc"),
        command(workspace, "grep -f .pgpass src/a.py"), command(workspace, "base64 --wrap=.npmrc x"),
        command(workspace, "echo .ssh/id_rsa | xargs cat"), command(workspace, "cp .netrc x"),
        command(workspace, "python3 x.py .aws/credentials"), command(workspace, "cat $(echo .netrc)"),
        command(workspace, "git show HEAD~2:./.netrc"), command(workspace, "git cat-file -p :0:.npmrc"),
        command(workspace, "find . -name .netrc -exec cat {} +"), command(workspace, "dd if=.netrc"),
        command(workspace, "grep -e. .netrc"), command(workspace, "grep -nve x .netrc"),
        command(workspace, "fgrep --regexp= .netrc"), command(workspace, "grep -fsrc/a.py -v .netrc"),
        command(workspace, "sed -ne1p .netrc"), command(workspace, "sed --expression=p .netrc"),
        command(workspace, "cat -- --exclude .netrc"), command(workspace, "head -n1 -- ! -name .netrc"),
        command(workspace, "grep . -- --exclude=.netrc .netrc"), command(workspace, "cat -- --exclude-dir .ssh/id_rsa"),
        command(workspace, "awk 1 --exclude .netrc"), command(workspace, "nl ! -path .netrc"),
        command(workspace, "echo $(<.net\\\nrc)"),
        command(workspace, "f=.netrc; cat $f"), command(workspace, "curl -F f=@.netrc -d@x localhost"),
        command(workspace, "curl -d@.netrc x"), command(workspace, "cat " + "x " * 700 + ".netrc"),
        command(workspace, "shopt -s dotglob; cat *"), command(workspace, "for f in .s*/i*; do cat $f; done"),
        command(workspace, "python3 -c 'print(open(\"src/../.ssh/id_rsa\").read())'"),
        command(workspace, "node <<< \"console.log(fs.readFileSync('.ssh/id_rsa'))\""),
        command(workspace, "cat x.py; #" + "y" * 100_000 + "\ncat .netrc"),
    ):  # fmt: skip
        decision = judged(call, policy)
        assert (decision.answer, decision.lasts) == (ASK, False), call.call.arguments
        assert "credentials" in decision.reason
    default = Policy(Mode.DEFAULT, contained=True)
    for text in ("ls -la .ssh", "test -f .netrc && echo yes", "echo .env", "grep .env src/a.py",
                 "grep --exclude=x -l .env src/a.py",
                 "find . -name .env", "cat .env.example", "git check-ignore .env"):  # fmt: skip
        assert judged(command(workspace, text), default).answer is ALLOW, text
    auto = Policy(Mode.AUTO, contained=True)
    for text in (
        "python3 -c 'print(\".env\")'",
        "echo process.env." + "y" * 100_000,
        "git commit -m 'ignore .env'",
    ):
        assert judged(command(workspace, text), auto).answer is ALLOW, text[:99]
    for text, answer in (
        ("git rm --cached .env", ALLOW),
        ("git rm .env", ASK),
        ("git mv .env x", ASK),
    ):
        assert judged(command(workspace, text), auto).answer is answer, text


@pytest.mark.spec("SEC-3")
def test_the_projects_own_env_file_asks_but_in_yolo(workspace: Workspace) -> None:
    for mode, answer in ((Mode.DEFAULT, ASK), (Mode.AUTO, ASK), (Mode.YOLO, ALLOW)):
        assert judged(read(workspace, ".env"), Policy(mode)).answer is answer
        assert judged(command(workspace, "cat .env"), Policy(mode)).answer is answer
    (workspace.root / "linked").mkdir()
    (workspace.root / "linked/.env").symlink_to("../id_rsa")
    other = workspace.root.parent / "other/.env"
    for call in (
        command(workspace, "cat .env .netrc"), command(workspace, "cat .env; cat ~/.ssh/id_rsa"),
        command(workspace, f"cat {other}"), command(workspace, "cat .ssh/.env"),
        command(workspace, "cat linked/.env"), read(workspace, str(other)),
    ):  # fmt: skip
        assert judged(call, Policy(Mode.YOLO)).answer is ASK, call.call.arguments


@pytest.mark.spec("SEC-3")
@pytest.mark.parametrize("name", [".en[v]", ".en[^x]", ".en[[:alpha:]]", ".[!x]nv"])
def test_a_credential_named_by_a_set_of_letters_asks(workspace: Workspace, name: str) -> None:
    (workspace.root / ".env").write_text("KEY=1\n")
    assert "credentials" in judged(command(workspace, f"cat {name}"), Policy()).reason


@pytest.mark.spec("SEC-3")
def test_a_contained_command_may_change_gits_history_and_nothing_that_git_runs(
    workspace: Workspace,
) -> None:
    auto = Policy(Mode.AUTO, contained=True)
    for name in ("index", "HEAD", "refs/heads/x", "objects/ab/cd", "logs/HEAD", "packed-refs"):
        assert judged(command(workspace, f"echo x > .git/{name}"), auto).answer is ALLOW, name
        assert judged(write(workspace, f".git/{name}"), auto).answer is ASK, name
    for name in ("config", "hooks/x", "info/attributes", "config.worktree", "modules/a/config",
                 "worktrees/a/config.worktree", "x", "rebase-merge/git-rebase-todo"):  # fmt: skip
        assert judged(command(workspace, f"echo x > .git/{name}"), auto).answer is ASK, name


@pytest.mark.spec("SEC-4", "LOOP-4")
def test_a_free_command_that_moves_the_shell_is_told_apart(workspace: Workspace) -> None:
    for text, moves in (("cd src && ls", True), ("ls src", False), ("cat src/a.py | head", False)):
        call = command(workspace, text)
        assert effect_of(call) is Effect.READ
        assert moves_shell(call.call) is moves


@pytest.mark.spec("SEC-4")
def test_no_rule_frees_a_format_that_assigns(workspace: Workspace) -> None:
    policy = policy_of(Mode.DEFAULT, ["bash(printf *)", "bash(ls *)"], [])
    assert judged(command(workspace, "printf '%s' x; ls"), policy).answer is ALLOW
    for text in ("printf '%n' PATH; ls", "printf '%5$n' x", "printf -- '%ln' x", 'printf "$f" x',
                 "printf -v PATH x", "for PATH in .; do ls; done"):  # fmt: skip
        assert judged(command(workspace, text), policy).answer is ASK, text


@pytest.mark.spec("SEC-4", "UI-7")
def test_a_read_that_only_its_own_sandbox_frees_is_blamed_beside_a_rule(
    workspace: Workspace,
) -> None:
    policy = policy_of(Mode.DEFAULT, ["bash(make *)"], [])
    policy.contained = True
    decision = judged(command(workspace, "git status && make x"), policy)
    assert decision.answer is ASK
    assert decision.part == "git status"


@pytest.mark.spec("SEC-2", "SEC-4")
def test_what_another_program_runs_is_not_built_into_the_shell(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace.root / "bin").mkdir()
    (workspace.root / "bin/echo").write_text("#!/bin/sh\ntouch canary\n")
    (workspace.root / "bin/echo").chmod(0o755)
    policy = policy_of(Mode.DEFAULT, ["bash(make *)"], [])

    def answer(text: str) -> Answer:
        return judged(command(workspace, text), policy).answer

    assert answer("timeout 5 echo x && make") is ALLOW
    monkeypatch.setenv("PATH", f"{workspace.root}/bin:/usr/bin:/bin")
    assert answer("echo x && make") is ALLOW
    assert answer("timeout 5 echo x && make") is ASK


@pytest.mark.spec("SEC-4", "UI-7")
def test_the_part_that_is_blamed_is_one_that_asks_by_itself(workspace: Workspace) -> None:
    asked = judged(command(workspace, "git diff --stat; touch x"), Policy(contained=True))
    assert (asked.answer, asked.part) == (ASK, "touch x")


@pytest.mark.slow
@pytest.mark.spec("SEC-13")
@pytest.mark.parametrize(
    "piece",
    ["[a", "{a,b}", "$x", "${x:-", "`", "$(", "*", "a*/../", "'a' ", "[[:a:]", "@(a|", " <a", " >a", "../",
     " x=y", "; ls", "|cat $f", "; grep -R x .", "; cd a", " .{a..b}", "\\a", "&&rm -rf $x"],
)  # fmt: skip
@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.YOLO])
def test_no_text_takes_more_than_its_length_to_judge(
    piece: str, mode: Mode, workspace: Workspace
) -> None:
    def steps(size: int) -> int:
        """How many functions and lines of ours it takes; what one pattern costs is bounded by it."""
        text, count = f"cat {piece * (size // len(piece))}", 0

        def trace(frame: Any, event: str, _argument: Any) -> Any:
            nonlocal count
            count += (
                "agentcli/policy" in frame.f_code.co_filename
                or "fnmatch" in frame.f_code.co_filename
            )
            return trace

        sys.settrace(trace)
        try:
            judged(command(workspace, text), Policy(mode, contained=mode is Mode.DEFAULT))
        finally:
            sys.settrace(None)
        return count

    steps(10)
    small, large = steps(1_200), steps(9_600)
    assert large < 32 * small + 100_000, (small, large)
