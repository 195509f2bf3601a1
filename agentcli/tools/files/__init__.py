"""What the file tools share: paths, text and encodings, matching, patches, atomic writes.

Law: bytes that a change does not name stay as they are (TOOL-8).
"""
