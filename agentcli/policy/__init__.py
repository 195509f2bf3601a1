"""The judge: may this call run, and who has to be asked?

Law: what is not understood asks; deny wins; a decision names the rule that made it (SEC-3, SEC-4).
"""
