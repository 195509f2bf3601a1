"""What each language's queries find in a small file of it (MEM-3)."""

from __future__ import annotations

import pytest

from agentcli.codemap import parse as parsing
from agentcli.codemap.grammars import LANGUAGES, queries_of
from agentcli.codemap.parse import IMPORT, MEMBER, USE, Parsed, parse

PYTHON = """\
from x.y import Base, other
LIMIT = 3
class A(Base):
    size = 4
    def go(self, other, n=LIMIT):
        v = other.run(self.size, key=n)
        return v, helper(v)
def helper(a): return a
"""
# file name -> content, and some of what it defines and uses
CASES = {
    "a.js": (
        (
            "import { base } from './lib/base';\nclass A { go(x) { return base(x).run(helper) } }\n"
            "const helper = (y) => y;\n"
        ),
        {("A", "class", ""), ("go", "method", "A"), ("helper", "function", "")},
        {("base", IMPORT), ("base", USE), ("run", MEMBER), ("helper", USE)},
    ),
    "a.ts": (
        (
            "interface Shape { area(): number }\nenum Kind { One }\n"
            "export class A implements Shape { area() { return size(this) } }\ntype T = Shape;\n"
        ),
        {("Shape", "interface", ""), ("Kind", "enum", ""), ("area", "method", "A")},
        {("Shape", USE), ("size", USE)},
    ),
    "a.tsx": (
        "export function App() { return <Box n={go(1)} /> }\n",
        {("App", "function", "")},
        {("Box", USE), ("go", USE)},
    ),
    "a.go": (
        (
            'package m\nimport "x/store"\ntype T struct { n int }\n'
            "func (t *T) Go(k int) int { return store.Load(k) + help(t.n) }\n"
        ),
        {("T", "type", ""), ("Go", "method", "T"), ("n", "field", "T")},
        {("store", IMPORT), ("Load", MEMBER), ("help", USE), ("n", MEMBER)},
    ),
    "a.rs": (
        (
            "struct S { n: u8 }\nimpl S { fn go(&self, k: u8) -> u8 { help(self.n, k) } }\n"
            "trait Tr { fn run(&self); }\n"
        ),
        {("S", "struct", ""), ("go", "method", "S"), ("Tr", "trait", "")},
        {("help", USE), ("n", MEMBER)},
    ),
    "A.java": (
        "class A extends B { int n; A() {} void go(int k) { C.make(k).run(n); } }\n",
        {("A", "class", ""), ("go", "method", "A"), ("n", "field", "A")},
        {("B", USE), ("C", USE), ("make", MEMBER), ("run", MEMBER), ("n", USE)},
    ),
    "a.c": (
        "#define MAX 3\nstruct s { int n; };\nstatic int *go(struct s *p) { return help(p->n, MAX); }\n",
        {("MAX", "macro", ""), ("s", "struct", ""), ("go", "function", "")},
        {("help", USE), ("n", MEMBER), ("MAX", USE), ("s", USE)},
    ),
    "a.cpp": (
        (
            "namespace q { class A { int run(int k) { return help(k); } }; }\n"
            "int A::go(int k) { return run(k); }\n"
        ),
        {("A", "class", "q"), ("run", "method", "A"), ("go", "method", "A")},
        {("help", USE), ("run", USE)},
    ),
    "a.rb": (
        "module M\n  class A < B\n    def go(k)\n      k.run(help(k))\n    end\n  end\nend\n",
        {("M", "module", ""), ("A", "class", "M"), ("go", "method", "A")},
        {("B", USE), ("run", MEMBER), ("help", MEMBER)},
    ),
    "a.php": (
        "<?php\nclass A extends B { function go($k) { return $k->run(help($k)); } }\n",
        {("A", "class", ""), ("go", "method", "A")},
        {("B", USE), ("run", MEMBER), ("help", USE)},
    ),
    "a.cs": (
        "class A : B { int N { get; set; } void Go(int k) { k.Run(Help(k)); } }\n",
        {("A", "class", ""), ("Go", "method", "A"), ("N", "field", "A")},
        {("B", USE), ("Run", MEMBER), ("Help", MEMBER)},
    ),
    "a.sh": ("go() { help 1; }\ngo\n", {("go", "function", "")}, {("help", USE), ("go", USE)}),
    "a.kt": (
        "class A\nfun go(k: Int) = k.run(help(k))\n",
        {("A", "class", ""), ("go", "function", "")},
        {("run", MEMBER), ("help", USE)},
    ),
}


def pairs(found: Parsed) -> dict[tuple[str, int], list[int]]:
    merged: dict[tuple[str, int], list[int]] = {}
    for (name, how, _), lines in found.uses.items():
        merged[name, how] = sorted({*merged.get((name, how), []), *lines})
    return merged


