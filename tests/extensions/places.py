"""Places and files of a user's for tests."""

from __future__ import annotations

from pathlib import Path

from agentcli.extensions.places import ExtensionPlace


def place(path: Path, *, in_repository: bool = False, plugin: str = "") -> ExtensionPlace:
    return ExtensionPlace(path, "user", in_repository, plugin)


def write(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def skill(
    directory: Path, name: str, description: str = "d", *, more: str = "", body: str = "Do it."
) -> Path:
    """``directory`` is one of the places; the path of the skill's file."""
    head = f"---\nname: {name}\ndescription: {description}\n{more}---\n{body}\n"
    return write(directory, f"skills/{name}/SKILL.md", head)
