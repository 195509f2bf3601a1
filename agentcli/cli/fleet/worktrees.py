"""``agent worktrees list|remove|prune``: the worktrees of agents (SCALE-1, CLI-9)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from agentcli.app.worktrees.book import Worktrees
from agentcli.app.worktrees.contents import TreeState
from agentcli.app.worktrees.repository import Worktree, common_directory
from agentcli.cli.commands import CommandSpec, OptionSet, add_command, new_app
from agentcli.cli.listing import FormatOption, print_json, print_table
from agentcli.config.paths import Paths
from agentcli.headless.streams import write_error_line, write_line
from agentcli.ui.sanitize import clean_line

_ALL = "Worktrees of every repository, not just of this one."


class AllOption(OptionSet):
    """``--all`` of what is about this repository else."""

    all: Annotated[bool, typer.Option("--all", help=_ALL)] = False


class ListTreesOptions(FormatOption, AllOption):
    """Options of ``list``."""


class RemoveTreeOptions(OptionSet):
    """Options of ``remove``."""

    name: Annotated[list[str], typer.Argument(metavar="NAME", help="A worktree, or several.")]
    force: Annotated[
        bool, typer.Option("--force", help="Even if it holds work, which is then lost.")
    ] = False


def list_trees(options: ListTreesOptions) -> int:
    """A line for each."""
    as_json = options.as_json
    trees = Worktrees(_paths())
    found = [(tree, trees.state(tree)) for tree in trees.all(_repository(everywhere=options.all))]
    if as_json:
        print_json([_row(tree, state) for tree, state in found])
    elif found:
        rows = [(tree.name, _status(state), str(tree.path)) for tree, state in found]
        print_table(("NAME", "STATE", "PATH"), rows)
    else:
        write_line("There is no worktree. To work in one: agent -w")
    return 0


def remove_trees(options: RemoveTreeOptions) -> int:
    """Remove each that is named."""
    trees, here = Worktrees(_paths()), _repository(everywhere=False)
    for name in options.name:
        tree = trees.named(name, here)
        lost = trees.remove(tree, force=options.force)
        what = "" if lost.is_clean else f", and with it {lost.text()}"
        write_line(f"removed {clean_line(tree.name)}{clean_line(what)}")
    return 0


def prune_trees(options: AllOption) -> int:
    """Remove what is clean and in nobody's use; name what stays."""
    count = 0
    for tree, state in Worktrees(_paths()).prune(_repository(everywhere=options.all)):
        if state is None:
            count += 1
            write_line(f"removed {clean_line(tree.name)}")
        else:
            write_error_line(clean_line(f"kept {tree.name} ({_status(state)}): {tree.path}"))
    if not count:
        write_line("nothing to remove")
    return 0


def _paths() -> Paths:
    return Paths.from_env(os.environ)


def _repository(*, everywhere: bool) -> Path | None:
    """The repository of here; ``None`` outside of one."""
    try:
        return None if everywhere else common_directory(Path.cwd())
    except OSError:
        return None


def _status(state: TreeState) -> str:
    return f"{'in use, ' if state.in_use else ''}{state.text()}"


def _row(tree: Worktree, state: TreeState) -> dict[str, object]:
    return {
        "name": tree.name,
        "path": str(tree.path),
        "branch": tree.branch,
        "base": tree.base,
        "repository": str(tree.repository),
        "root": str(tree.root),
        "created_at": tree.created_at,
        "clean": state.is_clean,
        "changed": state.changed,
        "untracked": state.untracked,
        "commits": state.commits,
        "unfinished": state.unfinished or None,
        "problem": state.problem or None,
        "in_use": state.in_use,
    }


APP = new_app(
    "List and remove the worktrees of agents.\n\n"
    "agent -w NAME works in a worktree of its own, on the branch agent/NAME. When the agent"
    " leaves, a clean one is removed, with its branch; one that holds work is kept until it is"
    " removed here. Clean: no change, no untracked file, no commit that no other branch has.",
    "list",
)
add_command(
    APP,
    CommandSpec("list", "List worktrees, and the work that is only there."),
    ListTreesOptions,
    list_trees,
)
add_command(
    APP,
    CommandSpec("remove", "Remove worktrees; one that holds work only with --force."),
    RemoveTreeOptions,
    remove_trees,
)
add_command(
    APP,
    CommandSpec("prune", "Remove unused clean worktrees, and what killed agents have left."),
    AllOption,
    prune_trees,
)
