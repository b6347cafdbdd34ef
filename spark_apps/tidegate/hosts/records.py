"""Raw records to tuples: every declared column typed, every refused record with its reason.

A parsed row has the stream's tuple columns (``event_id``, ``event_time``, ``arrival_time``, the declared columns) and

    _reason   string, why the record is refused, NULL if it is good
    _column   string, the column that is to blame, where there is one
    _record   string, the record as read (a line, or JSON of the columns)
    _read_us  bigint, the instant (microseconds) that says which interval the record belongs to
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, DataFrameReader
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamReader

from tidegate.declarations.models import Column, Stream
from tidegate.declarations.tables import STREAM_KEYS
from tidegate.hosts.sources import SourceFile, as_glob

_CORRUPT = "_corrupt"
_META = ("_file", "_modified_us")


def read_files(
    reader: DataFrameReader | DataStreamReader,
    stream: Stream,
    files: Sequence[SourceFile],
    header: tuple[str, ...] | pa.Schema,
) -> DataFrame:
    """A DataFrame of the files' raw records, streaming if the reader is; all files share one header."""
    if stream.format == "jsonl":
        frame = reader.format("text").load(as_glob(files))
    elif stream.format == "csv":
        schema = T.StructType([T.StructField(name, T.StringType()) for name in (*header, _CORRUPT)])
        frame = (
            reader.format("csv")
            .schema(schema)
            .options(header=True, enforceSchema=True, columnNameOfCorruptRecord=_CORRUPT, mode="PERMISSIVE")
            .options(quote='"', escape='"')  # a quote within quotes is doubled, as RFC 4180 has it
            .load(as_glob(files))
        )
    else:
        assert isinstance(header, pa.Schema)
        frame = reader.format("parquet").schema(_spark_schema(header)).load(as_glob(files))
    # Spark gives the path as a URI; what a user reads, and what is looked up, is the plain path.
    uri = F.regexp_replace(F.col("_metadata.file_path"), r"\+", "%2B")
    path = F.regexp_replace(F.url_decode(uri), "^file:/*", "/")
    modified_us = F.unix_micros(F.col("_metadata.file_modification_time"))
    return frame.select("*", path.alias("_file"), modified_us.alias("_modified_us"))


def _spark_schema(schema: pa.Schema) -> T.StructType:
    return T.StructType(from_arrow_schema(schema, prefer_timestamp_ntz=True).fields)


def parse(stream: Stream, raw: DataFrame) -> DataFrame:
    """Raw records of one header as parsed rows, before the checks that need other records (see `judge_arrival`)."""
    if stream.format == "jsonl":
        return _parse_json(stream, raw)
    declared = {c.name for c in stream.columns}
    present = [c for c in raw.columns if c not in (_CORRUPT, *_META)]
    unknown = sorted(set(present) - declared)
    types = {f.name: f.dataType for f in raw.schema.fields}
    values = {c.name: F.col(f"`{c.name}`") if c.name in present else None for c in stream.columns}
    record = F.to_json(F.struct(*(F.col(f"`{c}`") for c in present))) if present else F.lit("{}")
    broken = F.lit(False)
    if _CORRUPT in raw.columns:
        broken = F.col(_CORRUPT).isNotNull()
        record = F.coalesce(F.col(_CORRUPT), record)
    unknown_name = F.lit(unknown[0] if unknown else None).cast("string")
    return _parsed(stream, raw, values, {c: types[c] for c in present}, broken, unknown_name, record)


def _parse_json(stream: Stream, raw: DataFrame) -> DataFrame:
    line = F.regexp_replace(F.col("value"), "^\ufeff", "")
    fields = F.from_json(line, T.MapType(T.StringType(), T.StringType()), {"mode": "PERMISSIVE"})
    # A blank line is no record; everything else is one, and is accounted for.
    raw = raw.select(line.alias("_line"), fields.alias("_fields"), *_META).where(F.trim("_line") != "")
    declared = F.array(*(F.lit(c.name) for c in stream.columns))
    unknown_name = F.get(F.array_sort(F.array_except(F.map_keys("_fields"), declared)), F.lit(0))
    values: dict[str, SparkColumn | None] = {c.name: F.try_element_at("_fields", F.lit(c.name)) for c in stream.columns}
    types = {c.name: T.StringType() for c in stream.columns}
    broken = F.col("_fields").isNull() | (F.size("_fields") == 0)
    return _parsed(stream, raw, values, types, broken, unknown_name, F.col("_line"))


