"""What ``web_fetch`` makes of a page: its text, bounded, from HTML nobody vouches for.

Law: hostile markup costs bounded time and memory (TOOL-12, SEC-13).
"""
