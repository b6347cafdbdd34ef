"""Statements that the SQL door must refuse, each for itself and hidden in others."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

# What an attack on Spark's Thrift server did, word by word.
OF_THE_FIRST_ATTACK = """
SELECT TRANSFORM (query) USING 'bash -c "id > {outside}/id"' AS (x) FROM warehouse.accuracy
FROM warehouse.accuracy SELECT TRANSFORM (query) USING 'bash -c id'
SELECT * FROM text.`{secret}`
SELECT * FROM binaryFile.`/etc/shadow`
SELECT * FROM text."{secret}"
SET spark.sql.sources.commitProtocolClass = org.apache.spark.internal.io.HadoopMapReduceCommitProtocol
CREATE TABLE mine USING parquet LOCATION '{outside}/mine' AS SELECT 1 AS x
INSERT OVERWRITE DIRECTORY '{outside}/mine' USING csv SELECT 1 AS x
INSERT OVERWRITE warehouse.accuracy SELECT * FROM warehouse.accuracy
ALTER TABLE warehouse.accuracy SET LOCATION '{outside}'
DROP TABLE warehouse.accuracy
DROP SCHEMA tidegate CASCADE
ADD JAR '{outside}/evil.jar'
SELECT java_method('java.lang.System', 'exit', 3)
SELECT reflect('java.lang.System', 'exit', 3)
CREATE FUNCTION f AS 'x.Y' USING JAR '{outside}/evil.jar'
"""

# What DuckDB and PostgreSQL have of the kind.
STATEMENTS = """
COPY warehouse.accuracy TO '{outside}/a.csv'
COPY (SELECT 1) TO '{outside}/a.parquet' (FORMAT parquet)
COPY (SELECT 1) TO PROGRAM 'id'
COPY (SELECT 1) TO '/dev/stdout'
COPY warehouse.accuracy TO STDOUT
COPY warehouse.accuracy FROM '{secret}'
COPY FROM DATABASE memory TO other
ATTACH '{outside}/new.db'
ATTACH '{outside}/new.db' AS x (READ_ONLY)
ATTACH ':memory:' AS x
DETACH memory
USE warehouse
INSTALL httpfs
INSTALL httpfs FROM community
FORCE INSTALL '{outside}/evil.duckdb_extension'
LOAD httpfs
LOAD '{outside}/evil.duckdb_extension'
UPDATE EXTENSIONS
PRAGMA database_list
PRAGMA enable_profiling
PRAGMA disable_optimizer
PRAGMA table_info('warehouse.accuracy')
PRAGMA import_database('{outside}')
PRAGMA json_execute_serialized_sql('{{}}')
EXPORT DATABASE '{outside}/all'
IMPORT DATABASE '{outside}/all'
CREATE TABLE mine (a int)
CREATE TEMP TABLE mine AS SELECT 1
CREATE TABLE warehouse.mine AS SELECT 1
CREATE VIEW warehouse.mine AS SELECT 1
CREATE OR REPLACE VIEW warehouse.accuracy AS SELECT * FROM '{secret}'
CREATE SCHEMA mine
CREATE SEQUENCE mine
CREATE TYPE mine AS ENUM ('a')
CREATE MACRO mine(a) AS a
CREATE OR REPLACE MACRO pg.version() AS getenv('HOME')
CREATE FUNCTION mine() RETURNS int AS 'x' LANGUAGE c
CREATE SECRET s (TYPE s3)
CREATE EXTENSION plpythonu
CREATE USER mallory
CREATE INDEX i ON warehouse.accuracy (query)
INSERT INTO warehouse.accuracy SELECT * FROM warehouse.accuracy
INSERT INTO pg.pg_class SELECT * FROM pg.pg_class
WITH x AS (SELECT 1) INSERT INTO warehouse.accuracy SELECT * FROM x
WITH x AS (INSERT INTO pg.pg_class SELECT * FROM pg.pg_class RETURNING oid) SELECT * FROM x
WITH x AS (DELETE FROM pg.pg_class RETURNING oid) SELECT * FROM x
UPDATE warehouse.accuracy SET query = 'x'
UPDATE pg.pg_class SET relname = 'x'
DELETE FROM pg_catalog.pg_class
DELETE FROM warehouse.accuracy
TRUNCATE warehouse.accuracy
MERGE INTO pg.pg_class USING pg.pg_type ON true WHEN MATCHED THEN DELETE
ALTER VIEW warehouse.accuracy RENAME TO x
ALTER TABLE pg.pg_class RENAME TO x
COMMENT ON VIEW warehouse.accuracy IS 'mine'
DROP VIEW warehouse.accuracy
DROP TABLE pg.pg_class
DROP MACRO pg.version
VACUUM
ANALYZE
CHECKPOINT
FORCE CHECKPOINT
CALL pragma_version()
CALL duckdb_settings()
CALL enable_logging()
EXECUTE nothing
PREPARE mine AS SELECT getenv('HOME')
PREPARE mine AS COPY (SELECT 1) TO '{outside}/x'
DO 'begin end'
LISTEN x
LOCK TABLE warehouse.accuracy
GRANT ALL ON warehouse.accuracy TO PUBLIC
SET memory_limit = '100GB'
SET threads = 100
SET enable_external_access = true
SET GLOBAL enable_external_access = true
SET LOCAL enable_external_access = true
SET SESSION enable_external_access TO true
SET lock_configuration = false
SET allowed_directories = ['/']
SET allowed_paths = ['/etc/passwd']
SET extension_directory = '{outside}'
SET home_directory = '{outside}'
SET temp_directory = '{outside}'
SET file_search_path = '/etc'
SET log_query_path = '{outside}/log'
SET profiling_output = '{outside}/profile'
SET python_enable_replacements = true
SET VARIABLE x = getenv('HOME')
SET ROLE postgres
SET SESSION AUTHORIZATION postgres
SET client_encoding = 'LATIN1'
SET standard_conforming_strings = off
SET transaction_read_only = off
RESET memory_limit
RESET enable_external_access
SET VARIABLE a = (SELECT 1)
SHOW DATABASES
SHOW ALL TABLES
SHOW memory_limit
DESCRIBE '{secret}'
DESCRIBE SELECT getenv('HOME')
SUMMARIZE '{secret}'
SUMMARIZE SELECT * FROM read_text('{secret}')
EXPLAIN COPY (SELECT 1) TO '{outside}/x'
EXPLAIN ANALYZE COPY (SELECT 1) TO '{outside}/x'
EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1
EXPLAIN (ANALYZE) SELECT getenv('HOME')
EXPLAIN ANALYZE VERBOSE SELECT * FROM read_text('{secret}')
EXPLAIN EXPLAIN SELECT 1
EXPLAIN SET memory_limit = '1GB'
PIVOT warehouse.accuracy ON query USING max(getenv('HOME'))
UNPIVOT (SELECT getenv('HOME') a) ON a
DECLARE c CURSOR FOR SELECT getenv('HOME')
FROM query('SELECT 1')
FROM query_table('accuracy')
FROM warehouse.accuracy AT (VERSION => 1)
FROM python_variable
FROM os
SELECT * FROM duckdb_settings
SELECT * FROM memory.main.sqlite_master
SELECT * FROM system.main.duckdb_functions
SELECT * FROM other.warehouse.accuracy
"""

# Expressions that see or do more than their arguments.
CALLS = """
getenv('TIDEGATE_SECRET')
system.main.getenv('HOME')
"getenv"('HOME')
GetEnv('HOME')
getvariable('x')
current_query()
nextval('x')
currval('x')
setval('x', 1)
write_log('x')
sleep_ms(1)
pg_sleep(1)
pg_read_file('/etc/passwd')
pg_read_binary_file('/etc/passwd')
pg_ls_dir('/')
pg_terminate_backend(1)
pg_cancel_backend(1)
pg_reload_conf()
lo_import('/etc/passwd')
lo_export(1, '{outside}/x')
dblink('host=127.0.0.1', 'SELECT 1')
query_to_xml('SELECT 1', true, true, '')
database_to_xml(true, true, '')
json_serialize_sql('SELECT 1')
json_serialize_plan('SELECT 1')
json_deserialize_sql('x')
json_execute_serialized_sql('x')
parse_duckdb_log_message('x', 'y')
arrow_scan(1, 2, 3)
txid_current()
current_connection_id()
which_secret('a', 'b')
st_geomfromwkb('x'::blob)
hive_partition_component('a', 'b')
__internal_decompress_string(1)
create_sort_key(1)
finalize(1)
java_method('java.lang.System', 'exit', 3)
('HOME').getenv()
pg.getenv('HOME')
tidegate.getenv('HOME')
pg_catalog.getenv('HOME')
information_schema.getenv('HOME')
"""

# What stands after FROM and is no relation of the pipeline.
TABLES = """
'{secret}'
"{secret}"
'{outside}/*.csv'
'/etc/passwd'
"/etc/passwd.csv"
'file://{secret}'
'https://127.0.0.1/x.parquet'
's3://bucket/x.parquet'
'{warehouse}/accuracy/interval=2013-02-08T10/part.parquet'
'{warehouse}/**/*.parquet'
read_csv('{secret}')
read_csv_auto('{secret}')
"read_csv"('{secret}')
main.read_csv('{secret}')
system.main.read_csv('{secret}')
pg_catalog.read_text('{secret}')
READ_TEXT('{secret}')
read_text('/proc/self/environ')
read_text('/etc/passwd')
read_blob('{secret}')
read_json('{secret}')
read_json_auto('{secret}')
read_ndjson('{secret}')
read_parquet('{warehouse}/**/*.parquet')
parquet_scan('{warehouse}/**/*.parquet')
parquet_metadata('{warehouse}/**/*.parquet')
parquet_schema('{warehouse}/**/*.parquet')
read_duckdb('{outside}/x.db')
sniff_csv('{secret}')
glob('/*')
glob('{outside}/**')
duckdb_settings()
duckdb_secrets()
duckdb_functions()
duckdb_variables()
duckdb_logs()
duckdb_temporary_files()
duckdb_external_file_cache()
pragma_table_info('warehouse.accuracy')
pragma_database_size()
pragma_storage_info('x')
arrow_scan(1, 2, 3)
arrow_scan_dumb(1, 2, 3)
pandas_scan(1)
python_arrow_scan(1)
seq_scan('x')
enable_logging()
enable_profiling()
force_checkpoint()
checkpoint()
query('SELECT getenv(''HOME'')')
query_table(['x.csv'])
json_execute_serialized_sql('x')
test_all_types()
which_secret('a', 'b')
repeat_row(1, num_rows = 3)
icu_calendar_names()
register_external_resource('x')
sqlite_master
duckdb_tables
duckdb_settings
pragma_database_list
main.sqlite_master
system.information_schema.tables
"""

# Where an expression can stand.
AROUND_CALLS = """
SELECT {call}
SELECT DISTINCT {call} AS a
SELECT count(*) FROM warehouse.accuracy WHERE {call} IS NOT NULL
SELECT max({call}) FROM warehouse.accuracy
SELECT max(value) FILTER (WHERE {call} IS NULL) FROM warehouse.accuracy
SELECT max(value) OVER (PARTITION BY {call}) FROM warehouse.accuracy
SELECT max({call}) OVER () FROM warehouse.accuracy
SELECT value FROM warehouse.accuracy ORDER BY {call}
SELECT string_agg(query, ',' ORDER BY {call}) FROM warehouse.accuracy
SELECT count(*) FROM warehouse.accuracy GROUP BY {call}
SELECT query FROM warehouse.accuracy GROUP BY ALL HAVING max({call}) IS NULL
SELECT query FROM warehouse.accuracy QUALIFY {call} IS NULL
SELECT 1 LIMIT (SELECT length({call}))
SELECT 1 OFFSET (SELECT length({call}))
SELECT DISTINCT ON ({call}) query FROM warehouse.accuracy
SELECT CASE WHEN {call} IS NULL THEN 1 ELSE 2 END
SELECT coalesce({call}, 'x')
SELECT CAST({call} AS VARCHAR)
SELECT TRY_CAST({call} AS VARCHAR)
SELECT 'x' IN ({call})
SELECT 'x' BETWEEN {call} AND 'z'
SELECT 'x' = ANY (SELECT {call})
SELECT EXISTS (SELECT {call})
SELECT (SELECT {call})
SELECT ARRAY(SELECT {call})
SELECT [{call}]
SELECT {{'a': {call}}}
SELECT MAP {{'a': {call}}}
SELECT list_transform([1], lambda x: {call})
SELECT [{call} FOR x IN [1]]
SELECT * FROM (SELECT {call}) AS t
SELECT * FROM (VALUES ({call})) AS t(x)
VALUES ({call})
WITH x AS (SELECT {call} AS a) SELECT * FROM x
WITH x AS MATERIALIZED (SELECT {call} AS a) SELECT * FROM x
WITH RECURSIVE r(a) AS (SELECT {call} UNION ALL SELECT {call} FROM r WHERE false) SELECT * FROM r
SELECT 1 UNION SELECT {call}
SELECT 1 EXCEPT SELECT {call}
SELECT * FROM warehouse.accuracy a JOIN warehouse.accuracy b ON {call} IS NULL
SELECT * FROM warehouse.accuracy, LATERAL (SELECT {call})
SELECT * REPLACE ({call} AS query) FROM warehouse.accuracy
SELECT COLUMNS(lambda c: {call} IS NULL) FROM warehouse.accuracy
SELECT * FROM range(length({call}))
SELECT * FROM unnest([{call}])
SELECT 1; SELECT {call}
SELECT 1; /* ; */ SELECT {call} -- ;
/* SELECT 1 */ SELECT {call}
-- SELECT 1
SELECT {call} COLLATE "C"
DESCRIBE SELECT {call}
SUMMARIZE SELECT {call}
EXPLAIN SELECT {call}
EXPLAIN ANALYZE SELECT {call}
EXPLAIN (ANALYZE, VERBOSE) SELECT {call}
BEGIN; SELECT {call}
SELECT TRY({call})
SELECT lag({call}) OVER () FROM warehouse.accuracy
SELECT max(value) OVER w FROM warehouse.accuracy WINDOW w AS (ORDER BY {call})
SELECT GROUPING({call}) FROM warehouse.accuracy GROUP BY {call}
SELECT current_setting({call})
SELECT {call}::regclass
SELECT ({call}).a
SELECT {call}[1]
SELECT value FROM warehouse.accuracy TABLESAMPLE 10% WHERE {call} IS NULL
"""

# Where a table can stand.
AROUND_TABLES = """
SELECT * FROM {table}
FROM {table}
FROM {table} SELECT 1
TABLE {table}
SELECT count(*) FROM warehouse.accuracy, {table}
SELECT count(*) FROM warehouse.accuracy LEFT JOIN {table} ON true
SELECT count(*) FROM warehouse.accuracy NATURAL JOIN {table}
SELECT count(*) FROM warehouse.accuracy POSITIONAL JOIN {table}
SELECT count(*) FROM warehouse.accuracy, LATERAL (SELECT * FROM {table})
SELECT (SELECT count(*) FROM {table})
SELECT EXISTS (FROM {table})
SELECT 1 WHERE 1 IN (SELECT 1 FROM {table})
SELECT 1 UNION ALL SELECT count(*) FROM {table}
WITH x AS (SELECT * FROM {table}) SELECT * FROM x
WITH x AS (WITH y AS (FROM {table}) FROM y) FROM x
WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT 1 FROM {table}) SELECT * FROM r
SELECT * FROM (SELECT * FROM {table}) AS t
SELECT * FROM (FROM {table})
SELECT ARRAY(SELECT 1 FROM {table})
SELECT 1; SELECT * FROM {table}
DESCRIBE {table}
DESCRIBE SELECT * FROM {table}
SUMMARIZE SELECT * FROM {table}
EXPLAIN SELECT * FROM {table}
EXPLAIN ANALYZE SELECT * FROM {table}
SELECT * FROM {table} AS t TABLESAMPLE 10%
SELECT list_transform([1], lambda x: (SELECT count(*) FROM {table}))
SELECT max((SELECT count(*) FROM {table})) FROM warehouse.accuracy
SELECT 1 ORDER BY (SELECT count(*) FROM {table})
SELECT 1 LIMIT (SELECT count(*) FROM {table})
"""


def lines(text: str) -> list[str]:
    """The statements of a list, without those that are a comment alone."""
    return [line for line in text.strip().splitlines() if not line.startswith("-- ")]


def all_statements() -> list[str]:
    """Every statement for itself, and every call and table in the plainest place."""
    plain = [f"SELECT {call}" for call in lines(CALLS)] + [f"SELECT * FROM {table}" for table in lines(TABLES)]
    return [*lines(OF_THE_FIRST_ATTACK), *lines(STATEMENTS), *plain]


def nested_statements() -> Iterator[str]:
    """One call and one table in every place, and every call and table in a place."""
    calls, tables = lines(CALLS), lines(TABLES)
    around_calls, around_tables = lines(AROUND_CALLS), lines(AROUND_TABLES)
    for n, around in enumerate(around_calls):
        yield around.replace("{call}", calls[0])
        yield around.replace("{call}", calls[n % len(calls)])
    for n, around in enumerate(around_tables):
        yield around.replace("{table}", tables[0])
        yield around.replace("{table}", tables[n % len(tables)])


def generated_statements(seed: int, count: int) -> Iterator[str]:
    """Random calls and tables in random places, some twice nested, written in random ways."""
    random = Random(seed)
    calls, tables = lines(CALLS), lines(TABLES)
    for _ in range(count):
        if random.random() < 0.5:
            statement = random.choice(lines(AROUND_CALLS)).replace("{call}", random.choice(calls))
        else:
            statement = random.choice(lines(AROUND_TABLES)).replace("{table}", random.choice(tables))
        if random.random() < 0.3 and statement.startswith("SELECT") and ";" not in statement:
            statement = random.choice(lines(AROUND_CALLS)).replace("{call}", f"({statement})")
        yield _disguised(random, statement)


def _disguised(random: Random, statement: str) -> str:
    """The same statement in other letters."""
    match random.randrange(7):
        case 0:
            return statement.replace(" ", random.choice(["/**/", "\n", "\t", " /* SELECT 1; */ ", "\r\n", "\f"]))
        case 1:
            return "-- SELECT 1;\n" + statement + " -- '"
        case 2:
            return (
                "".join(random.choice([c.upper(), c.lower()]) for c in statement) if "{" not in statement else statement
            )
        case 3:
            return "\N{NO-BREAK SPACE}" + statement.replace(" ", "\N{NO-BREAK SPACE}", 1)
        case 4:
            return f"SELECT 1;;; {statement};"
        case 5:
            return "/* /* nested */ */ " + statement
        case _:
            return statement
