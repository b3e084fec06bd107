"""Texts of a form: a grammar says after each token which ones may follow.

schema -> grammar (`json_schema.py`: JSON Schema as rules) -> machine (`machine.py`: rules as states, byte by byte) -> `Form` (`form.py`: which tokens fit)
"""