def _parsed(
    stream: Stream,
    raw: DataFrame,
    values: Mapping[str, SparkColumn | None],
    types: Mapping[str, T.DataType],
    broken: SparkColumn,
    unknown_name: SparkColumn,
    record: SparkColumn,
) -> DataFrame:
    raw_columns: dict[str, SparkColumn] = {}
    for c in stream.columns:
        value = values[c.name]
        raw_columns[c.name] = F.lit(None).cast("string") if value is None else value
    typed = [
        _typed(c, raw_columns[c.name], types.get(c.name, T.StringType())).alias(f"v_{c.name}") for c in stream.columns
    ]
    given = [raw_columns[c.name].isNotNull().alias(f"g_{c.name}") for c in stream.columns]
    frame = raw.select(
        *typed, *given, broken.alias("_broken"), unknown_name.alias("_unknown"), record.alias("_record"), *_META
    )
    required = {stream.id, stream.event_time, stream.arrival_time}
    problems = [_problem(F.col("_broken"), "broken_record", None)]
    problems.append(F.when(F.col("_unknown").isNotNull(), _named("unknown_column", F.col("_unknown"))))
    for column in stream.columns:
        value, was_given = F.col(f"`v_{column.name}`"), F.col(f"`g_{column.name}`")
        if not column.nullable or column.name in required:
            problems.append(_problem(~was_given, "missing_value", column.name))
        problems.append(_problem(was_given & value.isNull(), "wrong_type", column.name))
        if column.type == "double":
            problems.append(_problem(F.isnan(value) | (F.abs(value) == float("inf")), "non_finite", column.name))
    arrival = F.col(f"`v_{stream.arrival_time}`") if stream.arrival_time else F.timestamp_micros("_modified_us")
    event = F.col(f"`v_{stream.event_time}`")
    early_us = F.unix_micros(event) - F.unix_micros(arrival)
    problems.append(_problem(early_us > stream.max_early_s * 1_000_000, "too_early", stream.event_time))
    problems.append(_problem(early_us < -stream.max_late_s * 1_000_000, "too_late", stream.event_time))
    judged = frame.withColumn("_problem", F.coalesce(*problems))
    return judged.select(
        F.col(f"`v_{stream.id}`").cast("string").alias("event_id"),
        event.alias("event_time"),
        arrival.alias("arrival_time"),
        *(F.col(f"`v_{c.name}`").alias(c.name) for c in stream.columns if c.name not in STREAM_KEYS),
        F.col("_problem.reason").alias("_reason"),
        F.col("_problem.column").alias("_column"),
        "_record",
        "_file",
        "_modified_us",
    )


def _problem(condition: SparkColumn, reason: str, column: str | None) -> SparkColumn:
    return F.when(condition, _named(reason, F.lit(column).cast("string")))


def _named(reason: str, column: SparkColumn) -> SparkColumn:
    return F.struct(F.lit(reason).alias("reason"), column.alias("column"))


def _typed(column: Column, value: SparkColumn, given: T.DataType) -> SparkColumn:
    """The value in the declared type, NULL where it cannot be one."""
    target = {"string": "string", "integer": "bigint"}.get(column.type, column.type)
    if isinstance(given, T.ArrayType | T.MapType | T.StructType | T.BinaryType):
        return F.lit(None).cast(target)
    if column.type == "integer" and not isinstance(given, T.IntegralType):
        # '12.0' is a whole number, '12.5' is none and must not be cut to 12.
        exact = value.try_cast("decimal(38,9)")
        return F.when(exact == F.floor(exact), exact.try_cast("bigint"))
    temporal = isinstance(given, T.DateType | T.TimestampType | T.TimestampNTZType)
    if column.type in ("timestamp", "date") and not (temporal or isinstance(given, T.StringType)):
        return F.lit(None).cast(target)
    if column.type in ("double", "boolean") and temporal:
        return F.lit(None).cast(target)
    if isinstance(given, T.StringType) and column.type != "string":
        value = F.trim(value)
    return value.try_cast(target)
