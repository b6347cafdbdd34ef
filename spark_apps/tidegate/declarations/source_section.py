"""The ``source:`` part of a stream: files, a topic of Kafka, or any source of Spark's Structured Streaming."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tidegate.declarations.errors import Mistake
from tidegate.declarations.models import KafkaSource, Part, PathStep, SparkSource
from tidegate.declarations.positions import Misspelt, Report, read_source
from tidegate.declarations.source_paths import read_path
from tidegate.declarations.units import UnreadableError, shown
from tidegate.declarations.yaml_sections import Section, read_scalar

# Key → what it says, for the reference (infra/docs/reference.py).
SOURCE_KEYS = {
    "files": "As `path`.",
    "kafka": "A topic of Apache Kafka.",
    "spark": "Any source of Spark's Structured Streaming.",
}
KAFKA_KEYS = {
    "servers": "Brokers to begin with: `host:port`, several with commas between. May hold `${NAME}`, which is looked "
    "up where the stream is read.",
    "topic": "The topic.",
    "options": "Name → value, as Spark's Kafka source takes them: `kafka.security.protocol: SASL_SSL`, "
    "`maxOffsetsPerTrigger: 500000`, `startingOffsets: latest` (of the very first start). A secret is written "
    "`${NAME}`, and looked up in the environment where the stream is read.",
    "schema": "With `format: avro`: a file with the Avro schema of the values (`.avsc`), relative to the pipeline's "
    "folder.",
    "registry": "With `format: avro`: the URL of a schema registry, whose schemas the values name by Confluent's "
    "framing. May hold `${NAME}`, as in `https://${USER}:${PASSWORD}@registry:8081`.",
}
SPARK_KEYS = {
    "format": "As `spark.readStream.format` takes it: `text`, `delta`, `rate`, or the name of a data source.",
    "options": "Name → value, as that source takes them. A secret is written `${NAME}`, and looked up in the "
    "environment where the stream is read.",
    "schema": "Names and types of its columns in DDL, `a STRING, b INT`, where the source wants to be told.",
}
PARTS = ("$key", "$headers.NAME", "$topic", "$partition", "$offset", "$timestamp")
"""What ``from`` calls the parts of a Kafka record beside its value."""
_SOURCES = tuple(SOURCE_KEYS)
_SERVER = re.compile(r"(?:[A-Za-z_]+://)?(?:\[[0-9A-Fa-f:]+\]|[^\s,:/\[\]]+):[0-9]{1,5}", re.ASCII)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_SECRET = re.compile(
    r"(?:password|passwd|secret|secret[._]?key|jaas\.config|token|credentials?|account\.key|keystore\.key|api[._]?key)$",
    re.IGNORECASE,
)
_PASSWORD = re.compile(r"""(?:password|secret)\w*\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"']*))""", re.IGNORECASE)
_BY_LANDING = "set by Tidegate"
_NOT_TAKEN = "not taken by Spark's Kafka source"
_REFUSED_OF_KAFKA = {
    "subscribe": "is what 'topic' says",
    "subscribepattern": "would read several topics: a stream is one",
    "assign": "would read some partitions: a stream is a topic",
    "kafka.bootstrap.servers": "is what 'servers' says",
    "includeheaders": f"is {_BY_LANDING}",
    "checkpointlocation": "is what 'checkpoint' of the stream says",
    "path": f"is {_BY_LANDING}",
    "endingoffsets": "is of queries that end",
    "endingoffsetsbytimestamp": "is of queries that end",
    "endingtimestamp": "is of queries that end",
    "kafka.auto.offset.reset": f"is {_NOT_TAKEN}: startingOffsets says where the first start begins",
    "kafka.key.deserializer": f"is {_NOT_TAKEN}",
    "kafka.value.deserializer": f"is {_NOT_TAKEN}",
    "kafka.enable.auto.commit": f"is {_NOT_TAKEN}",
    "kafka.interceptor.classes": f"is {_NOT_TAKEN}",
}
_REFUSED_OF_SPARK = {"checkpointlocation": "is what 'checkpoint' of the stream says"}


@dataclass(frozen=True)
class SourceRead:
    """Where a stream's records come from, as far as it could be read.

    ``kind``: the key that says so, None after a mistake in which one is meant. ``path``: of files. ``source``: else.
    ``says_how``: the keys that say by which schema values are written.
    """

    kind: str | None
    path: str | None = None
    source: KafkaSource | SparkSource | None = None
    says_how: tuple[str, ...] = ()


