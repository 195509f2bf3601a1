"""What is a secret, by its form: a real key is kept from sight, a dummy changes no data (SEC-9).

Law: only what nobody would write by chance is a secret. Keys of servers that ask for none
("ollama", "dummy-key", "sk-local"), words and other weak values are not: taking them out would
garble all that is written, and nobody gains by knowing them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from urllib.parse import urlsplit

from agentcli.domain.patterns import LazyPattern

_SHORTEST = 12
_LEAST_BITS = 40.0
# how keys of services begin, whatever follows
_PREFIXES = LazyPattern(
    r"[srp]k-(?:ant-|proj-|or-|svcacct-)?|[sr]k_(?:live|test)_|AIza|ya29\.|gh[pousr]_|github_pat_"
    r"|glpat-|xox[abeprs]-|gsk_|hf_|npm_|xai-|csk-|pplx-|A(?:KI|SI)A|eyJ"
)
_SEPARATORS = r"[-_. /]+"
_WORD = r"(?:[A-Z]?[a-z]{1,14}|[A-Z]{1,14})?[0-9]{0,4}"
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
    if len(body) < _SHORTEST or re.search(_DUMMY, body):
        return False
    is_words = all(re.fullmatch(_WORD, part) for part in re.split(_SEPARATORS, body))
    return not is_words and _bits(body) >= _LEAST_BITS


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
