"""The Model Context Protocol: servers whose tools the model may call (MCP-1 to MCP-7)."""
