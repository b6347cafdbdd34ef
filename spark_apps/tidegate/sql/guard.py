"""Which statements a client may run, and as what text they run.

DuckDB's own parser reads a statement into a tree, so what is judged is what would run, whatever quotes, comments or
letters it is written with. Every part of the tree must be one that is known here: kinds of expressions, tables and
functions are allow-lists, and a kind that a later DuckDB adds is refused. Tables are looked up here, among the
pipeline's relations and the catalogue, and written back with their schema: a name that is neither reaches no file, no
variable and no other catalogue. The tree is written back as text, and the text is judged once more before it runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from tidegate.sql import catalog, values
from tidegate.sql.functions import HARMLESS, IN_FROM
from tidegate.sql.relations import MARTS, TABLES

Tree = dict[str, Any]
SEARCH_PATH = (MARTS, TABLES)
_SYSTEM = {schema: inner for schema, (inner, _) in catalog.SYSTEM_TABLES.items()}
_INNER = {inner: names for inner, names in catalog.SYSTEM_TABLES.values()}
_QUERIES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE"}
_TABLES = {"BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN", "SHOW_REF", "SUBQUERY", "TABLE_FUNCTION"}
_EXPRESSIONS = {"BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION"}
_EXPRESSIONS |= {"LAMBDA", "OPERATOR", "PARAMETER", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "TYPE", "WINDOW"}
# Whatever of these is met elsewhere than where it is looked at is refused.
_TELLING = {"function_name", "table_name", "type_name", "show_type", "external_file", "query_node", "cte_map"}
_VALUE_COLUMNS = {
    "current_catalog",
    "current_database",
    "current_role",
    "current_schema",
    "current_user",
    "session_user",
}
_TYPES = {"name": "VARCHAR", "char": "VARCHAR", "bpchar": "VARCHAR", "citext": "VARCHAR", "xid": "BIGINT"}
_TYPES |= {"regproc": "VARCHAR", "regprocedure": "VARCHAR", "regrole": "VARCHAR", "regnamespace": "VARCHAR"}
_TYPES |= {"oid": "BIGINT", "jsonb": "JSON", "yes_or_no": "VARCHAR", "sql_identifier": "VARCHAR"}
_TYPES |= {"character_data": "VARCHAR", "cardinal_number": "INTEGER", "inet": "VARCHAR", "pg_node_tree": "VARCHAR"}
# PostgreSQL's names of functions that DuckDB has by another one.
_SPELLED = {"json_build_object": "json_object", "jsonb_build_object": "json_object", "json_agg": "json_group_array"}
_SPELLED |= {"jsonb_agg": "json_group_array", "btrim": "trim", "char_length": "length"}
_COLLATIONS = {"c", "default", "posix", "ucs_basic", "pg_catalog.default", "pg_catalog.c", "en_us.utf8"}
# What names something in an expression, and holds no expression.
_NAMES = {"qualified_name", "column_names", "literal"}
_DEEPEST = 400
_PLAIN = re.compile(r"\w+")


class Refused(Exception):
    """A statement that is not let through: PostgreSQL's code of the error, and why."""

    def __init__(self, code: str, why: str):
        super().__init__(why)
        self.code = code


@dataclass
class Judged:
    """A statement that may run: its text in DuckDB's SQL, and the relations that it reads."""

    text: str
    reads: set[tuple[str, str]]


