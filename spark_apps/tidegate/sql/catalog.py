"""PostgreSQL's catalogue of one pipeline: ``pg_catalog`` and ``information_schema``, as tables in DuckDB.

DuckDB has views of these names, but with types, columns and functions of its own, over which drivers stumble. Here are
the tables and columns that drivers ask for, filled from the relations; what a pipeline has none of (keys, indexes,
triggers, …) is there and empty. In DuckDB their schemas are called ``pg`` and ``info``.

Source: PostgreSQL 14's documentation, "System Catalogs" and "The Information Schema".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from tidegate.sql.relations import MARTS, TABLES, Relation
from tidegate.sql.values import TYPES, ColumnType, column_type

VERSION = "14.0"
USER = "analyst"
# What SHOW tells, and no SET changes.
FIXED_SETTINGS = {
    "in_hot_standby": "off",
    "integer_datetimes": "on",
    "is_superuser": "off",
    "lc_collate": "C",
    "lc_ctype": "C",
    "max_identifier_length": "63",
    "max_index_keys": "32",
    "server_encoding": "UTF8",
    "server_version": VERSION,
    "server_version_num": "140000",
    "session_authorization": USER,
}
_OWNER, _DATABASE = 10, 5
_SCHEMAS = {"pg_catalog": 11, "information_schema": 13000, MARTS: 2200, TABLES: 2201}
_FIRST_RELATION, _FIRST_OWN = 20000, 10000
_PG_CLASS = 1259

# Table → columns, each with the letter of its type. Upper case stands for a list.
_LETTERS = {
    "o": "BIGINT",
    "i": "INTEGER",
    "s": "SMALLINT",
    "b": "BOOLEAN",
    "t": "VARCHAR",
    "f": "FLOAT",
    "z": "TIMESTAMPTZ",
    "T": "VARCHAR[]",
    "S": "SMALLINT[]",
    "O": "BIGINT[]",
}
_PG = {
    "pg_am": "oid:o amname:t amhandler:t amtype:t",
    "pg_attrdef": "oid:o adrelid:o adnum:s adbin:t",
    "pg_attribute": "attrelid:o attname:t atttypid:o attstattarget:i attlen:s attnum:s attndims:i attcacheoff:i "
    "atttypmod:i attbyval:b attalign:t attstorage:t attcompression:t attnotnull:b atthasdef:b atthasmissing:b "
    "attidentity:t attgenerated:t attisdropped:b attislocal:b attinhcount:i attcollation:o attacl:T attoptions:T "
    "attfdwoptions:T attmissingval:t",
    "pg_authid": "oid:o rolname:t rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b",
    "pg_auth_members": "roleid:o member:o grantor:o admin_option:b",
    "pg_available_extensions": "name:t default_version:t installed_version:t comment:t",
    "pg_cast": "oid:o castsource:o casttarget:o castfunc:o castcontext:t castmethod:t",
    "pg_class": "oid:o relname:t relnamespace:o reltype:o reloftype:o relowner:o relam:o relfilenode:o "
    "reltablespace:o relpages:i reltuples:f relallvisible:i reltoastrelid:o relhasindex:b relisshared:b "
    "relpersistence:t relkind:t relnatts:s relchecks:s relhasrules:b relhastriggers:b relhassubclass:b "
    "relrowsecurity:b relforcerowsecurity:b relispopulated:b relreplident:t relispartition:b relrewrite:o "
    "relfrozenxid:o relminmxid:o relacl:T reloptions:T relpartbound:t",
    "pg_collation": "oid:o collname:t collnamespace:o collowner:o collprovider:t collisdeterministic:b "
    "collencoding:i collcollate:t collctype:t collversion:t",
    "pg_constraint": "oid:o conname:t connamespace:o contype:t condeferrable:b condeferred:b convalidated:b "
    "conrelid:o contypid:o conindid:o conparentid:o confrelid:o confupdtype:t confdeltype:t confmatchtype:t "
    "conislocal:b coninhcount:i connoinherit:b conkey:S confkey:S conpfeqop:O conppeqop:O conffeqop:O conexclop:O "
    "conbin:t",
    "pg_conversion": "oid:o conname:t connamespace:o conowner:o conforencoding:i contoencoding:i conproc:o",
    "pg_database": "oid:o datname:t datdba:o encoding:i datcollate:t datctype:t datistemplate:b datallowconn:b "
    "datconnlimit:i datlastsysoid:o datfrozenxid:o datminmxid:o dattablespace:o datacl:T",
    "pg_depend": "classid:o objid:o objsubid:i refclassid:o refobjid:o refobjsubid:i deptype:t",
    "pg_description": "objoid:o classoid:o objsubid:i description:t",
    "pg_enum": "oid:o enumtypid:o enumsortorder:f enumlabel:t",
    "pg_event_trigger": "oid:o evtname:t evtevent:t evtowner:o evtfoid:o evtenabled:t evttags:T",
    "pg_extension": "oid:o extname:t extowner:o extnamespace:o extrelocatable:b extversion:t extconfig:O "
    "extcondition:T",
    "pg_foreign_data_wrapper": "oid:o fdwname:t fdwowner:o fdwhandler:o fdwvalidator:o fdwacl:T fdwoptions:T",
    "pg_foreign_server": "oid:o srvname:t srvowner:o srvfdw:o srvtype:t srvversion:t srvacl:T srvoptions:T",
    "pg_foreign_table": "ftrelid:o ftserver:o ftoptions:T",
    "pg_index": "indexrelid:o indrelid:o indnatts:s indnkeyatts:s indisunique:b indisprimary:b indisexclusion:b "
    "indimmediate:b indisclustered:b indisvalid:b indcheckxmin:b indisready:b indislive:b indisreplident:b indkey:S "
    "indcollation:O indclass:O indoption:S indexprs:t indpred:t",
    "pg_indexes": "schemaname:t tablename:t indexname:t tablespace:t indexdef:t",
    "pg_inherits": "inhrelid:o inhparent:o inhseqno:i inhdetachpending:b",
    "pg_language": "oid:o lanname:t lanowner:o lanispl:b lanpltrusted:b lanplcallfoid:o laninline:o lanvalidator:o",
    "pg_locks": "locktype:t database:o relation:o pid:i mode:t granted:b",
    "pg_matviews": "schemaname:t matviewname:t matviewowner:t tablespace:t hasindexes:b ispopulated:b definition:t",
    "pg_namespace": "oid:o nspname:t nspowner:o nspacl:T",
    "pg_opclass": "oid:o opcmethod:o opcname:t opcnamespace:o opcowner:o opcfamily:o opcintype:o opcdefault:b "
    "opckeytype:o",
    "pg_operator": "oid:o oprname:t oprnamespace:o oprowner:o oprkind:t oprleft:o oprright:o oprresult:o oprcode:o",
    "pg_partitioned_table": "partrelid:o partstrat:t partnatts:s partdefid:o partattrs:S partclass:O partcollation:O "
    "partexprs:t",
    "pg_policies": "schemaname:t tablename:t policyname:t permissive:t roles:T cmd:t qual:t with_check:t",
    "pg_policy": "oid:o polname:t polrelid:o polcmd:t polpermissive:b polroles:O polqual:t polwithcheck:t",
    "pg_proc": "oid:o proname:t pronamespace:o proowner:o prolang:o procost:f prorows:f provariadic:o prosupport:t "
    "prokind:t prosecdef:b proleakproof:b proisstrict:b proretset:b provolatile:t proparallel:t pronargs:s "
    "pronargdefaults:s prorettype:o proargtypes:O proallargtypes:O proargmodes:T proargnames:T proargdefaults:t "
    "protrftypes:O prosrc:t probin:t prosqlbody:t proconfig:T proacl:T",
    "pg_publication": "oid:o pubname:t pubowner:o puballtables:b pubinsert:b pubupdate:b pubdelete:b pubtruncate:b",
    "pg_publication_rel": "oid:o prpubid:o prrelid:o",
    "pg_publication_tables": "pubname:t schemaname:t tablename:t",
    "pg_range": "rngtypid:o rngsubtype:o rngmultitypid:o rngcollation:o rngsubopc:o rngcanonical:o rngsubdiff:o",
    "pg_rewrite": "oid:o rulename:t ev_class:o ev_type:t ev_enabled:t is_instead:b ev_qual:t ev_action:t",
    "pg_roles": "oid:o rolname:t rolsuper:b rolinherit:b rolcreaterole:b rolcreatedb:b rolcanlogin:b "
    "rolreplication:b rolconnlimit:i rolpassword:t rolvaliduntil:z rolbypassrls:b rolconfig:T",
    "pg_seclabels": "objoid:o classoid:o objsubid:i objtype:t provider:t label:t",
    "pg_sequence": "seqrelid:o seqtypid:o seqstart:o seqincrement:o seqmax:o seqmin:o seqcache:o seqcycle:b",
    "pg_sequences": "schemaname:t sequencename:t sequenceowner:t data_type:t start_value:o last_value:o",
    "pg_settings": "name:t setting:t unit:t category:t short_desc:t context:t vartype:t source:t",
    "pg_shdescription": "objoid:o classoid:o description:t",
    "pg_stat_activity": "datid:o datname:t pid:i usename:t application_name:t state:t query:t",
    "pg_stat_user_tables": "relid:o schemaname:t relname:t n_live_tup:o n_dead_tup:o",
    "pg_statistic_ext": "oid:o stxrelid:o stxname:t stxnamespace:o stxowner:o stxkind:T stxkeys:S stxstattarget:i",
    "pg_tables": "schemaname:t tablename:t tableowner:t tablespace:t hasindexes:b hasrules:b hastriggers:b "
    "rowsecurity:b",
    "pg_tablespace": "oid:o spcname:t spcowner:o spcacl:T spcoptions:T",
    "pg_timezone_names": "name:t abbrev:t utc_offset:t is_dst:b",
    "pg_trigger": "oid:o tgrelid:o tgparentid:o tgname:t tgfoid:o tgtype:s tgenabled:t tgisinternal:b tgconstrrelid:o "
    "tgconstrindid:o tgconstraint:o tgdeferrable:b tginitdeferred:b tgnargs:s tgattr:S tgqual:t",
    "pg_ts_config": "oid:o cfgname:t cfgnamespace:o cfgowner:o cfgparser:o",
    "pg_type": "oid:o typname:t typnamespace:o typowner:o typlen:s typbyval:b typtype:t typcategory:t "
    "typispreferred:b typisdefined:b typdelim:t typrelid:o typsubscript:t typelem:o typarray:o typinput:t typoutput:t "
    "typreceive:t typsend:t typmodin:t typmodout:t typanalyze:t typalign:t typstorage:t typnotnull:b typbasetype:o "
    "typtypmod:i typndims:i typcollation:o typdefaultbin:t typdefault:t typacl:T",
    "pg_user": "usename:t usesysid:o usecreatedb:b usesuper:b userepl:b usebypassrls:b passwd:t valuntil:z useconfig:T",
    "pg_user_mapping": "oid:o umuser:o umserver:o umoptions:T",
    "pg_views": "schemaname:t viewname:t viewowner:t definition:t",
}
_INFO = {
    "columns": "table_catalog:t table_schema:t table_name:t column_name:t ordinal_position:i column_default:t "
    "is_nullable:t data_type:t character_maximum_length:i character_octet_length:i numeric_precision:i "
    "numeric_precision_radix:i numeric_scale:i datetime_precision:i interval_type:t collation_name:t domain_name:t "
    "udt_catalog:t udt_schema:t udt_name:t dtd_identifier:t is_identity:t identity_generation:t is_generated:t "
    "generation_expression:t is_updatable:t",
    "constraint_column_usage": "table_catalog:t table_schema:t table_name:t column_name:t constraint_catalog:t "
    "constraint_schema:t constraint_name:t",
    "key_column_usage": "constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t "
    "table_name:t column_name:t ordinal_position:i position_in_unique_constraint:i",
    "parameters": "specific_catalog:t specific_schema:t specific_name:t ordinal_position:i parameter_name:t "
    "data_type:t",
    "referential_constraints": "constraint_catalog:t constraint_schema:t constraint_name:t "
    "unique_constraint_catalog:t unique_constraint_schema:t unique_constraint_name:t match_option:t update_rule:t "
    "delete_rule:t",
    "routines": "specific_catalog:t specific_schema:t specific_name:t routine_catalog:t routine_schema:t "
    "routine_name:t routine_type:t data_type:t",
    "schemata": "catalog_name:t schema_name:t schema_owner:t default_character_set_name:t sql_path:t",
    "sequences": "sequence_catalog:t sequence_schema:t sequence_name:t data_type:t",
    "table_constraints": "constraint_catalog:t constraint_schema:t constraint_name:t table_catalog:t table_schema:t "
    "table_name:t constraint_type:t is_deferrable:t initially_deferred:t enforced:t",
    "table_privileges": "grantor:t grantee:t table_catalog:t table_schema:t table_name:t privilege_type:t "
    "is_grantable:t with_hierarchy:t",
    "tables": "table_catalog:t table_schema:t table_name:t table_type:t self_referencing_column_name:t "
    "is_insertable_into:t is_typed:t commit_action:t",
    "triggers": "trigger_catalog:t trigger_schema:t trigger_name:t event_object_schema:t event_object_table:t",
    "views": "table_catalog:t table_schema:t table_name:t view_definition:t check_option:t is_updatable:t",
}
_CASES = " ".join(
    f"WHEN {number} THEN '{name}'"
    for one in TYPES
    for number, name in ((one.oid, one.name), (one.array, f"{one.name}[]"))
)
_VISIBLE = ("table", "type", "function", "operator", "opclass", "opfamily", "collation", "conversion", "statistics_obj")
# PostgreSQL's functions → their parameters and bodies, in DuckDB's SQL.
_FUNCTIONS = {
    "array_lower": ["(a, n) AS CASE WHEN len(a) > 0 THEN 1 END"],
    "array_upper": ["(a, n) AS CASE WHEN len(a) > 0 THEN len(a) END"],
    "array_ndims": ["(a) AS 1"],
    "col_description": [
        "(o, n) AS (SELECT max(description) FROM pg.pg_description d WHERE d.objoid = o AND d.objsubid = n)"
    ],
    "current_role": [f"() AS '{USER}'"],
    "current_schema": [f"() AS '{MARTS}'"],
    "current_schemas": [
        f"(system) AS CASE WHEN system THEN ['pg_catalog', '{MARTS}', '{TABLES}'] ELSE ['{MARTS}', '{TABLES}'] END"
    ],
    "current_user": [f"() AS '{USER}'"],
    "format_type": [
        "(o, m) AS CASE WHEN o = 1700 AND m >= 4 THEN format('numeric({},{})', (m - 4) >> 16, (m - 4) & 65535) "
        f"ELSE CASE o {_CASES} WHEN NULL THEN NULL ELSE '???' END END"
    ],
    "inet_server_addr": ["() AS NULL::VARCHAR"],
    "inet_server_port": ["() AS NULL::INTEGER"],
    "obj_description": [
        "(o) AS (SELECT max(description) FROM pg.pg_description d WHERE d.objoid = o AND d.objsubid = 0)",
        "(o, c) AS (SELECT max(description) FROM pg.pg_description d WHERE d.objoid = o AND d.objsubid = 0)",
    ],
    "pg_encoding_to_char": ["(n) AS 'UTF8'"],
    "pg_get_userbyid": [f"(o) AS '{USER}'"],
    "pg_is_in_recovery": ["() AS false"],
    "pg_postmaster_start_time": ["() AS now()"],
    "quote_ident": ["""(t) AS CASE WHEN regexp_full_match(t, '[a-z_][a-z0-9_]*') THEN t ELSE '"' || t || '"' END"""],
    "session_user": [f"() AS '{USER}'"],
    "set_config": ["(name, value, here) AS value"],
    "regclass_name": ["(o) AS (SELECT max(relname) FROM pg.pg_class c WHERE c.oid = o)"],
    "regtype_name": [f"(o) AS CASE o {_CASES} ELSE '-' END"],
    "to_regtype": ["(t) AS (SELECT max(oid) FROM pg.pg_type c WHERE c.typname = t)"],
    "to_regclass": ["(t) AS (SELECT max(oid) FROM pg.pg_class c WHERE c.relname = split_part(t, '.', -1))"],
    "version": [f"() AS 'PostgreSQL {VERSION} (Tidegate, on DuckDB {duckdb.__version__})'"],
    "_pg_expandarray": ["(a) AS unnest(list_transform(a, lambda held, n: {'x': held, 'n': n}))"],
    **{f"pg_{kind}_is_visible": ["(o) AS true"] for kind in _VISIBLE},
    **{
        f"pg_{what}": ["(a) AS NULL::VARCHAR", "(a, b) AS NULL::VARCHAR", "(a, b, c) AS NULL::VARCHAR"]
        for what in ("get_constraintdef", "get_expr", "get_function_arguments", "get_function_identity_arguments")
        + ("get_function_result", "get_functiondef", "get_indexdef", "get_partkeydef", "get_ruledef")
        + ("get_serial_sequence", "get_statisticsobjdef_columns", "get_triggerdef")
        + ("tablespace_location",)
    },
    **{
        f"pg_{what}": ["(a) AS 0::BIGINT", "(a, b) AS 0::BIGINT"]
        for what in ("database_size", "indexes_size", "relation_size", "table_size", "tablespace_size")
        + ("total_relation_size",)
    },
    "pg_get_viewdef": [f"({parameters}) AS '-- the files of the warehouse'" for parameters in ("o", "o, p")],
    **{f"pg_stat_get_{what}": ["(o) AS 0::BIGINT"] for what in ("numscans", "live_tuples", "dead_tuples")},
    "pg_relation_is_publishable": ["(o) AS false"],
    "shobj_description": ["(o, c) AS NULL::VARCHAR"],
    # What may be done is to select.
    **{
        f"has_{what}_privilege": [
            "(a, p) AS upper(p) IN ('SELECT', 'USAGE', 'CONNECT')",
            "(a, b, p) AS upper(p) IN ('SELECT', 'USAGE', 'CONNECT')",
        ]
        for what in ("database", "schema", "table", "any_column", "sequence", "function", "tablespace")
    },
    "pg_has_role": ["(a, p) AS true", "(a, b, p) AS true"],
}
_DATABASE_NAMES = ("current_catalog", "current_database")
FUNCTIONS = frozenset((*_FUNCTIONS, *_DATABASE_NAMES, "pg_backend_pid"))
TABLE_FUNCTIONS = frozenset({"pg_get_keywords"})
SYSTEM_TABLES = {"pg_catalog": ("pg", frozenset(_PG)), "information_schema": ("info", frozenset(_INFO))}


class Oids:
    """The numbers by which the catalogue knows relations and types; the same in every connection to a pipeline."""

    def __init__(self, relations: Sequence[Relation]):
        self.relations = {(r.schema, r.name): _FIRST_RELATION + n for n, r in enumerate(relations)}
        own = [(schema, name) for schema, (_, names) in SYSTEM_TABLES.items() for name in sorted(names)]
        self.system = {key: _FIRST_OWN + n for n, key in enumerate(own)} | {("pg_catalog", "pg_class"): _PG_CLASS}
        self.types = {one.name: one.oid for one in TYPES} | {_short(one.oid): one.oid for one in TYPES}

    def relation(self, text: str, path: Iterable[str]) -> int | None:
        """The number of a relation by its name, with or without schema; None if there is none."""
        schema, _, name = text.replace('"', "").rpartition(".")
        known = self.relations | self.system
        return next((known[s, name] for s in ([schema] if schema else path) if (s, name) in known), None)


def create(connection: duckdb.DuckDBPyConnection, database: str, pid: int, relations: Sequence[Relation]) -> Oids:
    """Make the catalogue in a connection whose configuration is not locked yet. Cost: some 50 ms."""
    oids = Oids(relations)
    macros = [f"CREATE MACRO pg.{name}{', '.join(overloads)};" for name, overloads in _FUNCTIONS.items()]
    macros += [f"CREATE MACRO pg.{name}() AS '{database}';" for name in _DATABASE_NAMES]
    macros.append(f"CREATE MACRO pg.pg_backend_pid() AS {pid};")
    macros.append("CREATE MACRO pg.pg_get_keywords() AS TABLE SELECT 'ilike' AS word, 'U' AS catcode;")
    tables = [
        f"CREATE TABLE {schema}.{name} ({', '.join(_declared(layout))});"
        for schema, layouts in (("pg", _PG), ("info", _INFO))
        for name, layout in layouts.items()
    ]
    connection.execute("\n".join(["BEGIN; CREATE SCHEMA pg; CREATE SCHEMA info;", *tables, *macros]))
    for schema, filled in (("pg", _pg_rows(database, relations, oids)), ("info", _info_rows(database, relations))):
        for name, rows in filled.items():
            if rows:
                connection.register("filling", pa.Table.from_pylist(rows))
                connection.execute(f"INSERT INTO {schema}.{name} BY NAME SELECT * FROM filling")
                connection.unregister("filling")
    connection.execute("COMMIT")
    return oids


def _declared(layout: str) -> list[str]:
    columns = [column.split(":") for column in layout.split()]
    return [f'"{name}" {_LETTERS[letter]}' for name, letter in columns]


def type_of(column: str) -> ColumnType:
    """PostgreSQL's type of a declared column's type, which is written as Spark does."""
    spark = {"string": "VARCHAR", "timestamp": "TIMESTAMP WITH TIME ZONE"}
    return column_type("MAP()" if column.startswith("map<") else spark.get(column, column.upper()))


def _short(oid: int) -> str:
    """A type's name in ``pg_type``."""
    names = {16: "bool", 17: "bytea", 20: "int8", 21: "int2", 23: "int4", 25: "text", 26: "oid", 114: "json"}
    names |= {19: "name", 700: "float4", 701: "float8", 1043: "varchar", 1082: "date", 1083: "time", 1114: "timestamp"}
    return (names | {1184: "timestamptz", 1186: "interval", 1700: "numeric", 2950: "uuid"})[oid]


