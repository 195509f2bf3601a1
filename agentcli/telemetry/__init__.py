"""What goes to the user's own OpenTelemetry collector, when they ask for it (SCALE-7).

Laws: it is off until the user's settings or environment say otherwise; it changes nothing of what
a session does, and nothing waits for it beyond a stated bound; without a second switch no text of
a prompt, an answer, a tool call or a path leaves.
"""
