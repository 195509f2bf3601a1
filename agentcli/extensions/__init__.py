"""What users bring: skills, commands, agents, hooks and plugins, as values for ``app``.

Law: nothing here takes effect before the user trusts where it comes from (SEC-1).
"""
