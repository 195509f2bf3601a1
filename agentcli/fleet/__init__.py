"""Many runs at once: batches and pipelines on one machine or many (SCALE-2, SCALE-3, SCALE-5).

Law: each task is a process of its own, ``agent run``, with a session that is known before it
starts; beginning it again brings that session to its end and asks nothing twice.
"""
