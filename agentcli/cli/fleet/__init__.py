"""Commands for more than one agent at a time: worktrees, batches, pipelines, CI.

Each file is a command, as in the folder above; ``stay`` is what ``-w`` means to chat and one shot.
"""
