"""What is a secret, by its form: a real key is kept from sight, a dummy changes no data (SEC-9).

Laws: a variable that may be a credential is kept from commands, by its name or its form (SEC-8). In
texts only what nobody would write by chance is a secret. Keys of servers that ask for none
("ollama", "dummy-key", "sk-local"), words and other weak values are not: taking them out would
garble all that is written, and nobody gains by knowing them.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from urllib.parse import urlsplit

from agentcli.domain.patterns import LazyPattern
from agentcli.domain.values import mutable

_OF_KEYS = "".join(map(chr, range(ord("!"), ord("~") + 1)))
_LONGEST_KEY = 4_096
MARKS, CUT = "\x02\x03", "…"
_SHORTEST = 12
_SHORT = 8
_LEAST_BITS = 40.0
# how keys of services begin, whatever follows
_PREFIXES = LazyPattern(
    r"[srp]k-(?:ant-|proj-|or-|svcacct-)?|[sr]k_(?:live|test)_|AIza|ya29\.|gh[pousr]_|github_pat_"
    r"|glpat-|xox[abeprs]-|gsk_|hf_|npm_|xai-|csk-|pplx-|xapp-|A(?:KI|SI)A|eyJ"
)
# what keys look like, wherever they stand
KEYS = r"""(?ix)
    (?<![A-Z0-9])(?:
      (?:sk|pk|rk)-[A-Za-z0-9_\-]{8,}            # OpenAI, Anthropic and many more
    | [sr]k_(?:live|test)_[A-Za-z0-9]{10,}
    | AIza[0-9A-Za-z_\-]{20,}                  # Google
    | ya29\.[0-9A-Za-z_\-]{20,}
    | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,} | glpat-[0-9A-Za-z_\-]{16,}
    | (?:xox[abeprs]|xapp-[0-9])-[A-Za-z0-9\-]{10,}
    | (?:gsk|hf|npm)_[A-Za-z0-9]{20,} | (?:xai|csk|pplx)-[A-Za-z0-9]{20,}
    | A(?:KI|SI)A[0-9A-Z]{16}(?![0-9A-Z])
    # what a bound has left of one
    | (?:gh[pousr]_|github_pat_|glpat-|AIza|(?:gsk|hf|npm)_|(?:xai|csk|pplx)-)[\w\-]{8,39}+(?=…)
    # a signed web token; its first part ends where another may begin, so that no text is read twice
    | eyJ(?:(?![_\-]eyJ)[A-Za-z0-9_\-]){8,}+\.[A-Za-z0-9_\-]{8,}+\.[A-Za-z0-9_\-]{8,}
    )
    | -----BEGIN\ [A-Z0-9\ ]{0,40}PRIVATE\ KEY-----(?:(?!-----END)[\s\S])*(?:-----END[^-]*-----)?
    """
# what variables are called that hold one; then there is no doubt but for values that say nothing
_NAMES = LazyPattern(
    r"(?:.*_)?(?:[A-Z0-9]*(?:TOKENS?|SECRET(?:S|ID|KEY)?|PASSWORDS?|PASSWD|PASSPHRASES?|API_?KEYS?"
    r"|CREDENTIALS?|CREDS)|(?:ACCESS|PRIVATE|AUTH|SSH|LICENSE|DEPLOY|SIGNING|ENCRYPTION|MASTER)?KEYS?"
    r"|SSHPASS|(?:DB|USER|ADMIN|ROOT|MAIL|BIND)?(?:PASS|PW)|(?:(?<=_)|DB|USER|ADMIN|ROOT)PWD|X?O?AUTH|PAT"
    r"|JWT|BEARER|COOKIES?|HEADERS?|WEBHOOKS?|SAS|MNEMONIC|CONN(?:ECTION)?_?STR(?:ING)?S?)[0-9]*(?:_.*)?"
    r"|(?:BW|OP)_SESSION(?:_.*)?"  # Bitwarden's and 1Password's
)
_FINGERPRINT = LazyPattern(r"(?:.*_)?(?:GPG|PGP)_KEYS?=[0-9A-F]{40}")
_SAYS_NOTHING = LazyPattern(r"(?i)|true|false|yes|no|on|off|none|null|[0-9]{1,7}")
_AUTHORISED = LazyPattern(r"(?i)\b(?:bearer|basic) ([A-Za-z0-9._~+/=\-]{8,})")
_LOGIN = LazyPattern(r"(?i)(?<=[a-z0-9+.\-])://([^/\s@]+)@([^/\s]*)")
# a password beside the server that it is for, and the signature of an address that lets in
_NAMED = LazyPattern(
    r"(?i)(?:^|[?&;,\s'\"])(?:password|passwd|pwd|secret|(?:access_?|auth_?)?token|(?:api|account|shared"
    r"access)_?key|sig(?:nature)?) ?= ?([^&;,\s'\"]+)"
)
_SERVER = LazyPattern(r"://(?:[^/\s@]*@)?([^/\s?;]+)")
# NAME=VALUE and NAME: VALUE, of an option, an address or a header
_PAIR = LazyPattern(r"([A-Za-z][\w\-]*)(?=[=:] ?([^&;,\s'\"]+))")
_MARKS = ":,;'\"{}"
_BETWEEN = LazyPattern(r"[\s/?&=:,;'\"{}]+")
_WORDS_OF_KEYS = (rf"\S{{{_SHORTEST},}}", rf"[\w.~+\-]{{{_SHORTEST},}}")
_SEPARATORS = r"[-_. /]+"
_BETWEEN_WORDS = r"[-_. /(),;]+"
_WORD = r"(?:[A-Z]?[a-z]{1,14}|[A-Z]{1,14})?[0-9]{0,4}"
_SIZED = r"[0-9]{1,3}[A-Za-z]{1,2}"  # 1m, 128k
_SERVED = r"[\w.+\-]+@[\w\-]+(?:\.[\w\-]+)+|[\w\-]+(?:\.[\w\-]+)*:[0-9]{1,5}"
_DUMMY = r"(?i)dummy|placeholder|example|changeme|unused|not-?needed|no-?key"


def is_secret(value: str, *, is_local: bool = False) -> bool:
    """Whether ``value``, found where a key or password stands, must be seen by nobody.

    ``is_local``: it is for a server on this machine or a private network. Such a key counts only if
    it has the form of a service's.
    """
    text = value.strip()
    prefix = _PREFIXES.match(text)
    if is_local and prefix is None:
        return False
    body = text[prefix.end() :] if prefix else text
    return len(body) >= _SHORTEST and not _is_dummy(body) and _bits(body) >= _LEAST_BITS


@mutable
class WholeWords:
    """A text that comes in pieces, without keys: a word waits until it is whole.

    No key is known by a piece of it, and of one whose begin is known the end would be left: what
    waits is as it came. ``redact`` takes keys out of a text.
    """

    redact: Callable[[str], str]
    _word: str = ""

    def add(self, text: str) -> str:
        """What can be told now that ``text`` has come, too."""
        begun = len(text.rstrip(_OF_KEYS))
        whole, end = self._word + text, len(self._word) + begun if begun else 0
        if len(whole) - end > 2 * _LONGEST_KEY:
            end = self._between_keys(whole)
        self._word = whole[end:]
        return self.redact(whole[:end])

    def rest(self) -> str:
        """What has waited until the end."""
        word, self._word = self._word, ""
        return self.redact(word)

    def _between_keys(self, whole: str) -> int:
        """Where a word may be parted that is too long to wait: in no key."""
        last = len(whole) - _LONGEST_KEY
        start = max(last - _LONGEST_KEY, 0)
        told = self.redact(whole[start:])
        for end in range(last, start, -1):
            if self.redact(whole[start:end]) + self.redact(whole[end:]) == told:
                return end
        return last


def may_hold_secret(text: str) -> bool:
    """Whether a word of ``text``, or a part of one, has the form of a secret."""
    words = (found[0] for form in _WORDS_OF_KEYS for found in re.finditer(form, text))
    return any(map(is_secret, words))


def key_places(text: str) -> Iterator[tuple[int, int]]:
    """Where in ``text`` keys are, known by their form: from, and up to."""
    for found in re.finditer(KEYS, text):
        if found[0].startswith("-----") or is_secret(found[0]):
            yield found.span()


def excerpt(marked: str, around: str) -> str:
    """A part of ``around`` without keys; what was found in it stands between ``[`` and ``]``.

    It was cut there with ``CUT``, between ``MARKS``. A part of a key would not be known as one: so
    it is compared with what stands around it.
    """
    plain = plain_part(marked)
    at = around.find(plain)
    if at < 0:
        around, at = plain, 0
    at -= marked.startswith(CUT)
    hidden = [(first - at, end - at) for first, end in key_places(around)]
    told, place, was_hidden = list[str](), 0, False
    for char in marked:
        is_hidden = any(first <= place < end for first, end in hidden)
        if not is_hidden:
            told.append(dict(zip(MARKS, "[]", strict=True)).get(char, char))
        elif not was_hidden:
            told.append("[redacted]")
        was_hidden = is_hidden
        place += char not in MARKS
    return "".join(told)


def plain_part(marked: str) -> str:
    """``marked`` as it stood in the text: without ``MARKS`` and ``CUT``."""
    return marked.translate(dict.fromkeys(map(ord, MARKS))).strip(CUT)


def secrets_in(name: str, value: str) -> Iterator[str]:
    """What nobody may see of what a server is given as a variable or header ``name``.

    Where the name says nothing, an address, a path or a few words are none, but for the password
    or the key in them; an address is none, whatever the name. Looks at the disk.
    """
    named = is_called_credential(name.replace("-", "_"), value)
    for text in dict.fromkeys((value, *(word.strip(_MARKS) for word in value.split()))):
        if is_secret(text) and not (is_plain_address(text) if named else _is_plain(text)):
            yield text
            tokens = _BETWEEN.split(text) if text != value or named else ()
            yield from (each for each in tokens if is_secret(each) and not _is_plain(each))
    yield from keys_within(value)


def keys_within(text: str) -> Iterator[str]:
    """What stands in ``text`` where keys do: in an address, after its name, in a known form."""
    parts = [login.partition(":")[2] for login, _ in _LOGIN.findall(text)]
    parts += [*(found[0] for found in re.finditer(KEYS, text)), *_NAMED.findall(text)]
    parts += _AUTHORISED.findall(text)
    for name, word in _PAIR.findall(text):
        if is_called_credential(name.replace("-", "_"), word) and not is_plain_address(word):
            parts.append(word.strip(_MARKS))
    yield from filter(is_secret, parts)


def is_plain_address(text: str) -> bool:
    """Whether it is an address that lets nobody in."""
    return "://" in text and _is_plain(text)


def _is_plain(text: str) -> bool:
    """Whether it is an address, a path, a server and its port, a mailbox, or words and numbers."""
    if "://" in text:
        has_password = any(":" in login for login, _ in _LOGIN.findall(text))
        return not has_password and not any(map(is_secret, re.split(r"[/?&=#]+", text)[2:]))
    if text.startswith(("/", "~/", "./", "../")):
        first = "/".join(text.split("/", 2)[:2])
        return os.path.lexists(os.path.expanduser(first))  # noqa: PTH111 - a text
    forms = rf"{_WORD}|[0-9]{{1,12}}|{_SIZED}"
    words = (re.fullmatch(forms, each) for each in re.split(_BETWEEN_WORDS, text))
    return all(words) or re.fullmatch(_SERVED, text) is not None


def _is_dummy(text: str) -> bool:
    """Whether it is words, or says itself that it stands for a key."""
    is_words = all(re.fullmatch(_WORD, part) for part in re.split(_SEPARATORS, text))
    return is_words or re.search(_DUMMY, text) is not None


def is_called_credential(name: str, value: str) -> bool:
    """Whether the variable is there to hold a key, a token or a password, and holds something.

    A flag, a small number or the path of a file says nothing, and the fingerprint of a key is
    public. Looks at the disk.
    """
    text = value.strip()
    is_public = _FINGERPRINT.fullmatch(f"{name}={text}".upper()) is not None
    if is_public or _NAMES.fullmatch(name.upper()) is None:
        return False
    is_path = text.startswith(("/", "~/")) and os.path.lexists(os.path.expanduser(text))  # noqa: PTH111 - a text
    return not is_path and _SAYS_NOTHING.fullmatch(text) is None


@lru_cache(maxsize=1024)
def is_credential(name: str, value: str) -> bool:
    """Whether the variable may give who reads it a right of the user's: by its name, or its form.

    Looks at the disk.
    """
    logins = _LOGIN.findall(value) if "://" in value else ()
    return (
        is_called_credential(name, value)
        or any(_opens(login, server) for login, server in logins)
        or any(is_secret(found[0]) for found in re.finditer(KEYS, value))
        or any(is_secret(found) for found in _AUTHORISED.findall(value))
        or _names_password(value)
    )


def _names_password(value: str) -> bool:
    """Whether it sets one, as connection strings do: ``jdbc:…?user=me&password=…``."""
    if "=" not in value or not (found := _NAMED.findall(value)):
        return False
    servers = _SERVER.findall(value)
    is_elsewhere = bool(servers) and not all(map(is_private_server, servers))
    return any(is_elsewhere or _is_chosen(each) for each in found)


def _opens(login: str, server: str) -> bool:
    """Whether it is more than the name of a user or what every server of one's own is set to."""
    user, _, password = login.partition(":")
    is_elsewhere = bool(password) and not is_private_server(server)
    return is_secret(user) or is_elsewhere or _is_chosen(password)


