"""The catalogue of sessions and its statistics.

Law: it is a cache; losing it loses nothing.
"""
