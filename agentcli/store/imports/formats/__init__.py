"""A file for each format: what a session of it looks like, and how it is read.

Law: each has a ``FORMAT``, and knows its files by what is in them.
"""
