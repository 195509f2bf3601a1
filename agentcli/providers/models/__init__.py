"""Which models there are: the table, what servers list, their windows.

Law: what is not known stays unknown, and no key goes to a host that the user did not name.
"""
