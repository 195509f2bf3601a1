"""Whether a directory may have a say (SEC-1): the one question that all of them ask.

Law: nothing that a repository holds takes effect before the person trusts that directory. There
is no way yet to say so: no directory is trusted.
"""

from __future__ import annotations

from pathlib import Path


def is_trusted(directory: Path) -> bool:
    """Whether the person trusts what ``directory`` holds: its settings, hooks and commands."""
    del directory
    return False
