"""Programs that are run for the agent: guarded, contained, captured and always ended.

The face is ``run(command, limits, sink) -> Result`` in ``run.py``. Law: no process outlives its
owner (CAN-10, REC-8), and none sees a secret of ours (SEC-8).
"""
