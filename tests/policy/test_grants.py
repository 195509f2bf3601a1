"""What a yes may grant beyond the call: this very call, or its like."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.domain.errors import UsageError
from agentcli.domain.ports import GrantOffer
from agentcli.domain.ports import PermissionMode as Mode
from agentcli.domain.tools import Asks, ToolDefinition, Workspace
from agentcli.policy.decision import Answer, CallFacts, CallPlace, Policy, Rule, parse_rule
from agentcli.policy.grants import granted_rule, lasting_rule, offers_of
from agentcli.policy.judge import judge
from agentcli.policy.rules import Subject, covering
from tests.policy.asking import policy_of

BASH = ToolDefinition("bash", "Run", "runs", {}, Asks.ANYTHING, "shell")


def offered(workspace: Path, text: str, policy: Policy | None = None) -> list[str]:
    call = CallFacts(BASH, {"command": text})
    place = CallPlace(Workspace(workspace, workspace), policy or Policy())
    return [offer.rule for offer, _ in offers_of(call, place, judge(call, place))]


@pytest.mark.spec("UI-7", "SEC-4")
@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("pytest -q tests", "pytest *"),
        ("npm run build", "npm run build *"),
        ("pnpm run test:unit -w", "pnpm run test:unit *"),
        ("git commit -m x", "git commit *"),
        ("cargo test --all", "cargo test *"),
        ("make test", "make test *"),
        ("python3 -m pytest -x", "python3 -m pytest *"),
        ("uv run pytest -x", "uv run pytest *"),
        ("pytest -q && pytest -x", "pytest *"),
    ],
)
def test_the_exact_command_is_offered_and_its_prefix(
    text: str, prefix: str, tmp_path: Path
) -> None:
    assert offered(tmp_path, text) == [f"bash({text})", f"bash({prefix})"]


@pytest.mark.spec("UI-7", "SEC-4")
@pytest.mark.parametrize(
    "text",
    ["python -c 'print(1)'", "python3 x.py", "python3.12 x.py", "node x.js", "bash x.sh", "sh -c x",
     "env A=b make", "xargs make", "find . -delete", "sudo make", "rm x", "timeout 5 make",
     "npx eslint", "uv run x", "git config a b", "git push", "git -c a=b commit", "docker run x",
     "curl http://x", "./run.sh", "/usr/bin/make", "make A=b", "make", "npm install x", "go run x", "npm audit fix", "npm audit", "npm run",
     "perl5.36 -e x", "make > f", "A=b make x", "tee f", "awk '{print > 1}' a", "chmod +x a", "printf x y",
     "read x", "test -f x", "[ -f x ]", "gh repo view", "gh pr view 5", "hg commit", "rg x /srv", "rimraf x"],
)  # fmt: skip
def test_no_prefix_is_offered_for_what_runs_or_destroys_what_its_words_name(
    text: str, tmp_path: Path
) -> None:
    assert all("*" not in rule for rule in offered(tmp_path, text)), offered(tmp_path, text)


@pytest.mark.spec("UI-7", "SEC-3")
def test_nothing_is_offered_that_would_not_answer_the_question(tmp_path: Path) -> None:
    assert offered(tmp_path, "rm -rf .") == []
    assert offered(tmp_path, "pytest; make test") == ["bash(pytest; make test)"]
    denied = policy_of(Mode.DEFAULT, [], [], ["bash(pytest -x *)"])
    assert offered(tmp_path, "pytest -x a", denied) == ["bash(pytest -x a)", "bash(pytest *)"]


@pytest.mark.spec("UI-7")
def test_the_user_may_choose_an_offer_or_write_a_rule(tmp_path: Path) -> None:
    exact = Rule("bash", "rm *", exact=True)
    offers = ((GrantOffer("bash(rm *)"), exact), (GrantOffer("bash(x *)"), Rule("bash", "x *")))
    assert granted_rule(offers, "") is exact
    assert granted_rule(offers, "bash(rm *)") is exact
    assert granted_rule(offers, "bash(x *)") == Rule("bash", "x *")
    assert granted_rule(offers, "bash(x y)") == Rule("bash", "x y")
    assert granted_rule((), "") is None
    for wrong, given in (("bash(", offers), ("bash(x)", ())):
        with pytest.raises(UsageError):
            granted_rule(given, wrong)


@pytest.mark.spec("UI-7", "SEC-3")
def test_one_grant_covers_every_tool_that_edits(tmp_path: Path) -> None:
    rule = parse_rule("edit(src/**)")
    for tool, edits in (("edit_file", True), ("write_file", True), ("read_file", False)):
        subject = Subject(tool, (tmp_path / "src/a",), root=tmp_path, edits=edits)
        assert bool(covering([rule], subject)[0]) is edits
    policy = policy_of(Mode.YOLO, [], ["edit(src/**)"])
    place = CallPlace(Workspace(tmp_path, tmp_path), policy)
    edit = ToolDefinition("apply_patch", "Patch", "edits", {}, Asks.EDIT, "files")
    assert judge(CallFacts(edit, {}, (tmp_path / "src/a",)), place).answer is Answer.DENY


@pytest.mark.spec("UI-7", "SEC-3")
@pytest.mark.parametrize(("name", "offers"), [("a", ["write_file({})"]), ("**", [])])
def test_a_yes_to_one_file_elsewhere_grants_no_others(
    name: str, offers: list[str], tmp_path: Path
) -> None:
    work, path = tmp_path / "work", tmp_path / name
    write = ToolDefinition("write_file", "Write", "writes", {}, Asks.EDIT, "files")
    call = CallFacts(write, {"path": str(path)}, (path,))
    place = CallPlace(Workspace(work, work), Policy())
    found = offers_of(call, place, judge(call, place))
    assert [offer.rule for offer, _ in found] == [each.format(path) for each in offers]


@pytest.mark.spec("UI-7", "SEC-4")
@pytest.mark.parametrize(
    ("rule", "written"),
    [
        (Rule("bash", "git status", exact=True), "bash(git status)"),
        (Rule("bash", "git status; ls", exact=True), "bash(git status; ls)"),
        (Rule("edit_file", "/w/src/**", exact=True), "edit_file(/w/src/**)"),
        (Rule("bash", "rm *", exact=True), ""),
        (Rule("bash", "ls a?", exact=True), ""),
        (Rule("edit_file", "/w/[a]/**", exact=True), ""),
        (Rule("edit_file", "/**", exact=True), ""),
        (Rule("bash", "echo a\necho b", exact=True), ""),
        (Rule("bash", "echo " + "a" * 600, exact=True), ""),
        (Rule("report"), ""),
    ],
)
def test_only_a_rule_that_stays_this_very_text_is_written_down(rule: Rule, written: str) -> None:
    assert lasting_rule(rule) == written
    if written and rule.tool == "bash":
        again = parse_rule(written)
        assert covering([again], Subject("bash", text=rule.pattern))[0]
        for more in (" -x", "; id"):
            assert not covering([again], Subject("bash", text=f"{rule.pattern}{more}"))[0]


@pytest.mark.spec("UI-7", "SEC-4")
@pytest.mark.parametrize(
    "text",
    ["pipenv install", "mise exec -- x", "conda run x", "hyperfine ls", "tool run x",
     "cross-env A=1 node x.js", "ccache gcc x.c", "chpst -u x ls", "docker-compose up", "gtimeout 5 ls",
     "raku x", "jruby x", "luajit x", "srm -rf x", "mvn exec:exec", "gradle run", "gcc x.c", "new-tool x"],
)  # fmt: skip
def test_no_prefix_is_offered_of_what_runs_other_programs_or_is_not_known(
    text: str, tmp_path: Path
) -> None:
    assert offered(tmp_path, text) == [f"bash({text})"]


@pytest.mark.spec("UI-7", "SEC-4")
@pytest.mark.parametrize("always", [False, True])
def test_a_command_that_was_granted_is_another_one_elsewhere(tmp_path: Path, always: bool) -> None:
    (tmp_path / "sub").mkdir()
    call = CallFacts(BASH, {"command": "./build.sh"})

    def answer(cwd: Path, policy: Policy) -> Answer:
        return judge(call, CallPlace(Workspace(tmp_path, cwd), policy)).answer

    place = CallPlace(Workspace(tmp_path, tmp_path), Policy())
    ((offer, rule),) = offers_of(call, place, judge(call, place))
    below = CallPlace(Workspace(tmp_path, tmp_path / "sub"), Policy())
    assert offer.always and not offers_of(call, below, judge(call, below))[0][0].always
    policy = Policy(allow=(parse_rule(offer.rule),)) if always else Policy(granted=[rule])
    assert answer(tmp_path, policy) is Answer.ALLOW
    assert answer(tmp_path / "sub", policy) is Answer.ASK


@pytest.mark.spec("UI-7", "SEC-3", "SEC-4")
@pytest.mark.parametrize(
    ("rule", "within", "beyond"),
    [
        ("git log *", "-p --oneline", ["--output=/srv/x", "--output /srv/x", "--outp=x"]),
        ("git fetch *", "origin --prune -u", ["--upload-pack=./x .", "--upload-pack ./x .", "--upl=./x ."]),
        ("git push *", "-u origin main --force-with-lease", ["--receive-pack=./x . a", "--exec=./x . a"]),
        ("git cherry-pick *", "-x -s --strategy=ort -Xours a", ["--strategy=../x a", "--strategy ../x a", "--strat=../x a"]),
        ("git rebase *", "--onto a b", ["-x ./x a", "--exec ./x a", "-ix./x a", "-s ../x a"]),
        ("git grep *", "-n -e x --or -e y", ["-O./x y", "-nO./x y", "--open=./x y"]),
        ("git clone *", "--depth 1 . x", ["-u ./x . y", "-c core.fsmonitor=./x . y", "--template=x . y"]),
        ("git bisect *", "start", ["run ./x"]),
        ("git submodule *", "update --init --recursive", ["foreach ./x"]),
        ("gulp build *", "--silent", ["--gulpfile x.js", "-f x.js"]),
        ("make test-e2e *", "-j4", ["-f x", "-fx", "e=x"]),
        ("make test *", "-j4 -k --silent lint", ["CC='touch x'", "--eval=x", "--ev=x", "-f x", "-kC x", "SHELL=./x"]),
        ("cargo test *", "--release -- --nocapture", ["--config x", "--config=x", "--manifest-path=x"]),
        ("cargo run *", "--release -- --config x -C y", ["--config x -- a"]),
        ("go build *", "-v -o bin/app ./...", ["-o /srv/x .", "-o=/srv/x", "--o ~/x", "-o ../x", "-o a/../../x .", "-C /srv"]),
        ("go test *", "-c -o x -coverprofile=c.out", ["-outputdir /srv", "-cpuprofile=/srv/x", "-coverprofile /srv/x", "-trace ../x"]),
        ("cargo build *", "--target-dir out --release", ["--target-dir /srv", "--target-dir=../x", "--artifact-dir /srv"]),
        ("dotnet build *", "-o out", ["-o /srv", "--output=/srv", "--artifacts-path ../x"]),
        ("vite build *", "--outDir dist", ["--outDir /srv --emptyOutDir", "--outDir=../x"]),
        ("go test *", "-run X ./... -count=1", ["-exec ./x", "--toolexec=./x", "-C /srv"]),
        ("npm ci *", "--prefer-offline --no-audit --scope=x", ["--node-options=x", "--userconfig=x", "--git=./x"]),
        ("npm test *", "-- -C x --no-cache --shard=1/2", ["--script-shell=x -- a"]),
        ("uv run pytest *", "-p no:randomly --python x", []),
        ("uv sync *", "--frozen", ["-p x", "run --project=x"]),
        ("npm run *", "build --silent -- --watch", ["build --script-shell=./x", "x -script-shell=./x", "x --script-s ./x", "x --prefix /srv"]),
        ("npm ci *", "--no-audit", ["--registry=http://x", "--reg http://x", "--@a:registry=http://x"]),
        ("pip list *", "--format=json --local -o", ["--log x", "--log=x", "--index-url=http://x", "-qi http://x"]),
        ("uv lock *", "--upgrade", ["--index http://x", "--default-index=http://x", "-i http://x", "--find-links x"]),
        ("poetry show *", "-v --tree", ["-C /srv", "--directory=/srv", "-P/srv"]),
        ("composer show *", "-i", ["-d /srv", "--working-dir=/srv", "--wor /srv"]),
        ("dotnet test *", "--no-build --filter x", ["-p:A=x", "/p:A=x", "--source http://x", "@x", "-s http://x"]),
        ("gradle test *", "--info -q", ["-I x", "--init-script x", "-p /srv", "-Dorg.gradle.java.home=x"]),
        ("kubectl get *", "pods -n x -ojson -A --since=1h", ["pods --kubeconfig=x", "pods --server=https://x", "pods -s https://x", "pods -As https://x"]),
    ],
)  # fmt: skip
def test_a_prefix_covers_no_option_that_runs_or_writes_what_it_names(
    tmp_path: Path, rule: str, within: str, beyond: list[str]
) -> None:
    place = CallPlace(Workspace(tmp_path, tmp_path), Policy(allow=(parse_rule(f"bash({rule})"),)))
    start = rule.removesuffix(" *")
    for options in (within, *beyond):
        found = judge(CallFacts(BASH, {"command": f"{start} {options}"}), place).answer
        assert found is (Answer.ALLOW if options == within else Answer.ASK), options
    wide = Policy(allow=(parse_rule(f"bash({start.split()[0]} *)"),))
    any_call = CallFacts(BASH, {"command": f"{start} {[within, *beyond][-1]}"})
    said = judge(any_call, CallPlace(place.workspace, wide)).answer
    assert said is (Answer.ASK if start.startswith("git ") else Answer.ALLOW)


@pytest.mark.spec("UI-7", "SEC-4")
@pytest.mark.parametrize(
    ("text", "within", "beyond"),
    [
        ("pytest -q", "-q -k 'a or b' --lf -p no:cacheprovider --cov=a --junitxml=out/a.xml tests", ["--basetemp=/srv/x", "--basetemp /srv/x", "-c /srv/x.ini", "-qo cache_dir=/srv", "--rootdir=/srv", "--junitxml=/srv/x", "--junit-xml=../x", "--junitxml x"]),
        ("py.test -q", "-x --tb=short tests/a.py", ["--basetemp=/srv/x", "-c x"]),
        ("mypy src", "--strict -p a --no-incremental", ["--cache-dir=/srv", "--config-file x", "--python-executable=./x", "--html-report /srv", "@x"]),
    ],
)  # fmt: skip
def test_a_prefix_that_is_a_program_alone_covers_no_such_option_either(
    tmp_path: Path, text: str, within: str, beyond: list[str]
) -> None:
    name = text.split()[0]
    assert f"bash({name} *)" in offered(tmp_path, text)
    place = CallPlace(Workspace(tmp_path, tmp_path), Policy(allow=(parse_rule(f"bash({name} *)"),)))
    for options in (within, *beyond):
        found = judge(CallFacts(BASH, {"command": f"{name} {options}"}), place).answer
        assert found is (Answer.ALLOW if options == within else Answer.ASK), options


@pytest.mark.spec("UI-7", "SEC-3")
@pytest.mark.parametrize(
    ("names", "offers"),
    [
        (["more/a"], ["edit({}/more/**)"]),
        (["work/a"], ["edit({}/work/**)"]),
        (["work/a", "more/a"], []),
        (["work/a", "elsewhere"], []),
    ],
)
def test_a_yes_for_the_session_is_about_what_was_asked(
    names: list[str], offers: list[str], tmp_path: Path
) -> None:
    edit = ToolDefinition("apply_patch", "Patch", "edits", {}, Asks.EDIT, "files")
    call = CallFacts(edit, {}, tuple(tmp_path / name for name in names))
    work, more = tmp_path / "work", tmp_path / "more"
    place = CallPlace(Workspace(work, work, (more,)), Policy())
    found = offers_of(call, place, judge(call, place))
    assert [offer.rule for offer, _ in found] == [each.format(tmp_path) for each in offers]


@pytest.mark.spec("SEC-3", "SEC-4")
@pytest.mark.parametrize(
    ("rule", "command", "is_allowed"),
    [
        ("git *", "git -c user.name=a -c core.quotepath=off -c color.ui=false commit -m y", True),
        ("git *", "git -c alias.x='!touch p' x", False),
        ("git *", "git -c core.pager=./x -p log", False),
        ("git *", "git -c core.sshCommand=./x fetch", False),
        ("git *", "git -c diff.external=./x diff", False),
        ("git *", "git -c core.hooksPath=x commit -m y", False),
        ("git *", "git -c include.path=x commit -m y", False),
        ("git *", "git --exec-path=. x", False),
        ("git *", "git --config-env core.pager=X log", False),
        ("git *", "git filter-branch --tree-filter './x'", False),
        ("git -c core.pager=* *", "git -c core.pager=cat fetch", True),
        ("git -c core.pager=* *", "git -c core.pager=cat -c core.editor=./x commit", False),
    ],
)  # fmt: skip
def test_a_rule_for_git_covers_no_setting_that_runs_what_it_names(
    tmp_path: Path, rule: str, command: str, is_allowed: bool
) -> None:
    place = CallPlace(Workspace(tmp_path, tmp_path), Policy(allow=(parse_rule(f"bash({rule})"),)))
    found = judge(CallFacts(BASH, {"command": command}), place).answer
    assert (found is Answer.ALLOW) is is_allowed
