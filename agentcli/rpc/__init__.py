"""JSON-RPC 2.0 over any pair of "send a line" and "lines that come": the core of MCP and ACP.

Law: every request, in both directions, gets exactly one answer; nothing here grows without bound.
"""
