"""Runs without a chat: one shot, stream-json in and out, the result object and its schema.

Law: exactly one result ends the output, on every path (CLI-5).
"""