def _pg_rows(database: str, relations: Sequence[Relation], oids: Oids) -> dict[str, list[dict[str, Any]]]:
    role = {"oid": _OWNER, "rolname": USER, "rolsuper": False, "rolinherit": True, "rolcreaterole": False}
    role |= {"rolcreatedb": False, "rolcanlogin": True, "rolreplication": False, "rolconnlimit": -1}
    types = []
    for one in TYPES:
        shared = {"typnamespace": _SCHEMAS["pg_catalog"], "typowner": _OWNER, "typtype": "b", "typisdefined": True}
        shared |= {"typdelim": ",", "typrelid": 0, "typnotnull": False, "typbasetype": 0, "typtypmod": -1}
        shared |= {"typndims": 0, "typcollation": 0, "typispreferred": False}
        name = _short(one.oid)
        own = {"oid": one.oid, "typname": name, "typlen": one.size, "typcategory": one.category, "typelem": 0}
        types.append({**shared, **own, "typarray": one.array, "typinput": f"{name}in"})
        array = {"oid": one.array, "typname": f"_{name}", "typlen": -1, "typcategory": "A", "typelem": one.oid}
        types.append({**shared, **array, "typarray": 0, "typinput": "array_in"})
    classes = [_class_row(oid, name, schema, "r", 0) for (schema, name), oid in oids.system.items()]
    attributes, descriptions = [], []
    for relation in relations:
        oid = oids.relations[relation.schema, relation.name]
        columns = relation.all_columns()
        classes.append(_class_row(oid, relation.name, relation.schema, "v", len(columns)))
        comments = [relation.comment, *(column.comment for column in columns)]
        descriptions += [
            {"objoid": oid, "classoid": _PG_CLASS, "objsubid": n, "description": text}
            for n, text in enumerate(comments)
            if text
        ]
        for number, column in enumerate(columns, 1):
            kind = type_of(column.type)
            row = {"attrelid": oid, "attname": column.name, "atttypid": kind.oid, "attlen": kind.size}
            row |= {
                "attnum": number,
                "attndims": 0,
                "atttypmod": kind.modifier,
                "attnotnull": False,
                "atthasdef": False,
            }
            row |= {"attidentity": "", "attgenerated": "", "attisdropped": False, "attislocal": True}
            attributes.append({**row, "attinhcount": 0, "attcollation": 0, "attstattarget": -1, "attstorage": "p"})
    return {
        "pg_am": [{"oid": 2, "amname": "heap", "amhandler": "heap_tableam_handler", "amtype": "t"}],
        "pg_attribute": attributes,
        "pg_class": classes,
        "pg_database": [
            {"oid": _DATABASE, "datname": database, "datdba": _OWNER, "encoding": 6, "datcollate": "C", "datctype": "C"}
            | {"datistemplate": False, "datallowconn": True, "datconnlimit": -1, "dattablespace": 1663}
        ],
        "pg_description": descriptions,
        "pg_namespace": [{"oid": oid, "nspname": name, "nspowner": _OWNER} for name, oid in _SCHEMAS.items()],
        "pg_roles": [role],
        "pg_settings": [{"name": name, "setting": value} for name, value in FIXED_SETTINGS.items()],
        "pg_tablespace": [{"oid": 1663, "spcname": "pg_default", "spcowner": _OWNER}],
        "pg_type": types,
        "pg_user": [{"usename": USER, "usesysid": _OWNER, "usecreatedb": False, "usesuper": False, "userepl": False}],
        "pg_views": [{"schemaname": r.schema, "viewname": r.name, "viewowner": USER} for r in relations],
    }


