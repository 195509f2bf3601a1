"""Worktrees of the user's repositories, each for one agent at a time (SCALE-1).

Laws: what is made is written down before, and taken back whole; git runs by ``safe_git``, and
by the directories that were written down, never by what a ``.git`` file says now. All of it blocks.
"""
