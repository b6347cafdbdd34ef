"""Small inputs of kinds that people have, each with what must come of it.

A case is a folder: ``pipeline.yml``, ``queries``, ``landing``, and ``expected.json``: the range to run, how many
records are accepted, how many are refused by reason, how many accepted ones have columns that are not declared
(``unknown``), and the rows of one window of each query, decimals as text. All records arrive in order, so that the
answer at once is exact. The data are made up; `tests.cases.make` makes those of its list again.
"""