def read_source_section(stream: Section, name: str, folder: Path, read_files: Callable[[str], str]) -> SourceRead:
    """What ``source`` or ``path`` of a stream say; what is wrong goes to the section's report.

    Args:
        stream: the stream's section.
        name: the stream's name.
        folder: the pipeline's folder, absolute.
        read_files: reads a pattern of files.
    """
    node = stream.node("source", required=False)
    if node is None:
        return SourceRead("files", path=stream.read("path", read_files))
    if "path" in stream:
        message = f"'source' and 'path' in stream '{name}' both say where the records come from"
        stream.report.add(node.start_mark.index, message, "one of them")
    title = f"source of stream '{name}'"
    source = Section(stream.report, node, title, SOURCE_KEYS)
    if not isinstance(node, yaml.MappingNode):
        return SourceRead(None)
    keys = [key for key, _, _ in source.items()]
    if len(keys) != 1:
        if keys or not node.value:  # an unknown key is a mistake already
            what = " and ".join(f"'{key}'" for key in keys)
            message = f"{title} names {what}" if keys else f"{title} names nothing"
            stream.report.add(source.value_offset(keys[1]) if keys else source.offset, message, "one of " + _any_of())
        return SourceRead(None)
    kind = keys[0]
    if kind == "files":
        return SourceRead(kind, path=source.read("files", read_files))
    inside = source.node(kind)
    assert inside is not None
    known = KAFKA_KEYS if kind == "kafka" else SPARK_KEYS
    section = Section(stream.report, inside, f"{kind} of stream '{name}'", known)
    if not isinstance(inside, yaml.MappingNode):
        return SourceRead(kind)
    if kind == "kafka":
        says_how = tuple(key for key in ("schema", "registry") if key in section)
        return SourceRead(kind, source=_kafka(section, folder), says_how=says_how)
    return SourceRead(kind, source=_spark(section))


def _any_of() -> str:
    return ", ".join(_SOURCES)


def _kafka(section: Section, folder: Path) -> KafkaSource | None:
    servers = section.read("servers", _servers, expand=False)
    topic = section.read("topic", _topic)
    registry = section.read("registry", _registry, required=False, expand=False)
    schema = section.read("schema", lambda text: Path(folder, text.strip()), required=False)
    text = None if schema is None else _avro_schema(section, schema)
    options = _options(section, _REFUSED_OF_KAFKA)
    if "schema" in section and "registry" in section:
        message = f"'schema' and 'registry' in {section.title} both say how the values are written"
        section.report.add(section.value_offset("registry"), message, "one of them")
    if servers is None or topic is None or options is None:
        return None
    return KafkaSource(
        servers=servers, topic=topic, options=options, schema_file=schema, schema_text=text or "", registry=registry
    )


def _spark(section: Section) -> SparkSource | None:
    written = section.read("format", _spark_format)
    columns = section.read("schema", _ddl, required=False)
    options = _options(section, _REFUSED_OF_SPARK)
    if written is None or options is None:
        return None
    return SparkSource(format=written, options=options, columns=columns)


def check_values(section: Section, source: SourceRead, written: str | None) -> None:
    """Whether a Kafka source says how its Avro values are written, and says it of no others.

    ``section``: the stream's; ``written``: its format.
    """
    if source.kind != "kafka" or written is None:
        return
    if written == "avro" and not source.says_how:
        expected = "schema, a file with the Avro schema, or registry, the URL of a schema registry"
        message = "'format' is avro: 'source' does not say by which schema the values are written"
        section.report.add(section.value_offset("source"), message, expected)
    elif written != "avro" and source.says_how:
        message = f"'{source.says_how[0]}' in 'source' is of Avro, 'format' is {written}"
        section.report.add(section.value_offset("format"), message, "format: avro")


def _servers(text: str) -> str:
    servers = [server.strip() for server in text.split(",")]
    for server in servers:
        if "${" not in text and not _SERVER.fullmatch(server):
            raise UnreadableError(f"{shown(server)} is no broker", "host:port, several with commas between")
    return ",".join(servers) if "${" not in text else text.strip()


def _topic(text: str) -> str:
    topic = text.strip()
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        expected = "letters, digits, '.', '_' and '-', at most 249 of them; a stream is one topic"
        raise UnreadableError(f"{shown(text)} is no name of a topic", expected)
    return topic


def _registry(text: str) -> str:
    url = text.strip()
    if url.startswith("${"):
        return url
    expected = "the URL of a schema registry, such as http://registry:8081"
    if not re.match(r"https?://[^/\s]", url):
        raise UnreadableError(f"{shown(_without_login(url))} is no URL of a registry", expected)
    login, at, _ = re.sub(r"^https?://", "", url).partition("/")[0].rpartition("@")
    if at and "${" not in login:
        raise UnreadableError("a login does not belong in pipeline.yml", "https://${USER}:${PASSWORD}@registry:8081")
    if "${" not in url:
        try:
            _ = urlsplit(url).port
        except ValueError:
            raise UnreadableError(f"{shown(_without_login(url))} is no URL of a registry", expected) from None
    return url.rstrip("/")


