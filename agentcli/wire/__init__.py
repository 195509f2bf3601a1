"""HTTP as bytes and events: one client, bounded bodies, server-sent events, transport errors.

Law: nothing that comes from outside is read without a bound (SEC-13).
"""
