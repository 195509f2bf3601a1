"""Walks the syntax tree of a bash text and lists its simple commands (SEC-4).

The walk is iterative: ten thousand nested parentheses are a long list, not a deep recursion.
Laws: every call that the tree holds is listed, also where the text is not understood. What is
understood is an allowlist: a kind of node, a token, a gap in the text or a leaf that is not in the
tables makes the whole text "not understood"; nothing is ever guessed to be harmless.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING

from agentcli.domain.values import frozen, mutable
from agentcli.policy.bash_command import Loop, Redirection, SimpleCommand, unquote, within_quotes

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


# --- which syntax is understood ------------------------------------------------------------

# kind -> the anonymous tokens that it may hold; named kinds in no table are not understood
_STRUCTURE: dict[str, frozenset[str]] = {
    "program": frozenset({";", "&", "\n"}),
    "list": frozenset({"&&", "||", ";", "&", "\n"}),
    "pipeline": frozenset({"|", "|&"}),
    "command": frozenset(),
    "command_name": frozenset(),
    "redirected_statement": frozenset(),
    "negated_command": frozenset({"!"}),
    "subshell": frozenset({"(", ")", ";", "&", "\n"}),
    "compound_statement": frozenset({"{", "}", ";", "&", "\n"}),
    "if_statement": frozenset({"if", "then", "fi", ";", "&", "\n"}),
    "elif_clause": frozenset({"elif", "then", ";", "&", "\n"}),
    "else_clause": frozenset({"else", ";", "&", "\n"}),
    "for_statement": frozenset({"for", "in", ";", "\n"}),
    "while_statement": frozenset({"while", "until", ";", "&", "\n"}),
    "do_group": frozenset({"do", "done", ";", "&", "\n"}),
    "case_statement": frozenset({"case", "in", "esac", ";", "\n"}),
    "case_item": frozenset({")", "(", "|", ";;", ";", "&", "\n"}),
    "declaration_command": frozenset({"declare", "typeset", "export", "readonly", "local"}),
    "unset_command": frozenset({"unset"}),
    "variable_assignment": frozenset({"=", "+="}),
    "variable_assignments": frozenset(),
    "command_substitution": frozenset({"$(", ")", "`", ";", "&", "\n"}),
    "process_substitution": frozenset({"<(", ">(", ")", ";", "&", "\n"}),
    "test_command": frozenset({"[", "]", "[[", "]]"}),
    "unary_expression": frozenset({"!"}),
    "binary_expression": frozenset({"==", "=", "!=", "&&", "||", "-a", "-o", "=~", "<", ">"}),
    "parenthesized_expression": frozenset({"(", ")"}),
    "concatenation": frozenset(),
    "string": frozenset({'"'}),
    "simple_expansion": frozenset({"$"}),
    "expansion": frozenset(
        {"${", "}", ":-", "-", ":+", "+", ":?", "?", "#", "##", "%", "%%", "/", "//", "^", "^^",
         ",", ",,"}
    ),
    "file_redirect": frozenset({">", ">>", "<", "&>", "&>>", ">&", "<&", ">|", ">&-", "<&-"}),
    "heredoc_redirect": frozenset({"<<", "<<-", "&&", "||", "|", "|&"}),
    "herestring_redirect": frozenset({"<<<"}),
    "heredoc_body": frozenset(),
}  # fmt: skip
# a bare word: no quotes, and what is special only behind a backslash
_WORD = re.compile(r"(?:\\[^\n]|[^\s'\"`$<>|&;()\\])+", re.ASCII)
_INNER_TEXT = re.compile(r"(?:\\.|[^`$\\])*", re.DOTALL)
_LEAVES: dict[str, re.Pattern[str]] = {
    "word": _WORD,
    "extglob_pattern": _WORD,
    "regex": _WORD,
    "number": re.compile(r"-?[0-9]+"),
    "raw_string": re.compile(r"'[^']*'"),
    "string_content": _INNER_TEXT,
    "heredoc_content": re.compile(r".*", re.DOTALL),
    "variable_name": re.compile(r"[A-Za-z0-9_]+"),
    "special_variable_name": re.compile(r"[*@?!#$0_-]"),
    "comment": re.compile(r"#[^\n]*"),
    "file_descriptor": re.compile(r"[0-9]"),  # of "10>&1" plain shells make a word
    "heredoc_start": re.compile(r"[^\s<>|&;()$`]+"),
    "heredoc_end": re.compile(r"[^\n]+"),
    "test_operator": re.compile(r"-[a-zA-Z]{1,2}"),
}
_REDIRECTS = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect"})
# kinds in which a line may end; elsewhere it ends the command
_LINES = frozenset(
    {
        "program", "list", "pipeline", "subshell", "compound_statement", "if_statement",
        "elif_clause", "else_clause", "for_statement", "while_statement", "do_group",
        "case_statement", "case_item", "command_substitution", "process_substitution",
    }
)  # fmt: skip
# kinds whose children may touch: they are one word
_WORDS = frozenset(
    {
        "concatenation", "simple_expansion", "expansion", "variable_assignment",
        "unary_expression", "binary_expression", "parenthesized_expression",
        "command_substitution",
    }
)  # fmt: skip
# kinds between whose parts a line may be continued: what is joined are no halves of one part
_CONTINUED = _LINES | {"command", "declaration_command", "redirected_statement", "negated_command"}
# kinds that end with what ends their last command
_CLAUSES = frozenset({"elif_clause", "else_clause", "case_item"})
_PLACED = frozenset({"heredoc_start", "heredoc_body", "heredoc_end"})  # judged by their lines
_METACHARACTERS = b" \t\n;&|<>()"
_OPAQUE = frozenset({"string", "heredoc_body"})  # gaps are judged otherwise
# of "git 0<a push" the parser makes a word and a redirection
_NUMBERED = re.compile(rb"(?:\A|[\s;&|()<>])[0-9]+\Z")
_LONGEST_NUMBER = 64
# ">& -x" closes a stream for the program x
_CLOSED = re.compile(r"[0-9]*[<>]&[ \t]*-[^\s]")
# within "${…}" bash and the parser read quotes differently
_EXPANSION = re.compile(r"\$\{#?[A-Za-z0-9_][^'\"\\`]*\}|\$\{[#?$!@*-]\}")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!_-])", re.ASCII)
_PLAIN_VARIABLE = re.compile(r"[a-z_][a-z0-9_]{0,30}|[A-Z]", re.ASCII)
_ARITHMETIC = re.compile(r"\$\(\([0-9 +*/%<>=-]*\)\)")
_COMPARING_TESTS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_COMPARING = frozenset(map(str.encode, _COMPARING_TESTS))
_EVALUATING_TESTS = _COMPARING_TESTS | {"-v", "-R"}
# unquoted words that bash takes for syntax where a command starts
_RESERVED = frozenset(
    {
        "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
        "in", "select", "function", "{", "}", "!", "[[", "]]", "coproc",
    }
)  # fmt: skip
# lists and pipes of simple commands
_PLAIN = frozenset(
    {
        "program", "list", "pipeline", "command", "command_name", "word", "number", "string",
        "string_content", "raw_string", "concatenation", "redirected_statement", "file_redirect",
        "file_descriptor", "comment", "test_command", "unary_expression", "binary_expression",
        "test_operator",
    }
)  # fmt: skip
_PLAIN_TOKENS = frozenset(
    {
        ";", "\n", "&&", "||", "|", '"', ">", ">>", "<", "&>", "&>>", ">&", "<&", ">|", "[", "]",
        "=", "==", "!=", "!", "-a", "-o",
    }
)  # fmt: skip


def doubt(node: Node, children: list[Node], source: bytes) -> str:
    """Why this node is not understood, looking at it and its children; empty when it is."""
    kind = node.type
    if node.is_error or node.is_missing:
        return "it is not complete shell syntax"
    text = source[node.start_byte : node.end_byte].decode()
    if not node.is_named:  # "-ofile<<" is one token to the parser
        is_all = text.strip(" \t") == kind.strip(" \t")
        return "" if is_all else "the parser skips a part of it"
    if kind == "arithmetic_expansion":
        return "" if _ARITHMETIC.fullmatch(text) else "it evaluates arithmetic"
    if kind in _LEAVES:
        return _leaf(node, children, text)
    tokens = _STRUCTURE.get(kind)
    if tokens is None:
        return f"it uses {kind.replace('_', ' ')}"
    check = _SPECIAL.get(kind)  # what the grammar accepts and bash reads in another way
    problem = _inside(node, children, source, tokens)
    if kind in _REDIRECTS and not problem:
        before = source[max(0, node.start_byte - _LONGEST_NUMBER) : node.start_byte]
        is_numbered = _NUMBERED.search(before.replace(b"\\\n", b""))
        problem = "the parser takes the number of a redirection for a word" if is_numbered else ""
    return check(children, text) if check and not problem else problem


def _leaf(node: Node, children: list[Node], text: str) -> str:
    pattern = _LEAVES[node.type]
    if children or not pattern.fullmatch(text):
        return "it holds a word that the parser may misread"
    if node.type == "test_operator" and text in _EVALUATING_TESTS and not _compares(node, text):
        return "it evaluates arithmetic"
    return ""


def _compares(node: Node, text: str) -> bool:
    """Whether the operator takes numbers alone: in ``[``, where bash evaluates nothing."""
    parent = node.parent
    while parent is not None and parent.type.endswith("_expression"):
        parent = parent.parent
    is_bracket = parent is not None and bool(parent.children) and parent.children[0].type == "["
    return is_bracket and text in _COMPARING_TESTS


def _inside(node: Node, children: list[Node], source: bytes, tokens: frozenset[str]) -> str:
    at = node.start_byte
    left_over = []
    before: Node | None = None
    for child in children:
        if not child.is_named and child.type.strip(" \t") not in tokens:
            return f"it uses {child.type!r} in an unusual place"
        gap = _between(node, at, child, source)
        if gap is None or (before and _is_torn(node, gap, before, child, source)):
            return "the parser splits a word or joins two lines"
        left_over.append(b"" if _is_dash(gap, child) else gap)
        at, before = child.end_byte, child
    if children:
        left_over.append(source[at : node.end_byte])
        if node.type not in _OPAQUE and b"".join(left_over).strip(b" \t\n"):
            return "the parser skips a part of it"
    if node.type == "string" and not _INNER_TEXT.fullmatch(b" ".join(left_over).decode()):
        return "the parser skips a part of it"
    return ""


def _between(node: Node, at: int, child: Node, source: bytes) -> bytes | None:
    """What stands before ``child``, with its lines joined; ``None``: they would join two parts."""
    gap = source[at : child.start_byte]
    if b"\\\n" not in gap or node.type not in _CONTINUED:
        return gap
    return gap.replace(b"\\\n", b"") or None


def _is_torn(node: Node, gap: bytes, before: Node, child: Node, source: bytes) -> bool:
    """Whether the two children are one word to bash, or parts of two commands."""
    if node.type in _OPAQUE or child.type in _PLACED:
        return False
    if gap:
        return b"\n" in gap and node.type not in _LINES
    is_clause = not before.is_named or before.type in _CLAUSES  # of a word the last may be quoted
    is_end = is_clause and source[before.end_byte - 1 : before.end_byte] in _METACHARACTERS
    first = source[child.start_byte : child.start_byte + 1]
    is_apart = is_end or (child.type != "process_substitution" and first in _METACHARACTERS)
    return node.type not in _WORDS and not is_apart


def _is_dash(gap: bytes, node: Node) -> bool:
    """Whether ``gap`` is the word that the parser loses before a here-document: ``cat - <<END``."""
    if node.type != "heredoc_redirect" or gap.strip(b" \t") != b"-":
        return False  # to look for a neighbour takes as long as there are any
    before = node.prev_sibling
    return before is not None and before.type == "command" and gap[:1] in {b" ", b"\t"}


def _command_name(_children: list[Node], text: str) -> str:
    return f"it uses {text!r} in an unusual place" if text in _RESERVED else ""


def _expansion(_children: list[Node], text: str) -> str:
    return "" if _EXPANSION.fullmatch(text) else "it uses an unusual expansion"


def _substitution(_children: list[Node], text: str) -> str:
    if text.startswith("`") and "\\" in text:
        return "it nests backticks"
    return _subshell(_children, text.removeprefix("$"))


def _subshell(_children: list[Node], text: str) -> str:
    return "it may evaluate arithmetic" if text.startswith("((") else ""


def _command(children: list[Node], text: str) -> str:
    second = children[1].text if text.startswith("time") and len(children) > 1 else None
    timed = second is not None and second.decode() in _RESERVED
    return "it times a compound command" if timed else ""


_QUOTED = frozenset({"string", "raw_string", "command_substitution"})


def _test(children: list[Node], text: str) -> str:
    if not text.startswith("[["):
        return ""
    bare, waiting = [], list(children)
    while waiting:  # what is quoted or substituted is judged by itself
        node = waiting.pop()
        if node.type not in _QUOTED and node.children:
            waiting += node.children
        elif node.type not in _QUOTED:
            bare.append(node.text or b"")
    unusual = any(mark in b" ".join(bare) for mark in b"<>()~") or "\n" in text
    return "it has an unusual test" if unusual else ""


def _joined_commands(children: list[Node], _text: str) -> str:
    commented = any(child.type == "comment" for child in children)
    return "it has a comment in the middle of a list" if commented else ""


def _variable(_children: list[Node], text: str) -> str:
    return "" if _VARIABLE.fullmatch(text) else "it uses an unusual expansion"


def _assignment(_children: list[Node], text: str) -> str:
    return "it has an unusual assignment" if text[:1].isdecimal() else ""  # a command: "5+=x"


def _redirect(_children: list[Node], text: str) -> str:
    return "it has words behind a closed stream" if _CLOSED.match(text) else ""


_SPECIAL: dict[str, Callable[[list[Node], str], str]] = {
    "variable_assignment": _assignment,
    "file_redirect": _redirect,
    "command_name": _command_name,
    "expansion": _expansion,
    "simple_expansion": _variable,
    "command_substitution": _substitution,
    "subshell": _subshell,
    "command": _command,
    "test_command": _test,
    "pipeline": _joined_commands,
    "list": _joined_commands,
}


_GOES_ON = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_WORD_ENDS = frozenset({b" ", b"\t", b"\n", b";", b"&", b"|", b"<", b">", b"(", b")"})


def heredoc_doubt(redirect: Node, source: bytes) -> tuple[str, str | None]:
    """Why a here-document is not understood, and its text when nothing in it is expanded.

    Bash ends it at the first line that is the delimiter; the parser must have found that one.
    """
    parts = {child.type: child for child in redirect.children}
    start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
    if start is None or end is None:
        return "it has a here-document without an end", None
    written = source[start.start_byte : start.end_byte].decode()
    delimiter = unquote(written)
    is_whole = source[start.end_byte : start.end_byte + 1] in _WORD_ENDS
    line_end = source.find(b"\n", start.end_byte)
    goes_on = source[line_end - 1 : line_end] == b"\\"  # its text begins behind another line
    if not delimiter or "\n" in delimiter or not is_whole or goes_on:  # <<"E"x ends at Ex
        return "it has an unusual here-document", None
    strips = source[redirect.start_byte : start.start_byte].rstrip().endswith(b"-")
    lines, at = [], line_end + 1
    joined: str | None = None  # the line so far that a backslash at its end continues
    while line_end >= 0 and at <= len(source):
        stop = source.find(b"\n", at)
        stop = len(source) if stop < 0 else stop
        line = source[at:stop]
        shown = line.lstrip(b"\t") if strips else line
        lines.append(shown.decode())
        if lines[-1] == delimiter and joined is None:
            if at + len(line) - len(shown) != end.start_byte or stop != end.end_byte:
                return "the parser ends a here-document in another place", None
            text = "\n".join(lines[:-1])
            return _body_doubt(parts.get("heredoc_body"), source, text, quoted=written != delimiter)
        goes_on = written == delimiter and _GOES_ON.search(lines[-1]) is not None
        whole = (joined or "") + lines[-1].removesuffix("\\")
        if (goes_on or joined is not None) and whole.strip("\t") == delimiter:
            return "it has an unusual here-document", None
        joined = whole if goes_on else None
        at = stop + 1
    return "it has a here-document without an end", None


def _body_doubt(
    body: Node | None, source: bytes, text: str, *, quoted: bool
) -> tuple[str, str | None]:
    if quoted:
        return ("", text) if body is None or not body.named_child_count else ("it expands", None)
    if body is None or not any(mark in text for mark in "$`\\"):
        return "", text
    at, left_over = body.start_byte, []
    for child in body.children:
        if child.type == "heredoc_content":
            continue
        left_over.append(source[at : child.start_byte])
        at = child.end_byte
    left_over.append(source[at : body.end_byte])
    if not _INNER_TEXT.fullmatch(b" ".join(left_over).decode()):
        return "the parser skips a part of a here-document", None
    return "", None


# --- the walk -----------------------------------------------------------------------------


_COMMANDS = frozenset({"command", "declaration_command", "unset_command", "test_command"})
_NO_COMMAND_WITHIN = frozenset({"command", "declaration_command", "variable_assignments"})
_FRESH = frozenset({"command_substitution", "process_substitution"})
SUBSHELLS = _FRESH | {"subshell"}
_PASSES_INPUT = frozenset(
    {
        "pipeline",
        "redirected_statement",
        "while_statement",
        "do_group",
        "compound_statement",
        "subshell",
        "list",
    }
)
_WRITING = frozenset({">", ">>", "&>", "&>>", ">|", ">&"})
_COPYING = frozenset({">&", "<&"})
_CLOSING = frozenset({">&-", "<&-"})
_BOTH = frozenset({"&>", "&>>"})
# plain shells end the command at "&>": what then follows "/dev/null" is another one to them
_ENDS_ANYWHERE = re.compile(rb"(?:[ \t]*[12]>&[12])*[ \t]*(?:[;&|)`\n#]|\Z)")
_READ_ONCE = re.compile(r"[\w./@%+=:,~-]*")
_BODY = "heredoc_body"


@frozen
class Tree:
    """What the walk found. ``why_not`` is empty when all of it is understood.

    ``is_torn``: it is no syntax to the parser, and its words may be parts of one.
    """

    commands: tuple[SimpleCommand, ...]
    why_not: str
    plain: bool
    kinds: frozenset[str] = frozenset()
    loops: tuple[Loop, ...] = ()
    is_torn: bool = False
    subshells: tuple[tuple[int, int], ...] = ()


@lru_cache(maxsize=1)
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def is_well_formed(text: str) -> bool:
    """Whether the parser accepts ``text`` at all."""
    return not _parser().parse(text.encode()).root_node.has_error


def read_tree(text: str) -> Tree:
    """The commands of ``text`` in their order. ``text`` has no surrogates."""
    source = text.encode()
    walk = _Walk(source, [], "")
    root = _parser().parse(source).root_node
    if root.has_error:
        walk.why_not = "it is not complete shell syntax"
    if source[root.end_byte :].strip(b" \t\n") or source[: root.start_byte].strip(b" \t\n"):
        walk.why_not = "the parser skips a part of it"
    walk.run(root)
    commands = [command for _, command in sorted(walk.found, key=itemgetter(0))]
    kinds, loops = frozenset(walk.kinds), tuple(walk.loops)
    plain = not kinds and not walk.why_not
    subshells = tuple(sorted(walk.subshells))
    return Tree(tuple(commands), walk.why_not, plain, kinds, loops, root.has_error, subshells)


@mutable
class _Walk:
    source: bytes
    found: list[tuple[int, SimpleCommand]]
    why_not: str
    kinds: set[str] = field(default_factory=set)
    loops: list[Loop] = field(default_factory=list)
    subshells: list[tuple[int, int]] = field(default_factory=list)

    def run(self, root: Node) -> None:
        """Visit every node; ``around`` are the redirections of what encloses it."""
        waiting: list[tuple[Node, tuple[Redirection, ...]]] = [(root, ())]
        while waiting:
            node, around = waiting.pop()
            children = node.children
            kind = node.type
            self._note_kind(node)
            self.why_not = self.why_not or doubt(node, children, self.source)
            beside = around
            if kind == "redirected_statement":
                around = self._redirected(node, children, around)
            elif kind == "heredoc_redirect":
                self.why_not = self.why_not or heredoc_doubt(node, self.source)[0]
            elif kind in _COMMANDS and node.is_named:
                self._command(node, children, around)
                around = ()
            elif kind.startswith("variable_assignment") and _is_bare(node):
                text = self._text(node)
                self._add(node, SimpleCommand((), text, (text,), around))
                around = ()
            elif kind in _FRESH:
                around = ()
                self._substituted(node, children)
            elif kind == "case_statement" and _writes_file(
                around
            ):  # no command in it may have them
                self._add(node, SimpleCommand((), self._text(node), (), around))
            elif kind == "for_statement":
                self._loop(node, children)
            elif kind == "arithmetic_expansion" and not self.why_not:
                continue
            own = around[len(beside) :]  # a here-document holds the rest of its line: not fed
            rest = (*beside, *(replace(each, text=None) for each in own)) if own else around
            waiting += [
                (child, rest if child.type == "heredoc_redirect" else around)
                for child in reversed(children)
            ]

    def _note_kind(self, node: Node) -> None:
        if node.type in SUBSHELLS:
            self.subshells.append((node.start_byte, node.end_byte))
        if node.type not in (_PLAIN if node.is_named else _PLAIN_TOKENS):
            self.kinds.add(node.type)
        elif node.type == "test_operator" and node.text in _COMPARING:
            self.kinds.add("comparison")  # a shell that is not bash may evaluate what it gets

    def _loop(self, node: Node, children: list[Node]) -> None:
        """What ``for`` assigns: no variable that a program would look at."""
        name = next((self._text(each) for each in children if each.type == "variable_name"), "")
        if not is_plain_variable(name):
            self.why_not = self.why_not or f"it assigns {name or 'a variable'}"
        sources = tuple(map(self._text, node.children_by_field_name("value")))
        self.loops.append(Loop(name, sources, node.start_byte, node.end_byte))

    def _add(self, node: Node, command: SimpleCommand) -> None:
        placed = replace(command, at=node.start_byte, upstream=_upstream(node))
        self.found.append((node.start_byte, placed))

    def _text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode()

    def _redirected(
        self, node: Node, children: list[Node], around: tuple[Redirection, ...]
    ) -> tuple[Redirection, ...]:
        """The redirections for what is inside; alone they are a command of their own."""
        own = tuple(one for child in children for one in self._redirections(child))
        if not _COMMANDS.intersection(child.type for child in children):
            stray = tuple(self._text(word) for child in children for word in _stray_in(child))
            if stray:
                self.why_not = self.why_not or "it has words behind a redirection"
                words = tuple(map(unquote, stray))
                self.found.append(
                    (node.start_byte, SimpleCommand(words, " ".join(stray), sources=stray))
                )
        if all(child.type in _REDIRECTS for child in children):
            self.found.append(
                (node.start_byte, SimpleCommand((), self._text(node), (), around + own))
            )
            return ()
        return around + own

    def _substituted(self, node: Node, children: list[Node]) -> None:
        """``$(<FILE)`` reads a file without any command."""
        for child in children:
            if child.type in _REDIRECTS:
                own = tuple(self._redirections(child))
                self._add(node, SimpleCommand((), self._text(child), (), own))

    def _redirections(self, node: Node) -> list[Redirection]:
        """Those of one redirection node; a here-document may carry others in its line."""
        if node.type == "file_redirect":
            return [self._to_file(node)]
        if node.type == "herestring_redirect":
            return [Redirection("<<<", None, writes=False, text=self._given(node))]
        if node.type == "heredoc_redirect":
            more = [one for child in node.children for one in self._redirections(child)]
            return [Redirection("<<", None, writes=False, text=self._given(node)), *more]
        return []

    def _to_file(self, node: Node) -> Redirection:
        before = self.source[: node.start_byte][-1:]
        if before == b"}":
            self.why_not = self.why_not or "it keeps a file descriptor in a variable"
        operator = next((c.type for c in node.children if not c.is_named), "")
        if operator in _CLOSING:
            return Redirection(operator, "-", writes=False)
        targets = node.children_by_field_name("destination")
        end = targets[0].end_byte if targets else node.end_byte
        if operator in _BOTH and not _ENDS_ANYWHERE.match(self.source, end):
            self.why_not = self.why_not or f"behind {operator} only bash goes on"
        source = self._text(targets[0]) if targets else ""
        target = unquote(source) if targets else None
        if operator == ">&" and not _READ_ONCE.fullmatch(source):
            target = None  # >&.git/config\' writes .git/config, and >&'$(x)' runs x
            self.why_not = self.why_not or "bash expands what stands behind >& twice"
        copies = operator in _COPYING and target is not None
        if copies and target is not None and (target.rstrip("-").isdecimal() or target == "-"):
            return Redirection(operator, target, writes=False)
        return Redirection(operator, target, operator in _WRITING)

    def _command(self, node: Node, children: list[Node], around: tuple[Redirection, ...]) -> None:
        assignments: list[str] = []
        own: list[Redirection] = []
        pieces: list[str] = []
        end = 0
        for child in children:
            if child.type in _REDIRECTS:
                own += self._redirections(child)
                pieces += map(self._text, _stray_in(child))
            elif child.type == "variable_assignment" and node.type == "command":
                assignments.append(self._text(child))
            elif child.type != "comment":
                # a word that the parser splits is one to bash: vic`true`tim
                gap = self.source[end : child.start_byte].replace(b"\\\n", b"")
                split = bool(pieces) and not gap
                pieces.append((pieces.pop() if split else "") + self._text(child))
                end = child.end_byte
        if node.type == "test_command":
            pieces = self._tested(children)
        parent = node.parent
        if parent is not None and parent.type == "redirected_statement":
            for redirect in parent.children:
                gap = self.source[node.end_byte : redirect.start_byte]
                pieces += ["-"] if _is_dash(gap, redirect) else []
                if redirect.type in _REDIRECTS:
                    pieces += map(self._text, _stray_in(redirect))
        text = " ".join([*assignments, *pieces]) if own or around else self._text(node)
        words = tuple(map(unquote, pieces))
        command = SimpleCommand(words, text, tuple(assignments), (*own, *around), (), tuple(pieces))
        self._add(node, command)

    def _tested(self, children: list[Node]) -> list[str]:
        """The words of a test, told apart by the space between them."""
        pieces: list[str] = []
        waiting, end = list(reversed(children)), -1
        while waiting:
            node = waiting.pop()
            if node.type.endswith("_expression"):
                waiting += reversed(node.children)
                continue
            joined = pieces.pop() if node.start_byte == end else ""
            pieces.append(joined + self._text(node))
            end = node.end_byte
        return pieces

    def _given(self, redirect: Node) -> str | None:
        """What a here-document or a here-string gives to read, as it is written."""
        if redirect.type == "heredoc_redirect":
            _, text = heredoc_doubt(redirect, self.source)
            body = (self._text(each) for each in redirect.children if each.type == _BODY)
            return next(body, None) if text is None else text
        if redirect.child_count == 1:
            return None
        source = self._text(redirect.children[-1])
        known = unquote(source)
        return within_quotes(source) if known is None else known


def _stray_in(redirect: Node) -> list[Node]:
    """Arguments that the grammar hangs on a redirection: ``cat 2>x -n``, ``cat <<END -n``."""
    if redirect.type == "file_redirect":  # what closes one has no file: ``cat <&- x``
        closes = any(child.type in _CLOSING for child in redirect.children)
        return redirect.children_by_field_name("destination")[0 if closes else 1 :]
    if redirect.type != "heredoc_redirect":
        return []
    stray = []
    for name in ("argument", "redirect"):
        for child in redirect.children_by_field_name(name):
            stray += _stray_in(child) if child.type in _REDIRECTS else [child]
    return stray


def _upstream(node: Node) -> tuple[int, ...] | None:
    """Where the earlier stages of the pipelines start that ``node`` is in a stage of."""
    found: list[int] | None = None
    stage, parent = node, node.parent
    while parent is not None and parent.type in _PASSES_INPUT:
        if parent.type == "pipeline":
            starts = (each.start_byte for each in parent.children if each.is_named)
            found = [*(found or ()), *(start for start in starts if start < stage.start_byte)]
        stage, parent = parent, parent.parent
    return None if found is None else tuple(found)


def is_plain_variable(name: str) -> bool:
    """Whether to assign ``name`` changes nothing that a shell or a program would look at."""
    is_plain = _PLAIN_VARIABLE.fullmatch(name) is not None and not name.endswith("_proxy")
    return is_plain and name not in os.environ and name != "_"


def _writes_file(redirections: Sequence[Redirection]) -> bool:
    return any(each.writes and each.target != "/dev/null" for each in redirections)


def _is_bare(node: Node) -> bool:
    """Whether the assignment stands alone, not before a command or in a declaration."""
    parent = node.parent
    return parent is None or parent.type not in _NO_COMMAND_WITHIN
