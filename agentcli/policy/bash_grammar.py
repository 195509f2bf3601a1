"""Which syntax is understood: an allowlist of node kinds, of their tokens and of their text.

Law: a kind, a token, a gap in the text or a leaf that is not in the tables below makes the whole
text "not understood"; nothing is ever guessed to be harmless (SEC-4).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentcli.policy.bash_words import unquote

if TYPE_CHECKING:
    from tree_sitter import Node

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
    "file_descriptor": re.compile(r"[0-9]{1,4}"),
    "heredoc_start": re.compile(r"[^\s<>|&;()$`]+"),
    "heredoc_end": re.compile(r"[^\n]+"),
    "test_operator": re.compile(r"-[a-zA-Z]{1,2}"),
}
_REDIRECTS = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect"})
# kinds whose children are words with blanks between them
_WORD_LISTS = frozenset({"command", "declaration_command", "unset_command", "file_redirect"})
_NO_WORDS = frozenset({"file_descriptor", ">", ">>", "<", "&>", "&>>", ">&", "<&", ">|"})
_OPAQUE = frozenset({"string", "heredoc_body", "heredoc_redirect"})  # gaps are judged otherwise
# within "${…}" bash and the parser read quotes differently
_EXPANSION = re.compile(r"\$\{#?[A-Za-z0-9_]+[^'\"\\`]*\}|\$\{[#?$!@*-]\}")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!_-])", re.ASCII)
_ARITHMETIC = re.compile(r"\$\(\([0-9 +*/%<>=-]*\)\)")
_EVALUATING_TESTS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R"})
# unquoted words that bash takes for syntax where a command starts
_RESERVED = frozenset(
    {
        "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
        "in", "select", "function", "{", "}", "!", "[[", "]]", "coproc",
    }
)  # fmt: skip
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


def is_plain(node: Node) -> bool:
    """Whether the node is a part of lists and pipes of simple commands."""
    return node.type in (_PLAIN if node.is_named else _PLAIN_TOKENS)


def doubt(node: Node, children: list[Node], source: bytes) -> str:
    """Why this node is not understood, looking at it and its children; empty when it is."""
    kind = node.type
    if node.is_error or node.is_missing:
        return "it is not complete shell syntax"
    if not node.is_named:
        return ""
    text = source[node.start_byte : node.end_byte].decode()
    if kind == "arithmetic_expansion":
        return "" if _ARITHMETIC.fullmatch(text) else "it evaluates arithmetic"
    if kind in _LEAVES:
        return _leaf(node, children, text)
    tokens = _STRUCTURE.get(kind)
    if tokens is None:
        return f"it uses {kind.replace('_', ' ')}"
    return _inside(node, children, source, tokens) or _special(node, children, text)


def _leaf(node: Node, children: list[Node], text: str) -> str:
    pattern = _LEAVES[node.type]
    if children or not pattern.fullmatch(text):
        return "it holds a word that the parser may misread"
    if node.type == "test_operator" and text in _EVALUATING_TESTS:
        return "it evaluates arithmetic"
    return ""


def _inside(node: Node, children: list[Node], source: bytes, tokens: frozenset[str]) -> str:
    at = node.start_byte
    left_over = []
    words = 0
    for child in children:
        if not child.is_named and child.type.strip(" \t") not in tokens:
            return f"it uses {child.type!r} in an unusual place"
        gap = source[at : child.start_byte]
        is_next_word = words > 0 and child.is_named and child.type not in _REDIRECTS
        if is_next_word and (not gap or gap.strip(b" \t")):
            return "the parser splits a word or joins two lines"
        words += node.type in _WORD_LISTS and child.type not in _NO_WORDS
        left_over.append(gap)
        at = child.end_byte
    if children:
        left_over.append(source[at : node.end_byte])
        if node.type not in _OPAQUE and b"".join(left_over).strip(b" \t\n"):
            return "the parser skips a part of it"
    if node.type == "string" and not _INNER_TEXT.fullmatch(b" ".join(left_over).decode()):
        return "the parser skips a part of it"
    return ""


def _special(node: Node, children: list[Node], text: str) -> str:
    """What the grammar accepts and bash reads in another way."""
    check = _SPECIAL.get(node.type)
    return check(children, text) if check else ""


def _command_name(_children: list[Node], text: str) -> str:
    return f"it uses {text!r} in an unusual place" if text in _RESERVED else ""


def _expansion(_children: list[Node], text: str) -> str:
    return "" if _EXPANSION.fullmatch(text) else "it uses an unusual expansion"


def _substitution(_children: list[Node], text: str) -> str:
    return "it nests backquotes" if text.startswith("`") and "\\" in text else ""


def _command(children: list[Node], text: str) -> str:
    second = children[1].text if text.startswith("time") and len(children) > 1 else None
    timed = second is not None and second.decode() in _RESERVED
    return "it times a compound command" if timed else ""


def _test(_children: list[Node], text: str) -> str:
    unusual = text.startswith("[[") and any(mark in text for mark in "<>()~\n")
    return "it has an unusual test" if unusual else ""


def _joined_commands(children: list[Node], _text: str) -> str:
    commented = any(child.type == "comment" for child in children)
    return "it has a comment in the middle of a list" if commented else ""


def _variable(_children: list[Node], text: str) -> str:
    return "" if _VARIABLE.fullmatch(text) else "it uses an unusual expansion"


_SPECIAL: dict[str, Callable[[list[Node], str], str]] = {
    "command_name": _command_name,
    "expansion": _expansion,
    "simple_expansion": _variable,
    "command_substitution": _substitution,
    "command": _command,
    "test_command": _test,
    "pipeline": _joined_commands,
    "list": _joined_commands,
}


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
    if not delimiter or "\n" in delimiter:
        return "it has an unusual here-document", None
    strips = source[redirect.start_byte : start.start_byte].rstrip().endswith(b"-")
    line_end = source.find(b"\n", start.end_byte)
    lines, at = [], line_end + 1
    if line_end < 0:
        return "it has a here-document without an end", None
    while at <= len(source):
        stop = source.find(b"\n", at)
        stop = len(source) if stop < 0 else stop
        line = source[at:stop]
        shown = line.lstrip(b"\t") if strips else line
        if shown.decode() == delimiter:
            if at + len(line) - len(shown) != end.start_byte or stop != end.end_byte:
                return "the parser ends a here-document in another place", None
            break
        lines.append(shown.decode())
        at = stop + 1
    else:
        return "it has a here-document without an end", None
    text = "\n".join(lines)
    return _body_doubt(parts.get("heredoc_body"), source, text, quoted=written != delimiter)


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
