"""Where names of a command lead, without running anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentcli.policy.rules import parsed_command
from agentcli.policy.shell_places import expanded, moves, places_of, seen_words, starts_of

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
    commands = parsed_command(command).commands
    found = starts_of(commands, HERE)
    assert ([str(each) for each in found.directories], found.is_sure) == (starts, is_sure)
    assert moves(commands) is ("cd" in command or "pushd" in command)


def test_cd_alone_leads_home(home: Path) -> None:
    assert home in starts_of(parsed_command("cd").commands, HERE).directories


@pytest.mark.spec("SEC-14")
@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("~/x", "~/x"), ("$HOME/x", "~/x"), ("${HOME}", "~"), ("$PWD", "."), ("*.py", "*.py"),
        ("$HOMER", None), ("$(pwd)", None), ("`x`", None), ("${X}", None), ("{a,b}", "{a,b}"),
    ],
)  # fmt: skip
def test_what_is_surely_expanded_is(source: str, seen: str | None) -> None:
    assert expanded(source) == seen
    assert seen_words(parsed_command(f"A=1 rm -rf {source}").commands[0])[-1] in {seen, None}


@pytest.mark.spec("SEC-14", "SEC-5")
def test_names_lead_to_paths(home: Path) -> None:
    def of(name: str) -> list[str]:
        return [str(path) for path in places_of(name, [HERE])]

    assert of("a{b,c}") == ["/work/ab", "/work/ac"]
    assert of("~/x") == [f"{home}/x"]
    assert of("~nobody-of-that-name/x") == ["/work/~nobody-of-that-name/x"]
    assert of("/proc/self/cwd/x") == ["/work/x"]
    assert of("/proc/12/root/etc") == ["/etc"]
    assert of("{a,b}" * 20) == ["/work/" + "*" * 20]


@pytest.mark.spec("SEC-3", "SEC-14")
def test_a_directory_with_a_backslash_is_a_directory() -> None:
    odd = Path("/w/a\\1\\")
    assert list(places_of("/proc/self/cwd/x", [odd])) == [odd / "x"]
    assert list(places_of("x", [odd])) == [odd / "x"]
