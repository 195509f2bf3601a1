"""Commands about sessions that were: listed, searched, resumed, played again, added up.

Each file is a command, as in the folder above; ``touched`` is what two of them say of a file.
"""
