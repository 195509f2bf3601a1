"""The map of a project: its files, what they define, and who uses what (MEM-3).

Law: what is on disk is the truth and the map a cache: lose it and it is made again. What it says is
bounded in time and size, and it says what it has left out. Files are parsed in a process of their
own; they are opened below the project and through no link.
"""