def _class_row(oid: int, name: str, schema: str, kind: str, columns: int) -> dict[str, Any]:
    row = {"oid": oid, "relname": name, "relnamespace": _SCHEMAS[schema], "relowner": _OWNER, "relkind": kind}
    row |= {"reltype": 0, "relam": 0, "reltablespace": 0, "relpages": 0, "reltuples": -1.0, "relhasindex": False}
    row |= {"relisshared": False, "relpersistence": "p", "relnatts": columns, "relchecks": 0, "relhasrules": False}
    row |= {"relhastriggers": False, "relhassubclass": False, "relrowsecurity": False, "relispopulated": True}
    return {**row, "relforcerowsecurity": False, "relispartition": False, "relreplident": "n", "reltoastrelid": 0}


def _info_rows(database: str, relations: Sequence[Relation]) -> dict[str, list[dict[str, Any]]]:
    place = [{"table_catalog": database, "table_schema": r.schema, "table_name": r.name} for r in relations]
    columns = []
    for relation, where in zip(relations, place, strict=True):
        for number, column in enumerate(relation.all_columns(), 1):
            kind, digits = type_of(column.type).type, type_of(column.type).digits
            row = {**where, "column_name": column.name, "ordinal_position": number, "is_nullable": "YES"}
            row |= {"data_type": kind.name, "udt_catalog": database, "udt_schema": "pg_catalog"}
            precision, scale = digits or (None, None)
            row |= {"numeric_precision": precision, "numeric_scale": scale}
            row |= {"numeric_precision_radix": 10 if digits else None}
            columns.append({**row, "udt_name": _short(kind.oid), "is_identity": "NO", "is_updatable": "NO"})
    return {
        "columns": columns,
        "schemata": [{"catalog_name": database, "schema_name": name, "schema_owner": USER} for name in _SCHEMAS],
        "table_privileges": [{"grantee": USER, **where, "privilege_type": "SELECT"} for where in place],
        "tables": [{**where, "table_type": "VIEW", "is_insertable_into": "NO"} for where in place],
        "views": [{**where, "is_updatable": "NO"} for where in place],
    }