@dataclass
class Guard:
    """Judges statements over the relations that ``oids`` knows, parsing them in ``connection``."""

    connection: duckdb.DuckDBPyConnection
    oids: catalog.Oids
    database: str
    settings: Mapping[str, str]
    search_path: Sequence[str] = SEARCH_PATH
    _reads: set[tuple[str, str]] = field(default_factory=set)

    def judge(self, statement: str, parameters: Callable[[str], str] | None = None) -> Judged:
        """What a statement becomes; ``parameters`` gives the expression for $1, $2, … Raises Refused.

        Cost: a millisecond, and more for long statements; nothing is read but the statement.
        """
        self._reads = set()
        tree = self._rewritten(self._parsed(statement), parameters)
        (text,) = self._one("SELECT json_deserialize_sql(?)", json.dumps(tree))
        reads = self._reads
        again = self._rewritten(self._parsed(text), None)
        if self._one("SELECT json_deserialize_sql(?)", json.dumps(again)) != (text,):
            raise Refused("0A000", "this statement cannot be written back as it was understood")
        return Judged(text, reads)

    def parameters(self, statement: str) -> int:
        """How many parameters a statement has. Raises Refused."""
        found = [0]

        def note(name: str) -> str:
            found.append(_number(name))
            return "NULL"

        self._rewritten(self._parsed(statement), note)
        return max(found)

    def _one(self, question: str, argument: str) -> tuple[Any, ...]:
        try:
            found: list[tuple[Any, ...]] = self.connection.execute(question, [argument]).fetchall()
        except duckdb.Error as error:
            raise Refused("0A000", f"this statement cannot be judged: {first_line(error)}") from None
        return found[0]

    def _parsed(self, statement: str) -> Tree:
        (answer,) = self._one("SELECT json_serialize_sql(?)", statement)
        tree: Tree = json.loads(answer)
        if tree["error"] and "Only SELECT" in tree["error_message"]:
            raise refused_kind(statement)
        if tree["error"]:
            raise Refused("42601", tree["error_message"])
        if len(tree["statements"]) != 1:
            raise Refused("42601", "cannot put several statements into one")
        return tree

    def _rewritten(self, tree: Tree, parameters: Callable[[str], str] | None) -> Tree:
        (statement,) = tree["statements"]
        if set(statement) - {"node", "named_param_map"}:
            raise Refused("0A000", "this kind of statement is not known here")
        statement["named_param_map"] = []
        node = _Rewriting(self, parameters).query(statement["node"], frozenset(), 0)
        if node["type"] == "SELECT_NODE":
            for column in node["select_list"]:
                _keep_name(column)
        return {"error": False, "statements": [{**statement, "node": node}]}

    def resolve(self, path: Sequence[str]) -> tuple[str, str]:
        """The schema and name in DuckDB of a table, noting that it is read. Raises Refused."""
        *schemas, name = path
        lowered = name.lower()
        if len(schemas) == 2 and schemas[0].lower() == self.database.lower():
            schemas = schemas[1:]
        if len(schemas) > 1:
            raise Refused("0A000", f"cross-database references are not implemented: {'.'.join(path)}")
        for schema in [schemas[0].lower()] if schemas else ["pg_catalog", *self.search_path]:
            inner = _SYSTEM.get(schema, schema)
            if lowered in _INNER.get(inner, ()):
                return inner, lowered
            if (schema, lowered) in self.oids.relations:
                self._reads.add((schema, lowered))
                return schema, lowered
        raise Refused("42P01", f'relation "{".".join(path)}" does not exist')

    def node(self, expression: str) -> Tree:
        """The tree of an expression that was written here."""
        tree: Tree = self._parsed(f"SELECT {expression}")
        held: Tree = tree["statements"][0]["node"]["select_list"][0]
        return held


