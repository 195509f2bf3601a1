"""What a yes may grant beyond the one call: this very call again, or its like (UI-7).

Laws: a grant is offered only where it would answer the question; its text is the rule as it would
be written. A prefix is offered for programs that are known to do what their words say; never for
those that run what these name (interpreters, shells, wrappers), for what destroys, or is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agentcli.domain.errors import UsageError
from agentcli.domain.ports import GrantOffer
from agentcli.domain.tools import PREFIX, Asks
from agentcli.policy.bash_command import SimpleCommand
from agentcli.policy.decision import (
    EDIT_TOOLS,
    Answer,
    CallFacts,
    CallPlace,
    Decision,
    Rule,
    parse_rule,
)
from agentcli.policy.judge import judge, subject_of
from agentcli.policy.places import protected_place
from agentcli.policy.read_only_table import HARMLESS_WITH_ANY_OPTION

_LONGEST_WRITTEN = 500
_BELOW = "**"  # no rule means one file of this name alone
_ANY_PATTERN = re.compile(r"[*?\[\]]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
# checks, tests and reads whose words say what they do, whichever follow
_SAY = HARMLESS_WITH_ANY_OPTION | {
    "actionlint", "bandit", "basedpyright", "biome", "black", "clang-format", "clang-tidy",
    "cmp", "codespell", "comm", "cppcheck", "diff", "esbuild", "eslint", "flake8", "gofmt",
    "goimports", "golangci-lint", "hadolint", "isort", "jest", "jq", "ktlint", "markdownlint",
    "mkdir", "mocha", "mypy", "oxlint", "phpstan", "phpunit", "prettier", "psalm", "py.test",
    "pycodestyle", "pydocstyle", "pyflakes", "pyright", "pytest", "rollup", "rspec",
    "rubocop", "ruff", "rustfmt", "scc", "shellcheck", "shfmt", "sphinx-build", "staticcheck",
    "stylelint", "swiftformat", "swiftlint", "tokei", "touch", "tsc", "tsup", "ty", "vitest",
    "vue-tsc", "vulture", "webpack", "yamllint",
}  # fmt: skip
# programs whose first word says what they do -> the words that may stand there (empty: any name)
_WITH_WORD: dict[str, frozenset[str]] = {
    "git": frozenset({"add", "blame", "cherry-pick", "commit", "describe", "diff", "log", "merge",
                      "mv", "show", "status"}),
    "npm": frozenset({"run", "test", "ci", "ls", "outdated", "view"}),
    "pnpm": frozenset({"run", "test", "ls", "outdated", "view"}),
    "yarn": frozenset({"run", "test", "audit", "list", "outdated", "why"}),
    "cargo": frozenset({"bench", "build", "check", "clippy", "doc", "fmt", "metadata", "test",
                        "tree"}),
    "go": frozenset({"build", "doc", "fmt", "list", "test", "version", "vet"}),
    "pip": frozenset({"check", "freeze", "list", "show"}),
    "pip3": frozenset({"check", "freeze", "list", "show"}),
    "uv": frozenset({"lock", "tree"}),
    "poetry": frozenset({"check", "lock", "show"}),
    "docker": frozenset({"images", "inspect", "logs", "ps", "version"}),
    "podman": frozenset({"images", "inspect", "logs", "ps", "version"}),
    "kubectl": frozenset({"describe", "explain", "get", "logs", "top", "version"}),
    "gh": frozenset({"search", "status"}),  # after "repo" or "pr" the next word may delete or merge
    "dotnet": frozenset({"build", "format", "test"}),
    "composer": frozenset({"audit", "check", "outdated", "show", "validate"}),
    "bundle": frozenset({"audit", "check", "list", "outdated", "show"}),
    "docker-compose": frozenset({"config", "images", "logs", "ps", "version"}),
    "gradle": frozenset({"assemble", "build", "check", "test"}),
    "mix": frozenset({"compile", "credo", "format", "test"}),
    "next": frozenset({"build", "lint"}), "vite": frozenset({"build"}),
    "playwright": frozenset({"test"}),
    "make": frozenset(), "gmake": frozenset(), "ninja": frozenset(), "rake": frozenset(),
    "gulp": frozenset(), "grunt": frozenset(), "turbo": frozenset(), "nx": frozenset(),
}  # fmt: skip
# `python -m NAME` and `uv run NAME` are programs like any other
_MODULES = frozenset({"black", "flake8", "isort", "mypy", "pyright", "pytest",
                      "ruff", "unittest"})  # fmt: skip
_RUNS_NAMED = {"uv": "run", "poetry": "run", "npm": "exec", "pnpm": "exec", "hatch": "run"}
# of whatever program: the words after it are a program's
_RUN_WORDS = frozenset({"run", "exec", "dlx", "runner", "shell", "eval", "--exec"})
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")


def offers_of(
    call: CallFacts, place: CallPlace, decision: Decision
) -> tuple[tuple[GrantOffer, Rule], ...]:
    """What a yes may grant, as it is shown and as it is judged, the narrowest first."""
    if not decision.lasts or any(p.name == _BELOW for p in subject_of(call, place).paths):
        return ()
    exact = session_rule(call, place)
    offer, _ = _offer(exact, decision)
    if offer.always and not _answers(parse_rule(offer.rule), call, place):
        offer = replace(offer, always=False)  # written down it means the one of the project's root
    found = [(offer, exact)] if _answers(exact, call, place) else []
    found += [
        _offer(rule, decision)
        for rule in _prefixes(call, place)
        if str(rule) != str(exact) and _answers(rule, call, place)
    ]
    return tuple(found)


def granted_rule(offers: Sequence[tuple[GrantOffer, Rule]], chosen: str) -> Rule | None:
    """The rule that the user means by ``chosen``; empty is the first offer, ``None``: none.

    Raises ``UsageError`` where they have written something that is no rule.
    """
    if not chosen.strip():
        return offers[0][1] if offers else None
    for offer, rule in offers:
        if offer.rule == chosen:
            return rule
    if not offers:
        raise UsageError("this asks every time: there is nothing to grant", "answer yes or no")
    return parse_rule(chosen, "this session")


def session_rule(call: CallFacts, place: CallPlace) -> Rule:
    """What "yes, for this session" allows, and nothing beside it.

    This very command or host; the edits of the workspace, or of the other directory that it is in;
    where that is not what was asked about (a protected or an outside place), this tool and this
    very path.
    """
    subject = subject_of(call, place)
    name = call.definition.name
    text = subject.host if subject.host is not None else subject.text
    if text is not None:
        directory = subject.cwd if subject.host is None else None
        return Rule(name, text, exact=True, directory=directory)
    if not subject.paths:
        return Rule(name)
    inside = all(place.workspace.contains(path) for path in call.paths)
    own = place.policy.own_directories
    if inside and not protected_place((*call.paths, *subject.paths), own):
        tool = EDIT_TOOLS if call.definition.asks is Asks.EDIT else name
        bases = (base for _, base in place.workspace.led)
        whole = (base for base in bases if all(p.is_relative_to(base) for p in subject.paths))
        return Rule(tool, f"{next(whole, subject.root)}/**", exact=True)
    return Rule(name, str(subject.paths[0]), exact=True)


def lasting_rule(rule: Rule) -> str:
    """``rule`` as it may be written down for ever; empty where that would cover more (UI-7).

    A written rule is a pattern: one made of a text with pattern characters in it would not be
    this very text any more.
    """
    text = str(rule)
    if rule.pattern is None and rule.tool.startswith(PREFIX):
        return text
    pattern = rule.pattern or ""
    literal = pattern.removesuffix("/**") if rule.exact else pattern.removesuffix(" *")
    if rule.pattern is None or not literal or not text.isprintable():
        return ""
    if _ANY_PATTERN.search(literal) or len(text) > _LONGEST_WRITTEN:
        return ""
    return text if parse_rule(text) == replace(rule, exact=False) else ""


def _offer(rule: Rule, decision: Decision) -> tuple[GrantOffer, Rule]:
    always = decision.rule is None and bool(lasting_rule(rule))
    return GrantOffer(str(rule), session=True, always=always), rule


def _answers(rule: Rule, call: CallFacts, place: CallPlace) -> bool:
    """Whether the call would run unasked with ``rule`` granted."""
    policy = replace(place.policy, granted=[*place.policy.granted, rule])
    return judge(call, replace(place, policy=policy)).answer is Answer.ALLOW


def _prefixes(call: CallFacts, place: CallPlace) -> Iterator[Rule]:
    """The rules for calls like this one that one of its commands gives; one at most is offered."""
    subject = subject_of(call, place)
    if subject.text is None or subject.host is not None or not subject.parsed.understood:
        return
    found = {prefix for each in subject.parsed.commands if (prefix := _prefix(each))}
    for prefix in sorted(found):
        yield Rule(call.definition.name, f"{prefix} *")


def _prefix(command: SimpleCommand) -> str:
    """The words that say what ``command`` does; empty where the next call may do anything."""
    words = [word for word in command.words if word is not None]
    if len(words) != len(command.words) or not words or not _NAME.fullmatch(words[0]):
        return ""
    name, *rest = words
    if _PYTHON.fullmatch(name):
        return _of_module(words) if rest[:1] == ["-m"] else ""
    if rest[:1] == [_RUNS_NAMED.get(name)]:
        return _of_module(words)
    known = _WITH_WORD.get(name)
    if known is None:
        return name if name in _SAY else ""
    is_known = bool(rest) and (rest[0] in known if known else bool(_NAME.fullmatch(rest[0])))
    # of a script its name says what it does
    said = words[: 3 if is_known and rest[0] in _RUN_WORDS else 2]
    is_named = said[-1] not in _RUN_WORDS and _NAME.fullmatch(said[-1].replace(":", ""))
    return " ".join(said) if is_known and is_named else ""


def _of_module(words: list[str]) -> str:
    """``python -m pytest``, ``uv run mypy``: as the program that they name."""
    return " ".join(words[:3]) if len(words) > 2 and words[2] in _MODULES else ""  # noqa: PLR2004 - the program, how, and which
