"""Ground floor: values, the history law, events, errors, cancel token, ports.

Law: the standard library only; nothing here opens a file or starts anything.
"""