class _Rewriting:
    """One walk over one tree."""

    def __init__(self, guard: Guard, parameters: Callable[[str], str] | None):
        self._guard = guard
        self._parameters = parameters

    def query(self, node: Tree, visible: frozenset[str], depth: int) -> Tree:
        """A SELECT, UNION, … ``visible``: names of common table expressions."""
        if node.get("type") not in _QUERIES:
            raise Refused("0A000", f"{_words(node.get('type'))} is not allowed here")
        if depth > _DEEPEST:
            raise Refused("54001", "the statement is nested too deeply")
        defined = node["cte_map"]["map"]
        for one in defined:
            if not _PLAIN.fullmatch(one["key"]):
                raise Refused("0A000", f"the name {one['key']!r} is not allowed for a WITH query")
        visible |= {one["key"].lower() for one in defined}
        inner = [self._defined(one["value"], visible, depth) for one in defined]
        tables = [{**one, "value": value} for one, value in zip(defined, inner, strict=True)]
        walked: dict[str, Callable[[Any], Any]] = {
            "cte_map": lambda _: {"map": tables},
            "from_table": lambda table: self._table(table, visible, depth + 1),
            "left": lambda side: self.query(side, visible, depth + 1),
            "right": lambda side: self.query(side, visible, depth + 1),
            "children": lambda sides: [self.query(side, visible, depth + 1) for side in sides],
        }
        special = {key for key in walked if node.get(key) is not None}
        return {key: walked[key](v) if key in special else self._any(v, visible, depth + 1) for key, v in node.items()}

    def _defined(self, value: Tree, visible: frozenset[str], depth: int) -> Tree:
        inner = self.query(value["query_node"], visible, depth + 1)
        rest = {key: self._any(v, visible, depth + 1) for key, v in value.items() if key != "query_node"}
        return {**rest, "query_node": inner}

    def _any(self, value: Any, visible: frozenset[str], depth: int) -> Any:
        """Whatever holds expressions."""
        if depth > _DEEPEST:
            raise Refused("54001", "the statement is nested too deeply")
        if isinstance(value, list):
            return [self._any(one, visible, depth + 1) for one in value]
        if not isinstance(value, dict):
            return value
        if "class" in value:
            return self._expression(value, visible, depth)
        if "node" in value:
            return {**value, "node": self.query(value["node"], visible, depth + 1)}
        if _TELLING & set(value):
            raise Refused("0A000", f"{_words(value.get('type'))} is not allowed")
        return {key: self._any(one, visible, depth + 1) for key, one in value.items()}

    def _table(self, table: Tree, visible: frozenset[str], depth: int) -> Tree:
        kind = table.get("type")
        if kind not in _TABLES:
            raise Refused("0A000", f"{_words(kind)} is not allowed in FROM")
        if depth > _DEEPEST:
            raise Refused("54001", "the statement is nested too deeply")
        if kind == "BASE_TABLE":
            return self._base_table(table, visible)
        if kind == "SHOW_REF":
            return self._described(table, visible, depth)
        if kind == "TABLE_FUNCTION":
            return self._table_function(table, visible, depth)
        if kind == "SUBQUERY":
            inner = self.query(table["subquery"]["node"], visible, depth + 1)
            return {**table, "subquery": {**table["subquery"], "node": inner}}
        sides = {side: self._table(table[side], visible, depth + 1) for side in ("left", "right") if side in table}
        return {**{k: v if k in sides else self._any(v, visible, depth + 1) for k, v in table.items()}, **sides}

    def _base_table(self, table: Tree, visible: frozenset[str]) -> Tree:
        path = table["qualified_name"]["path"]
        if table["at_clause"] is not None or not path or path[-1] != table["table_name"]:
            raise Refused("0A000", "a table cannot be asked for like this")
        if len(path) == 1 and path[0].lower() in visible:
            return table
        schema, name = self._guard.resolve(path)
        alias = table["alias"] or path[-1]
        named = {"schema_name": schema, "table_name": name, "catalog_name": "", "alias": alias}
        return {**table, **named, "qualified_name": {**table["qualified_name"], "path": [schema, name]}}

    def _described(self, table: Tree, visible: frozenset[str], depth: int) -> Tree:
        if table["query"] is None or table["table_name"]:
            raise Refused("0A000", "SHOW is for settings and TABLES, DESCRIBE for a table or a query")
        return {**table, "query": self.query(table["query"], visible, depth + 1)}

    def _table_function(self, table: Tree, visible: frozenset[str], depth: int) -> Tree:
        called = table["function"]
        if called.get("class") != "FUNCTION":
            raise Refused("0A000", "this is not allowed in FROM")
        *schema, name = called["qualified_name"]["path"]
        if name != called["function_name"] or schema not in ([], ["pg_catalog"], ["pg"]):
            raise Refused("42501", f"function {'.'.join([*schema, name])} may not be called")
        arguments = [self._any(one, visible, depth + 1) for one in called["arguments"]]
        if name.lower() in catalog.TABLE_FUNCTIONS:
            return {**table, "function": {**_called(called, ["pg", name]), "arguments": arguments}}
        if name.lower() not in IN_FROM:
            raise Refused("42501", f"function {name} may not be called in FROM")
        return {**table, "function": {**_called(called, [name]), "arguments": arguments}}

    def _expression(self, node: Tree, visible: frozenset[str], depth: int) -> Tree:
        kind = node["class"]
        if kind not in _EXPRESSIONS:
            raise Refused("0A000", f"{_words(kind)} is not allowed")
        replaced = self._replaced(node, visible, depth)
        if replaced is not None:
            return {**replaced, "alias": node.get("alias") or replaced.get("alias", "")}
        if kind in ("FUNCTION", "WINDOW"):
            node = self._function(node)
        elif kind == "COLUMN_REF":
            return _column(node)
        elif kind == "COLLATE" and node["collation"].lower() in _COLLATIONS:
            return {**self._any(node["child"], visible, depth + 1), "alias": node.get("alias", "")}
        elif kind == "COLLATE" and node["collation"].lower() != "nocase":
            raise Refused("42704", f"collation {node['collation']!r} does not exist")
        elif kind == "TYPE":
            node = _type(node)
        kept = {key: v if key in _NAMES else self._any(v, visible, depth + 1) for key, v in node.items()}
        if kind == "CAST" and kept["type_expr"].get("type_name", "").lower() == "list":
            kept["child"] = self._list(kept["child"])
        elif kind == "FUNCTION" and kept["function_name"] == "unnest":
            kept["arguments"] = [{**one, "expression": self._list(one["expression"])} for one in kept["arguments"]]
        return kept

    def _replaced(self, node: Tree, visible: frozenset[str], depth: int) -> Tree | None:
        """What stands for a parameter, a setting or the number of a relation; None if the node is none of these."""
        kind = node["class"]
        if kind == "PARAMETER":
            if self._parameters is None:
                raise Refused("42P02", f"there is no parameter ${node['identifier']}")
            return self._guard.node(self._parameters(node["identifier"]))
        name = (node["function_name"] if kind == "FUNCTION" else ".".join(node.get("column_names", ()))).lower()
        if kind == "FUNCTION" and name == "current_setting":
            return self._guard.node(literal(self._setting(node)))
        if name == "current_schema" and not node.get("arguments"):
            found = next((one for one in self._guard.search_path if one in SEARCH_PATH), None)
            return {**self._guard.node("NULL" if found is None else literal(found)), "alias": name}
        if kind == "COLUMN_REF" and name in _VALUE_COLUMNS:
            return {**self._guard.node(f"pg.{name}()"), "alias": name}
        if kind == "CAST" and node["type_expr"].get("type_name", "").lower() in ("regclass", "regtype"):
            return self._registered(node, visible, depth + 1)
        return None

    def _registered(self, node: Tree, visible: frozenset[str], depth: int) -> Tree:
        """A cast to regclass or regtype: the number of what a text names, the name of what a number means."""
        kind = node["type_expr"]["type_name"].lower()
        child = self._constant(node["child"])
        if child["class"] != "CONSTANT":
            named = self._guard.node(f"pg.{kind}_name(0)")
            return {
                **named,
                "arguments": [{**named["arguments"][0], "expression": self._any(node["child"], visible, depth)}],
            }
        if child["literal"]["kind"] == "NULL_LITERAL":
            return child
        text = child["literal"]["text"]
        if text.isdigit():
            return self._guard.node(f"CAST({literal(text)} AS BIGINT)")
        path = ("pg_catalog", *self._guard.search_path)
        found = self._guard.oids.relation(text, path) if kind == "regclass" else self._guard.oids.types.get(text)
        if found is None:
            raise Refused("42P01", f'{"relation" if kind == "regclass" else "type"} "{text}" does not exist')
        return self._guard.node(f"CAST({found} AS BIGINT)")

    def _list(self, node: Tree) -> Tree:
        """A list that is written as PostgreSQL does, '{a,b}', as DuckDB's; anything else as it is."""
        text = node.get("literal", {}).get("text")
        if not isinstance(text, str) or not text.startswith("{"):
            return node
        try:
            items = ["NULL" if item is None else literal(item) for item in values.list_of(text)]
        except values.BadValue as bad:
            raise Refused("22P02", str(bad)) from None
        return self._guard.node(f"[{', '.join(items)}]")

    def _setting(self, node: Tree) -> str:
        """The value of the setting that ``current_setting`` is asked for; empty if there is none."""
        asked = self._constant(node["arguments"][0]["expression"]) if node["arguments"] else {}
        if "literal" not in asked:
            raise Refused("0A000", "current_setting takes the name of a setting")
        return self._guard.settings.get(str(asked["literal"].get("text", "")).lower(), "")

    def _constant(self, node: Tree) -> Tree:
        """What a constant or a parameter is, whatever it is cast to; any other node as it is."""
        while node["class"] == "CAST":
            node = node["child"]
        if node["class"] == "PARAMETER" and self._parameters is not None:
            return self._constant(self._guard.node(self._parameters(node["identifier"])))
        return node

    def _function(self, node: Tree) -> Tree:
        *schema, name = node["qualified_name"]["path"]
        if name != node["function_name"] or len(schema) > 1:
            raise Refused("42501", f"function {'.'.join([*schema, name])} may not be called")
        lowered = name.lower()
        if schema in ([], ["pg_catalog"], ["information_schema"]) and lowered in catalog.FUNCTIONS:
            return _called(node, ["pg", lowered])
        lowered = _SPELLED.get(lowered, lowered)
        if schema in ([], ["pg_catalog"]) and lowered in HARMLESS:
            if lowered == "~" and len(node["arguments"]) > 1:  # DuckDB's own matches whole texts
                return {**_called(node, ["regexp_matches"]), "is_operator": False}
            return _called(node, [lowered])
        if schema == ["pg"] and lowered in catalog.FUNCTIONS:
            return node
        raise Refused("42501", f"function {'.'.join([*schema, name])} may not be called")


