-- What drivers ask of the catalogue when a user opens a connection, a schema, a table: the same tables, columns,
-- functions, casts and operators, in our own words. `-- name: who, when, how many rows (+: at least one)`.

-- name: pgjdbc, getSchemas, +
SELECT nspname AS TABLE_SCHEM, current_database() AS TABLE_CATALOG FROM pg_catalog.pg_namespace
WHERE nspname <> 'pg_toast' AND (nspname !~ '^pg_temp_' OR nspname = (pg_catalog.current_schemas(true))[1])
  AND (nspname !~ '^pg_toast_temp_' OR nspname = replace((pg_catalog.current_schemas(true))[1], 'pg_temp_', 'x'))
ORDER BY TABLE_SCHEM
-- name: pgjdbc, getTables, 1
SELECT current_database() AS TABLE_CAT, n.nspname AS TABLE_SCHEM, c.relname AS TABLE_NAME,
  CASE n.nspname ~ '^pg_' OR n.nspname = 'information_schema' WHEN true THEN 'SYSTEM VIEW'
    WHEN false THEN CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'v' THEN 'VIEW' ELSE NULL END ELSE NULL END AS TABLE_TYPE,
  d.description AS REMARKS, '' AS TYPE_CAT, '' AS TYPE_SCHEM, '' AS TYPE_NAME
FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_description d ON (c.oid = d.objoid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass)
WHERE c.relnamespace = n.oid AND n.nspname LIKE 'warehouse' AND c.relname LIKE 'acc%'
  AND (false OR (c.relkind = 'v' AND n.nspname <> 'pg_catalog' AND n.nspname <> 'information_schema'))
ORDER BY TABLE_TYPE, TABLE_SCHEM, TABLE_NAME
-- name: pgjdbc, getColumns, 10
SELECT * FROM (SELECT current_database() AS current_database, n.nspname, c.relname, a.attname, a.atttypid,
  a.attnotnull OR (t.typtype = 'd' AND t.typnotnull) AS attnotnull, a.atttypmod, a.attlen, t.typtypmod,
  row_number() OVER (PARTITION BY a.attrelid ORDER BY a.attnum) AS attnum, nullif(a.attidentity, '') AS attidentity,
  pg_catalog.pg_get_expr(def.adbin, def.adrelid) AS adsrc, dsc.description, t.typbasetype, t.typtype
FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_class c ON (c.relnamespace = n.oid)
JOIN pg_catalog.pg_attribute a ON (a.attrelid = c.oid) JOIN pg_catalog.pg_type t ON (a.atttypid = t.oid)
LEFT JOIN pg_catalog.pg_attrdef def ON (a.attrelid = def.adrelid AND a.attnum = def.adnum)
LEFT JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
WHERE c.relkind IN ('r', 'p', 'v', 'f', 'm') AND a.attnum > 0 AND NOT a.attisdropped AND c.relname LIKE 'accuracy') c
WHERE true ORDER BY nspname, c.relname, attnum
-- name: pgjdbc, getPrimaryKeys, 0
SELECT result.TABLE_NAME, result.COLUMN_NAME, result.KEY_SEQ FROM (
  SELECT ct.relname AS TABLE_NAME, a.attname AS COLUMN_NAME, a.attnum AS A_ATTNUM,
    (information_schema._pg_expandarray(i.indkey)).n AS KEY_SEQ, information_schema._pg_expandarray(i.indkey) AS KEYS
  FROM pg_catalog.pg_class ct JOIN pg_catalog.pg_attribute a ON (ct.oid = a.attrelid)
  JOIN pg_catalog.pg_index i ON (a.attrelid = i.indrelid) WHERE i.indisprimary) result
WHERE result.A_ATTNUM = (result.KEYS).x ORDER BY result.table_name, result.key_seq
-- name: pgjdbc, getImportedKeys, 0
SELECT pkn.nspname, pkc.relname, pka.attname, pos.n AS KEY_SEQ,
  CASE con.confupdtype WHEN 'c' THEN 0 WHEN 'n' THEN 2 ELSE NULL END AS UPDATE_RULE
FROM pg_catalog.pg_namespace pkn, pg_catalog.pg_class pkc, pg_catalog.pg_attribute pka,
  pg_catalog.pg_constraint con, pg_catalog.generate_series(1, 32) pos(n), pg_catalog.pg_class pkic
WHERE pkn.oid = pkc.relnamespace AND pkc.oid = pka.attrelid AND pka.attnum = con.confkey[pos.n]
  AND con.confrelid = pkc.oid AND con.contype = 'f' AND pkic.relkind = 'i'
