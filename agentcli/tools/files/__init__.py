"""What the file tools share: paths, text, encodings, matching, patches, safe and atomic writes.

Law: bytes that a change does not name stay as they are (TOOL-8).
"""
