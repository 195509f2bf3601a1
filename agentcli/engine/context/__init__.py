"""What one request carries and how it stays within the window: counting, pruning, compaction.

Law: the store is never changed by a request, and a call is never split from its result (CMP-4).
"""