-- name: pgjdbc, getSQLKeywords, 1
SELECT string_agg(word, ',') FROM pg_catalog.pg_get_keywords() WHERE word <> ALL ('{a,abs,"select"}'::text[])
-- name: pgjdbc, types by number, 1
SELECT n.nspname = ANY(current_schemas(true)), n.nspname, t.typname FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid WHERE t.oid = 1184
-- name: pgjdbc, types by name, 1
SELECT t.typinput = 'pg_catalog.array_in'::regproc AS is_array, t.typtype, t.typname, t.oid FROM pg_catalog.pg_type t
LEFT JOIN (SELECT ns.oid AS nspoid, ns.nspname, r.r FROM pg_catalog.pg_namespace AS ns
  JOIN (SELECT s.r, (current_schemas(false))[s.r] AS nspname FROM generate_series(1, array_upper(current_schemas(false), 1))
    AS s(r)) AS r USING (nspname)) AS sp ON sp.nspoid = t.typnamespace
WHERE t.typname = 'jsonb' OR t.typname = 'json' ORDER BY sp.r, t.oid DESC
-- name: pgjdbc, length of a name, 1
SELECT t.typlen FROM pg_catalog.pg_type t, pg_catalog.pg_namespace n
WHERE t.typnamespace = n.oid AND t.typname = 'name' AND n.nspname = 'pg_catalog'
-- name: pgjdbc, most keys of an index, 1
SELECT setting FROM pg_catalog.pg_settings WHERE name = 'max_index_keys'
-- name: pgjdbc, getTablePrivileges, 1
SELECT n.nspname, c.relname, r.rolname, c.relacl, c.relkind
FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c, pg_catalog.pg_roles r
WHERE c.relnamespace = n.oid AND c.relowner = r.oid AND c.relkind IN ('r', 'p', 'v') AND c.relname LIKE 'accuracy'
-- name: DBeaver, connecting, 1
SELECT current_database(), current_schema(), session_user
-- name: DBeaver, connecting, 1
SHOW search_path
-- name: DBeaver, changing the schema, none
SET search_path = warehouse,"$user",tidegate
-- name: DBeaver, databases, 1
SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate
-- name: DBeaver, schemas, 4
SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass
ORDER BY nspname
-- name: DBeaver, data types, +
SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base_type_name, d.description
FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem
LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid
WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c')
  AND (et.typcategory IS NULL OR et.typcategory <> 'C') AND t.typnamespace = 11
-- name: DBeaver, does a column exist, 1
SELECT 1 FROM pg_catalog.pg_attribute RIGHT JOIN (SELECT 1) x ON attrelid = 'pg_catalog.pg_type'::regclass LIMIT 1
-- name: DBeaver, tables of a schema, +
SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS partition_expr,
  pg_catalog.pg_get_partkeydef(c.oid) AS partition_key
FROM pg_catalog.pg_class c
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass
WHERE c.relnamespace = 2201 AND c.relkind NOT IN ('i', 'I', 'c')
-- name: DBeaver, columns of a schema, +
SELECT c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value, dsc.description, dep.objid
FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid)
LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum)
LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid)
LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i' AND dep.refobjsubid = a.attnum
  AND dep.classid = dep.refclassid
WHERE NOT a.attisdropped AND c.relkind NOT IN ('i', 'I', 'c') AND c.relnamespace = 2201 ORDER BY a.attnum
-- name: DBeaver, constraints, 0
SELECT c.oid, c.*, t.relname AS tabrelname, rt.relnamespace AS refnamespace, d.description, null AS consrc_copy
FROM pg_catalog.pg_constraint c INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid
LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid
LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0
WHERE t.relnamespace = 2201 ORDER BY c.oid
-- name: DBeaver, indexes, 0
SELECT i.*, i.indkey AS keys, c.relname, c.relnamespace, c.relam, c.reltablespace, tc.relname AS tabrelname,
  pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr, pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr,
  pg_catalog.pg_relation_size(i.indexrelid) AS index_rel_size, pg_catalog.pg_stat_get_numscans(i.indexrelid) AS index_num_scans
