"""What outlives a turn: background runs and schedules.

Law: a row carries its attempt, and a stale attempt changes nothing (BG-3).
"""
