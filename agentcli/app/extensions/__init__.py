"""What users bring, introduced to one session: skills, commands, agents, plugins, checks.

Law: without any of these nothing is read or imported; a repository's count only as trusted.
"""
