"""``agent acp``: editors talk to sessions over the Agent Client Protocol, version 1 (ACP-1).

Laws: each session is one of ``app``, as in the chat, with no second loop; nothing is asked of a
client that it has not offered; what a prompt did is told before the prompt is answered.
https://agentclientprotocol.com/protocol/v1/overview
"""
