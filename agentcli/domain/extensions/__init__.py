"""What extends a session and an installation: hooks, servers, checks, instructions, extras.

Law: values and ports only; ``extensions`` and ``app`` read what users bring and put it in.
"""
