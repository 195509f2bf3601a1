"""Pipelines: a TOML file of steps that take what earlier ones found, checked before any runs.

What a step makes of its inputs is a pure function of the file and of the results so far, so that
a pipeline goes on where it was killed by being started again (SCALE-5).
"""
