"""The judge: may this call run, has the user to be asked, or is it refused?

The face is ``judge(call, place) -> Decision`` in ``judge.py``, its values are in ``decision.py``.
Law: what is not understood asks; deny wins; a decision names the rule that made it (SEC-3, SEC-4).
"""