def refused_kind(statement: str) -> Refused:
    """What is said to a statement that does not read."""
    word = re.sub(r"/\*.*?\*/|--[^\n]*", " ", statement, flags=re.DOTALL).split()[:1]
    kind = word[0].upper().rstrip(";(") if word else "an empty statement"
    return Refused("42501", f"{kind} is not allowed: this server only answers SELECT, SHOW, DESCRIBE and EXPLAIN")


def literal(text: str) -> str:
    """A text as SQL."""
    return "'" + text.replace("'", "''") + "'"


def first_line(error: Exception) -> str:
    """What went wrong, without DuckDB's drawing of where."""
    return str(error).split("\n\n", maxsplit=1)[0].split("\nLINE ", maxsplit=1)[0].strip() or type(error).__name__


def _called(node: Tree, path: list[str]) -> Tree:
    named = {"function_name": path[-1], "schema": path[0] if len(path) > 1 else "", "catalog": ""}
    return {**node, **named, "qualified_name": {**node["qualified_name"], "path": path}}


def _column(node: Tree) -> Tree:
    """A column without the schema of its table: the table is called by its bare name or its alias."""
    names = node["column_names"]
    while len(names) > 2 and names[0].lower() in {*_SYSTEM, *_INNER, *SEARCH_PATH}:
        names = names[1:]
    return {**node, "column_names": names}


