"""What extends a session and an installation: hooks, servers, checks, instructions, stores, extras.

Law: values and ports only, and a store in memory; ``extensions`` and ``app`` read what users bring
and put it in.
"""
