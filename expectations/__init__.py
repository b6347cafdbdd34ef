"""Data quality of a pipeline's tables: suites as code, the checkpoint that runs them, the Data Docs site.

Knows tables only: it reads what the stages wrote and what the pipeline declared, never how a stage works.

    policy      what a failure means (critical, warning, info) and the thresholds, in one place
    tables      the rows of one interval and of the period that trails it
    columns     columns that no tuple has a value in, and columns that no stream declares: since when
    windows     which windows had to be answered in an interval
    suites/     one module a topic: the frame that is judged, and the expectations on it
    checkpoint  runs the suites on one interval with Great Expectations
    results     validation results → rows of ``quality_results``
    site        the pages: an overview, and one page an interval; they need no network

Great Expectations takes seconds to import, so only ``checkpoint`` and ``site`` import it, when they are first used.
"""
