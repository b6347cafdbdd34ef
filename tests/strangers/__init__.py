"""The stranger's machine: whole pipelines made from a seed, run through all stages, judged by laws.

    python -m tests.strangers --seed 7                 one pipeline
    python -m tests.strangers --seed 0 --count 150     many; a law that breaks shrinks its case to a small folder
    python -m tests.strangers --case FOLDER            what was kept, once more

A case is a declaration, queries, files, and the order in which its intervals are run (`tests.strangers.case`). The
generator (`generator`, with `columns`, `shapes`, `traffic`, `writing` and `wording` for data and queries) knows the
README and nothing of the code; the laws (`laws`) read tables and files by themselves (`landing` with `tests.reader`,
`infra.oracle`). From seed 1000000 on cases have further clauses (`further`): their queries are written twice by hand,
as users do and as DuckDB's SQL, and tables are judged by the second text (`readings`).
"""
