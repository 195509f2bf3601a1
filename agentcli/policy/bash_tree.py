"""Walks the syntax tree of a bash text and lists its simple commands (SEC-4).

The walk is iterative: ten thousand nested parentheses are a long list, not a deep recursion.
Law: every call that the tree holds is listed, also where the text is not understood.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from agentcli.domain.values import frozen, mutable
from agentcli.policy.bash_command import Redirection, SimpleCommand
from agentcli.policy.bash_grammar import doubt, heredoc_doubt, is_plain
from agentcli.policy.bash_words import unquote

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_REDIRECTS = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect"})
_HEREDOC_PARTS = frozenset({"heredoc_start", "heredoc_body", "heredoc_end", "comment"})
_COMMANDS = frozenset({"command", "declaration_command", "unset_command", "test_command"})
_NO_COMMAND_WITHIN = frozenset({"command", "declaration_command", "variable_assignments"})
_FRESH = frozenset({"command_substitution", "process_substitution"})
_WRITING = frozenset({">", ">>", "&>", "&>>", ">|", ">&"})
_COPYING = frozenset({">&", "<&"})
_CLOSING = frozenset({">&-", "<&-"})


@frozen
class Tree:
    """What the walk found. ``why_not`` is empty when all of it is understood."""

    commands: tuple[SimpleCommand, ...]
    why_not: str
    plain: bool


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
    walk = _Walk(source, [], "", plain=True)
    root = _parser().parse(source).root_node
    if root.has_error:
        walk.why_not = "it is not complete shell syntax"
    if source[root.end_byte :].strip(b" \t\n") or source[: root.start_byte].strip(b" \t\n"):
        walk.why_not = "the parser skips a part of it"
    walk.run(root)
    found = sorted(walk.found, key=lambda item: item[0])
    commands = tuple(command for _, command in found)
    return Tree(commands, walk.why_not, walk.plain and not walk.why_not)


@mutable
class _Walk:
    source: bytes
    found: list[tuple[int, SimpleCommand]]
    why_not: str
    plain: bool

    def run(self, root: Node) -> None:
        """Visit every node; ``around`` are the redirections of what encloses it."""
        waiting: list[tuple[Node, tuple[Redirection, ...]]] = [(root, ())]
        while waiting:
            node, around = waiting.pop()
            children = node.children
            self.plain = self.plain and is_plain(node)
            self.why_not = self.why_not or doubt(node, children, self.source)
            kind = node.type
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
            elif kind == "arithmetic_expansion" and not self.why_not:
                continue
            waiting += [(child, around) for child in reversed(children)]

    def _text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode()

    def _add(self, node: Node, command: SimpleCommand) -> None:
        self.found.append((node.start_byte, command))

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
                self._add(node, SimpleCommand(words, " ".join(stray), sources=stray))
        if all(child.type in _REDIRECTS for child in children):
            self._add(node, SimpleCommand((), self._text(node), (), around + own))
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
            return [Redirection("<<<", None, writes=False)]
        if node.type == "heredoc_redirect":
            more = [one for child in node.children for one in self._redirections(child)]
            return [Redirection("<<", None, writes=False), *more]
        return []

    def _to_file(self, node: Node) -> Redirection:
        before = self.source[: node.start_byte][-1:]
        if before == b"}":
            self.why_not = self.why_not or "it keeps a descriptor in a variable"
        operator = next((c.type for c in node.children if not c.is_named), "")
        if operator in _CLOSING:
            return Redirection(operator, "-", writes=False)
        targets = node.children_by_field_name("destination")
        target = unquote(self._text(targets[0])) if targets else None
        copies = operator in _COPYING and target is not None
        if copies and target is not None and (target.rstrip("-").isdecimal() or target == "-"):
            return Redirection(operator, target, writes=False)
        return Redirection(operator, target, operator in _WRITING)

    def _command(self, node: Node, children: list[Node], around: tuple[Redirection, ...]) -> None:
        assignments: list[str] = []
        own: list[Redirection] = []
        pieces: list[str] = []
        for child in children:
            if child.type in _REDIRECTS:
                own += self._redirections(child)
                pieces += map(self._text, _stray_in(child))
            elif child.type == "variable_assignment" and node.type == "command":
                assignments.append(self._text(child))
            elif child.type != "comment":
                pieces.append(self._text(child))
        if node.type == "test_command":
            pieces = self._text(node).split()
        parent = node.parent
        fed = self._fed(children)
        if parent is not None and parent.type == "redirected_statement":
            for redirect in parent.children:
                if redirect.type in _REDIRECTS:
                    pieces += map(self._text, _stray_in(redirect))
            fed += self._fed(parent.children)
        text = " ".join([*assignments, *pieces]) if own or around else self._text(node)
        words = tuple(map(unquote, pieces))
        command = SimpleCommand(
            words, text, tuple(assignments), (*own, *around), (), tuple(pieces), fed
        )
        self._add(node, command)

    def _fed(self, redirects: list[Node]) -> tuple[str, ...]:
        """The texts that here-documents and here-strings give to the command."""
        texts = []
        for redirect in redirects:
            text = None
            if redirect.type == "heredoc_redirect":
                _, text = heredoc_doubt(redirect, self.source)
            elif redirect.type == "herestring_redirect" and redirect.child_count > 1:
                text = unquote(self._text(redirect.children[-1]))
            if text is not None:
                texts.append(text)
        return tuple(texts)


def _stray_in(redirect: Node) -> list[Node]:
    """Arguments that the grammar hangs on a redirection: ``cat 2>x -n``, ``cat <<END -n``."""
    if redirect.type == "file_redirect":
        return redirect.children_by_field_name("destination")[1:]
    if redirect.type != "heredoc_redirect":
        return []
    stray = []
    for field in ("argument", "redirect"):
        for child in redirect.children_by_field_name(field):
            stray += _stray_in(child) if child.type in _REDIRECTS else [child]
    return stray


def _is_bare(node: Node) -> bool:
    """Whether the assignment stands alone, not before a command or in a declaration."""
    parent = node.parent
    return parent is None or parent.type not in _NO_COMMAND_WITHIN