def _without_login(url: str) -> str:
    return re.sub(r"//[^/]*@", "//", url)


def _spark_format(text: str) -> str:
    name = text.strip()
    if name.lower() == "kafka":
        raise UnreadableError("'kafka' has a key of its own", "source: {kafka: {servers: …, topic: …}}")
    if re.search(r"\s", name):
        raise UnreadableError(f"{shown(text)} is no format of Spark", "a name, such as delta, text or rate")
    return name


def _ddl(text: str) -> str:
    ddl = " ".join(text.split())
    # Spark reads it; what is certainly none is said at once. A list of names alone is what people write by mistake.
    if not re.match(r"(?:`[^`]+`|[^\s,:`]+)(?: ?: ?| )[A-Za-z]", ddl):
        raise UnreadableError(f"{shown(text)} is no schema", "names and types, such as 'a STRING, b INT'")
    return ddl


def _options(section: Section, refused: Mapping[str, str]) -> dict[str, str] | None:
    """The options as they are written, variables and all; None after a mistake."""
    node = section.node("options", required=False)
    if node is None:
        return {}
    before = len(section.report.mistakes)
    options = Section(section.report, node, f"options in {section.title}")
    values: dict[str, str] = {}
    lower: dict[str, str] = {}
    for name, offset, value in options.items():
        key = name.strip().lower()
        if not name.strip() or re.search(r"\s", name):
            section.report.add(offset, f"{shown(name)} is no name of an option", "a name without blanks")
        elif key in lower:
            section.report.add(offset, f"options '{lower[key]}' and '{name}' differ in letter case only", "one of them")
        elif key in refused:
            section.report.add(offset, f"option '{name}' {refused[key]}")
        else:
            lower[key] = name
            text = _option(section.report, name, value)
            if text is not None:
                values[name] = text
    return values if len(section.report.mistakes) == before else None


def _option(report: Report, name: str, node: yaml.Node) -> str | None:
    def convert(text: str) -> str:
        if _is_secret(name, text):
            expected = "${NAME}, an environment variable that is looked up where the stream is read"
            raise UnreadableError("a secret does not belong in pipeline.yml", expected)
        return text

    return read_scalar(report, node, f"option '{name}'", convert, expand=False)


def _is_secret(name: str, text: str) -> bool:
    """Whether an option holds a secret as such. A login of JAAS may name a user, but no password.

    >>> _is_secret("kafka.ssl.key.password", "abc"), _is_secret("kafka.ssl.key.password", "${PASSWORD}")
    (True, False)
    """
    if any("${" not in "".join(match.groups("")) for match in _PASSWORD.finditer(text)):
        return True
    return "${" not in text and bool(_SECRET.search(name.strip()))


def _avro_schema(section: Section, file: Path) -> str | None:
    """The text of a file with the schema of a record; None after a mistake."""
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    def mistake(message: str, expected: str = "an Avro schema of a record, as JSON") -> None:
        section.report.add(section.value_offset("schema"), f"'schema' in {section.title}: {message}", expected)

    source = read_source(file)
    if isinstance(source, Mistake):
        mistake(f"{shown(file.name)}: {source.message}", "a readable file with an Avro schema")
        return None
    try:
        schema: Any = json.loads(source.text)
    except (ValueError, RecursionError) as error:
        mistake(f"{shown(file.name)} is no JSON: {error}")
        return None
    try:
        parsed = parse_schema(schema)
    except UnknownType as error:
        mistake(f"{shown(file.name)} names the unknown type {shown(str(error.name))}")
        return None
    except (SchemaParseException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        mistake(f"{shown(file.name)} is no Avro schema: {str(error) or type(error).__name__}")
        return None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        mistake(f"{shown(file.name)} is no schema of a record")
        return None
    return source.text


def read_part(text: str) -> tuple[Part, tuple[PathStep, ...]]:
    """Where in a Kafka record a column's value is: which part of it, and the path there.

    >>> read_part("$headers.trace.id"), read_part("$offset"), read_part("`$key`.id")
    (('headers', ('trace.id',)), ('offset', ()), ('value', ('$key', 'id')))
    """
    if not text.startswith("$"):
        return "value", read_path(text)
    part, dot, header = text[1:].partition(".")
    if part == "headers" and header:
        return "headers", (header,)
    if not dot and part in ("key", "topic", "partition", "offset", "timestamp"):
        return part, ()  # type: ignore[return-value]
    expected = f"one of {', '.join(PARTS)}; or a field of that name in backticks"
    raise UnreadableError(f"{shown(text)} is no part of a Kafka record", expected, Misspelt(text, PARTS))


def is_part(text: str) -> bool:
    """Whether ``from`` names a part that only Kafka's records have.

    >>> is_part("$key"), is_part("$headers.x"), is_part("$oid")
    (True, True, False)
    """
    return text in PARTS or text.startswith("$headers.")
