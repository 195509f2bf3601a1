"""The tables of programs that only read."""

from __future__ import annotations

import pytest

from agentcli.policy.read_only_tables import SPECS, spec_of

KINDS = {"files", "file", "text", "pattern", "any", "none"}


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize("program", sorted(SPECS))
def test_every_line_can_be_read(program: str) -> None:
    spec = spec_of(program)
    assert spec is not None
    assert spec.operands in KINDS


@pytest.mark.spec("SEC-4")
@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("sort", "-o --output -T --compress-program --files0-from"),
        ("rg", "--pre -z --search-zip --hostname-bin -L --follow"),
        ("fd", "-x -X --exec --exec-batch -L -l"),
        ("tree", "-o -R -l --fromfile"),
        ("tail", "-f -F --follow --retry"),
        ("file", "-C -f -m -z -p"),
        ("xxd", "-r"),
        ("base64", "-o --output"),
        ("hostname", "-F -b"),
        ("diff", "-l --paginate"),
        ("ls", "-L"),
        ("wc", "--files0-from"),
    ],
)
def test_dangerous_options_are_not_in_the_table(program: str, options: str) -> None:
    spec = spec_of(program)
    assert spec is not None
    assert spec.marks.keys().isdisjoint(options.split())


def test_a_program_that_is_not_in_the_table_has_no_line() -> None:
    assert spec_of("rm") is None
