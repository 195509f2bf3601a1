"""What all tools share: the base class, the registry, and the tools that have no file of their own.

Law: every other module beside this folder is a tool, or a few that belong together.
"""