FROM pg_catalog.pg_index i INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid WHERE c.relnamespace = 2201 ORDER BY c.relname
-- name: DBeaver, procedures, 0
SELECT p.oid AS poid, p.*, pg_catalog.pg_get_expr(p.proargdefaults, 0) AS arg_defaults, d.description
FROM pg_catalog.pg_proc p LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = p.oid AND d.objsubid = 0
WHERE p.pronamespace = 2200 ORDER BY p.proname
-- name: DBeaver, roles, 1
SELECT a.oid, a.*, pd.description FROM pg_catalog.pg_roles a
LEFT JOIN pg_catalog.pg_shdescription pd ON a.oid = pd.objoid ORDER BY a.rolname
-- name: DBeaver, encodings, 0
SELECT c.contoencoding AS encid, pg_catalog.pg_encoding_to_char(c.contoencoding) AS encname
FROM pg_catalog.pg_conversion c GROUP BY c.contoencoding ORDER BY 2
-- name: DBeaver, access methods, 1
SELECT am.oid, am.* FROM pg_catalog.pg_am am ORDER BY am.oid
-- name: DBeaver, foreign data wrappers, 0
SELECT l.oid, l.*, p.pronamespace AS handler_schema_id FROM pg_catalog.pg_foreign_data_wrapper l
LEFT OUTER JOIN pg_catalog.pg_proc p ON p.oid = l.fdwhandler ORDER BY l.fdwname
-- name: DBeaver, tablespaces, 1
SELECT t.oid, t.*, pg_tablespace_location(t.oid) loc FROM pg_catalog.pg_tablespace t ORDER BY t.oid
-- name: DBeaver, inheritance, 0
SELECT i.*, c.relnamespace FROM pg_catalog.pg_inherits i, pg_catalog.pg_class c
WHERE i.inhrelid = 20000 AND c.oid = i.inhparent ORDER BY i.inhseqno
-- name: DBeaver, a view's text, 1
SELECT pg_get_viewdef(20000, true)
-- name: DBeaver, the rows of a table, 20
SELECT * FROM warehouse.accuracy x LIMIT 20
-- name: DBeaver, counting rows, 1
SELECT count(*) FROM (SELECT * FROM warehouse.accuracy) dbvrcnt
-- name: psql, \d, +
SELECT n.nspname AS "Schema", c.relname AS "Name", CASE c.relkind WHEN 'v' THEN 'view' END AS "Type",
  pg_catalog.pg_get_userbyid(c.relowner) AS "Owner", pg_catalog.pg_size_pretty(pg_catalog.pg_table_size(c.oid)) AS "Size",
  pg_catalog.obj_description(c.oid, 'pg_class') AS "Description"
FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', '') AND n.nspname !~ '^pg_toast' AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1, 2
-- name: psql, \d accuracy, 1
SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname OPERATOR(pg_catalog.~) '^(accuracy)$' COLLATE pg_catalog.default ORDER BY 2, 3
-- name: psql, \d accuracy, +
SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true)
  FROM pg_catalog.pg_attrdef d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef), a.attnotnull
FROM pg_catalog.pg_attribute a WHERE a.attrelid = '20000' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
-- name: psql, \d accuracy, +
SELECT CASE WHEN c.reloftype = 0 THEN '' ELSE c.reloftype::pg_catalog.regtype::pg_catalog.text END, am.amname
FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_am am ON (c.relam = am.oid) WHERE c.oid = '20000'
-- name: psql, \l, 1
SELECT d.datname AS "Name", pg_catalog.pg_get_userbyid(d.datdba) AS "Owner",
  pg_catalog.array_to_string(d.datacl, E'\n') AS "Access privileges" FROM pg_catalog.pg_database d ORDER BY 1
-- name: psycopg, a type, 1
SELECT typname AS name, oid, typarray AS array, oid::regtype::text AS regtype, typdelim AS delimiter
FROM pg_type t WHERE t.oid = to_regtype('json') ORDER BY t.oid
-- name: asyncpg, resetting, none
RESET ALL
-- name: asyncpg, connecting, 1
SELECT pg_catalog.set_config('jit', 'off', false)
-- name: Superset, version, 1
SELECT pg_catalog.version()
-- name: Superset, is it read only, 1
SHOW standard_conforming_strings
-- name: Metabase, tables, +
SELECT n.nspname AS schema, c.relname AS name, obj_description(c.oid, 'pg_class') AS description,
  has_schema_privilege(n.oid, 'usage'), has_table_privilege(c.oid, 'select')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON c.relnamespace = n.oid WHERE c.relkind = ANY(ARRAY['r', 'v'])
-- name: Power BI and others, information_schema, +
SELECT t.table_schema, t.table_name, t.table_type, c.column_name, c.data_type, c.ordinal_position, c.is_nullable
FROM information_schema.tables t JOIN information_schema.columns c USING (table_catalog, table_schema, table_name)
WHERE t.table_schema NOT IN ('information_schema', 'pg_catalog') ORDER BY 1, 2, 6
-- name: Power BI and others, keys, 0
SELECT i.constraint_schema || '_' || i.constraint_name, ii.column_name FROM information_schema.table_constraints i
JOIN information_schema.key_column_usage ii ON i.constraint_schema = ii.constraint_schema
WHERE i.constraint_type IN ('PRIMARY KEY', 'UNIQUE')