def _type(node: Tree) -> Tree:
    *schema, name = node["qualified_name"]["path"]
    if schema not in ([], ["pg_catalog"], ["information_schema"]) or not re.fullmatch(r"\w[\w ]*", name):
        raise Refused("42704", f"type {'.'.join([*schema, name])} does not exist")
    known = _TYPES.get(name.lower(), name)
    named = {"type_name": known, "schema": "", "catalog": ""}
    return {**node, **named, "qualified_name": {**node["qualified_name"], "path": [known]}}


def _keep_name(column: Tree) -> None:
    """Give a column that has no name the one that PostgreSQL gives it."""
    if column.get("alias"):
        return
    if column["class"] == "FUNCTION" and not column.get("is_operator"):
        name = column["function_name"].lower()
        column["alias"] = {"count_star": "count"}.get(name, name)
    elif column["class"] == "CAST" and column["child"]["class"] == "COLUMN_REF":
        column["alias"] = column["child"]["column_names"][-1]
    elif column["class"] not in ("COLUMN_REF", "STAR"):
        column["alias"] = "?column?"


def _number(name: str) -> int:
    if not name.isdigit() or not 0 < int(name) < 1 << 16:
        raise Refused("42P02", f"there is no parameter ${name}")
    return int(name)


def _words(kind: Any) -> str:
    return str(kind).replace("_", " ")