@pytest.mark.spec("MEM-3")
def test_python_definitions_have_their_places_and_locals_are_no_uses() -> None:
    found = parse("a.py", PYTHON.encode())
    assert [(d.name, d.kind, d.line, d.end, d.container) for d in found.definitions] == [
        ("LIMIT", "constant", 2, 2, ""),
        ("A", "class", 3, 7, ""),
        ("size", "field", 4, 4, "A"),
        ("go", "method", 5, 7, "A"),
        ("helper", "function", 8, 8, ""),
    ]
    assert pairs(found) == {
        ("x", IMPORT): [1], ("y", IMPORT): [1], ("Base", IMPORT): [1], ("other", IMPORT): [1],
        ("Base", USE): [3], ("LIMIT", USE): [5], ("run", MEMBER): [6], ("size", MEMBER): [6],
        ("helper", USE): [7],
    }  # fmt: skip


@pytest.mark.spec("MEM-3")
@pytest.mark.parametrize("name", CASES)
def test_definitions_and_uses_of_a_language(name: str) -> None:
    source, defined, used = CASES[name]
    found = parse(name, source.encode())
    assert defined <= {(each.name, each.kind, each.container) for each in found.definitions}
    if not found.note:  # a grammar that is not installed leaves text
        assert used <= set(pairs(found))
        assert ("k", USE) not in pairs(found) or name == "a.kt"


@pytest.mark.spec("MEM-3")
def test_every_grammar_that_is_installed_takes_its_queries() -> None:
    taken = {language.name for language in LANGUAGES if queries_of(language) is not None}
    assert {"python", "javascript", "go", "java", "c", "bash"} <= taken


@pytest.mark.slow
@pytest.mark.spec("MEM-3")
@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"\xff\xfe\x00",
        b"def \xff(): pass\n",
        b"class " * 500,
        b"((((" * 5_000,
        "déf = 1\n".encode("latin-1"),
    ],
    ids=["empty", "utf-16", "invalid", "broken", "deep", "latin-1"],
)
def test_broken_sources_are_read_as_far_as_they_go(source: bytes) -> None:
    for name in ("a.py", "a.js", "a.c", "a.kt"):
        for each in parse(name, source).definitions:
            assert each.name.encode()


@pytest.mark.spec("MEM-3")
def test_definitions_and_uses_of_one_file_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "MAX_DEFINITIONS", 10)
    monkeypatch.setattr(parsing, "MAX_USES", 5)
    source = "".join(f"def f{n}(): return g{n}()\n" for n in range(30)).encode()
    for name in ("a.py", "a.kt"):
        found = parse(name, source)
        assert len(found.definitions) == 10
        assert sum(map(len, found.uses.values())) <= 5
        assert found.note


@pytest.mark.spec("MEM-3", "SEC-13")
def test_what_is_too_hard_is_given_up_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for source in (b"(" * 100_000, b"x = 1\n" + b"[{(" * 20_000, b"lambda a:" * 31_000 + b"1"):
        assert parse("a.py", source).note == parsing.GIVEN_UP
    assert parse("a.py", b"x = 1\n" * 10_000, -1.0).note == parsing.GIVEN_UP
    monkeypatch.setattr(parsing, "MAX_NODES", 100)
    assert parse("a.py", b"x = 1\n" * 100).note == parsing.GIVEN_UP


@pytest.mark.spec("MEM-3", "SEC-13")
@pytest.mark.parametrize("unit", ["\n", "export\n", "export ", ".\n", ".\n\n\n\n\n\n", "class "])
def test_text_takes_time_by_its_length_and_not_by_its_square(unit: str) -> None:
    assert parse("a.kt", unit.encode() * (200_000 // len(unit))).definitions[1:] == []


@pytest.mark.spec("MEM-3")
def test_a_use_of_a_member_knows_what_it_is_a_member_of() -> None:
    source = "class A(b.B, C[D], metaclass=M):\n  def f(self, k): self.go(k.x, super().y, p.q.z, '-'.w)\n"
    found = parse("a.py", source.encode())
    assert found.definitions[0].bases == "B C"
    owners = {name: owner for name, how, owner in found.uses if how == MEMBER}
    assert owners == {"B": "b", "go": "self", "x": "k", "y": "super", "q": "p", "z": "", "w": '"'}
    java = parse("A.java", b"class A<T> extends B<C> implements D { void f() { go(); this.x(); } }")
    if not java.note:
        assert java.definitions[0].bases == "B D"
        assert {("go", MEMBER, "this"), ("x", MEMBER, "this")} <= set(java.uses)