def _is_chosen(password: str) -> bool:
    """Whether a password of a server of one's own is more than what all such are set to."""
    return is_secret(password) or (len(password) >= _SHORT and not _is_dummy(password))


def _bits(text: str) -> float:
    """What the characters say at most, if each came by chance as often as it does here."""
    size = len(text)
    return -sum(count * math.log2(count / size) for count in Counter(text).values())


# --- whose server it is --------------------------------------------------------------------

_PRIVATE = (
    r"(?:127|10)\.[0-9.]+|192\.168\.[0-9.]+|172\.(?:1[6-9]|2[0-9]|3[01])\.[0-9.]+|169\.254\.[0-9.]+"
    r"|100\.(?:6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\.[0-9.]+|0\.0\.0\.0"
    r"|::1?|::ffff:127\.[0-9.]+|f[cd][0-9a-f]{2}:.*|fe80:.*"
    r"|[^.:]+|.*\.(?:localhost|local|internal|lan|home\.arpa)\.?"
)


def is_private_server(url: str) -> bool:
    """Whether ``url`` leads to this machine or a private network, as far as it says so itself.

    The ranges are those of RFC 1918, 4193, 3927 and 6598; a name without a dot is one of a network
    of one's own. No name is resolved.
    """
    try:
        host = urlsplit(url if "://" in url else f"//{url}").hostname
    except ValueError:
        return False
    return bool(host and re.fullmatch(_PRIVATE, host.lower()))
