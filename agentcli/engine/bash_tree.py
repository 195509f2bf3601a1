"""Walks the syntax tree of a bash text and lists its simple commands (SEC-4).

Law: node kinds are an allowlist. A kind, an operator or a gap in the text that is not in the
tables below makes the whole text "not understood"; nothing is ever guessed to be harmless.
The walk is iterative: ten thousand nested parentheses are a long list, not a deep recursion.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from agentcli.domain.values import frozen, mutable
from agentcli.engine.bash_command import Redirection, SimpleCommand
from agentcli.engine.bash_words import unquote

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_WORDS = frozenset(
    {
        "word", "number", "string", "raw_string", "concatenation", "simple_expansion",
        "expansion", "command_substitution", "process_substitution", "arithmetic_expansion",
        "ansi_c_string", "translated_string", "brace_expression", "extglob_pattern", "regex",
        "array", "variable_name", "special_variable_name", "test_operator", "subscript",
    }
)  # fmt: skip
_REDIRECTS = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect"})
# kind -> the anonymous tokens that it may hold; named kinds in no table are not understood
_STRUCTURE: dict[str, frozenset[str]] = {
    "program": frozenset({";", "&", "\n", "|", "|&"}),
    "list": frozenset({"&&", "||"}),
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
    "variable_assignment": frozenset({"=", "+="}),
    "variable_assignments": frozenset(),
    "command_substitution": frozenset({"$(", ")", "`", "(", "<", ";", "&", "\n", "$`"}),
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
    "array": frozenset({"(", ")"}),
    "unset_command": frozenset({"unset", "unsetenv"}),
}  # fmt: skip
_LEAVES = frozenset(
    {
        "word", "number", "raw_string", "string_content", "variable_name", "comment",
        "special_variable_name", "file_descriptor", "heredoc_start", "heredoc_content",
        "heredoc_end", "test_operator", "regex", "extglob_pattern",
    }
)  # fmt: skip
_PLAIN = frozenset(
    {
        "program", "list", "pipeline", "command", "command_name", "word", "number", "string",
        "string_content", "raw_string", "concatenation", "redirected_statement", "file_redirect",
        "file_descriptor", "comment",
    }
)  # fmt: skip
_PLAIN_TOKENS = frozenset(
    {";", "\n", "&&", "||", "|", '"', ">", ">>", "<", "&>", "&>>", ">&", "<&", ">|"}
)
_COMMANDS = frozenset({"command", "declaration_command", "unset_command", "test_command"})
_WRITING = frozenset({">", ">>", "&>", "&>>", ">|", "<>", ">&"})
_INTEGER_TESTS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R"})


@frozen
class Tree:
    """What the walk found; ``bodies`` are static here-documents with their command's place."""

    commands: tuple[SimpleCommand, ...]
    why_not: str
    plain: bool
    fed: tuple[tuple[int, str | None], ...] = ()


@lru_cache(maxsize=1)
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def read_tree(text: str) -> Tree:
    """The commands of ``text`` by their order in it; ``why_not`` is empty when all is known."""
    source = text.encode("utf-8", "surrogatepass")
    walk = _Walk(source, [], [], "", plain=True)
    walk.run(_parser().parse(source).root_node)
    found = sorted(walk.found, key=lambda item: item[0])
    commands = tuple(command for _, command in found)
    return Tree(commands, walk.why_not, walk.plain and not walk.why_not)


