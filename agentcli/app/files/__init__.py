"""The user's files: what a prompt names, what calls have changed, what goes back.

Law: what a call changes is kept before it does; git is asked without running a repository's code.
"""
