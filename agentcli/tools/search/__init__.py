"""What the search tools share: globs, ignore files, ripgrep and the search without it.

Law: both ways find the same, and no pattern can hang the program (TOOL-10).
"""