@mutable
class _Walk:
    source: bytes
    found: list[tuple[int, SimpleCommand]]
    inherited: list[Redirection]
    why_not: str
    plain: bool

    def run(self, root: Node) -> None:
        waiting: list[tuple[Node, tuple[Redirection, ...]]] = [(root, ())]
        while waiting:
            node, around = waiting.pop()
            children = node.children
            self._check(node, children)
            kind = node.type
            if kind == "redirected_statement":
                around = self._redirected(node, children, around)
            elif kind in _COMMANDS:
                self._command(node, children, around)
                around = ()
            elif kind in {"variable_assignment", "variable_assignments"} and _is_bare(node):
                text = self._text(node)
                self._add(node, SimpleCommand((), text, (text,), around))
            elif kind in {"command_substitution", "process_substitution", "function_definition"}:
                around = ()
            waiting += [(child, around) for child in reversed(children)]

    def _check(self, node: Node, children: list[Node]) -> None:
        kind = node.type
        if node.is_named and kind not in _PLAIN:
            self.plain = False
        if self.why_not:
            return
        if node.is_error or node.is_missing or node.has_error:
            self.why_not = "it is not complete shell syntax"
        elif not node.is_named:
            return
        elif kind not in _LEAVES:
            tokens = _STRUCTURE.get(kind)
            if tokens is None:
                self.why_not = f"it uses {kind.replace('_', ' ')}"
                return
            self._check_children(node, children, tokens)
        elif kind == "test_operator" and self._text(node) in _INTEGER_TESTS:
            self.why_not = "it evaluates arithmetic"

    def _check_children(self, node: Node, children: list[Node], tokens: frozenset[str]) -> None:
        at = node.start_byte
        for child in children:
            if not child.is_named:
                if child.type not in tokens:
                    self.why_not = f"it uses {child.type!r} in an unusual place"
                    return
                if child.type not in _PLAIN_TOKENS:
                    self.plain = False
            if node.type not in {"string", "heredoc_body", "heredoc_redirect"}:
                gap = self.source[at : child.start_byte].strip(b" \t\n")
                if gap:
                    self.why_not = "the parser skips a part of it"
                    return
            at = child.end_byte

    def _text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "surrogatepass")

    def _add(self, node: Node, command: SimpleCommand) -> None:
        self.found.append((node.start_byte, command))

    def _redirected(
        self, node: Node, children: list[Node], around: tuple[Redirection, ...]
    ) -> tuple[Redirection, ...]:
        """The redirections for what is inside; alone they are a command of their own."""
        own = tuple(r for child in children for r in self._redirections(child))
        if not any(child.is_named and child.type not in _REDIRECTS for child in children):
            self._add(node, SimpleCommand((), "", (), around + own))
            return ()
        return around + own

    def _redirections(self, node: Node) -> Iterator[Redirection]:
        if node.type == "file_redirect":
            operator = next((c.type for c in node.children if not c.is_named), "")
            targets = node.children_by_field_name("destination")
            target = unquote(self._text(targets[0])) if targets else None
            copies = operator in {">&", "<&", ">&-", "<&-"}
            is_descriptor = (target is not None and target.rstrip("-").isdecimal()) or target == "-"
            if operator in {">&-", "<&-"}:
                yield Redirection(operator, "-", writes=False)
            else:
                writes = operator in _WRITING and not (copies and is_descriptor)
                yield Redirection(operator, target, writes)
        elif node.type == "herestring_redirect":
            yield Redirection("<<<", None, writes=False)
        elif node.type == "heredoc_redirect":
            yield Redirection("<<", None, writes=False)
            for child in node.children:
                yield from self._redirections(child)

    def _command(self, node: Node, children: list[Node], around: tuple[Redirection, ...]) -> None:
        words: list[str | None] = []
        assignments: list[str] = []
        own: list[Redirection] = []
        pieces: list[str] = []
        for child in [*children, *_stray_words(node)]:
            if child.type in _REDIRECTS:
                own += self._redirections(child)
                continue
            piece = self._text(child)
            pieces.append(piece)
            if child.type == "variable_assignment" and node.type == "command":
                assignments.append(piece)
            elif child.type == "variable_assignment":
                words.append(unquote(piece))
            else:
                words.append(unquote(piece))
        text = " ".join(pieces) if own or around else self._text(node)
        command = SimpleCommand(tuple(words), text, tuple(assignments), (*own, *around))
        self._add(node, command)


def _stray_words(node: Node) -> list[Node]:
    """Arguments that the grammar hangs elsewhere: ``cat 2>x -n``, ``cat <<END -n``."""
    parent = node.parent
    if parent is None or parent.type != "redirected_statement":
        return []
    stray: list[Node] = []
    for redirect in parent.children:
        if redirect.type == "file_redirect":
            stray += redirect.children_by_field_name("destination")[1:]
        elif redirect.type == "heredoc_redirect":
            stray += [child for child in redirect.children if child.type in _WORDS]
    return stray


def _is_bare(node: Node) -> bool:
    """Whether the assignment stands alone, not before a command or in a declaration."""
    parent = node.parent
    return parent is None or parent.type not in {
        "command", "declaration_command", "variable_assignments",
    }  # fmt: skip
