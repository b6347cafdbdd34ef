"""An independent reader of streams' files, written by hand from docs/how-to/data-of-your-own.md.

Nothing of the product is imported but the declared models and types. It is slow and simple on purpose: the mutation
campaign (`tests.attacks.records`), the random pipelines (`tests.strangers`) and the property tests compare the product
with it.

    raw       what a record holds before it has a type
    times     texts and numbers that say instants and days
    values    one value in its declared type, or the reason for which there is none
    json_text, csv_text, columnar     records of a file's octets
    files     a file's octets to records: compression, encoding, format
    records   one record judged by itself
    accounts  all records of a stream: duplicates, the intervals that refused records belong to, unknown columns
"""
