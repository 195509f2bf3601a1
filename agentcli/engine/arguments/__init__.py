"""From the text that a model wrote to arguments that its tool accepts.

Law: a repair never changes a key or a value, and a value that was cut never runs (LOOP-9).
"""
