"""pipeline.yml as a table: one change to a good file, and the mistakes that it makes.

``pipeline_file/mistakes.txt`` holds cases parted by ``====``: the text that is replaced, ``--->``, its replacement,
``----``, the mistakes.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tidegate.declarations import load_pipeline
from tidegate.declarations.errors import DeclarationErrors, UserError
from tidegate.declarations.models import KafkaSource, Pipeline, SparkSource
from tidegate.declarations.variables import expanded

FIXTURES = Path(__file__).parent / "pipeline_file"
GOOD = (FIXTURES / "pipeline.yml").read_text(encoding="utf-8")
SCHEMA = (FIXTURES / "flights" / "order.avsc").read_text(encoding="utf-8")
OTHER_FILES = {
    "order.avsc": SCHEMA,
    "broken.avsc": "{",
    "text.avsc": '"string"',
    "unknown.avsc": '{"type": "record", "name": "Order", "fields": [{"name": "at", "type": "instant"}]}',
    "nameless.avsc": '{"type": "record", "fields": []}',
}
QUERY = "SELECT COUNT(*) FROM departures [1 HOUR]"


def cases() -> list[tuple[str, str, str]]:
    """What is replaced, by what, and the mistakes expected."""
    found = []
    for block in (FIXTURES / "mistakes.txt").read_text(encoding="utf-8").split("\n====\n"):
        change, expected = block.strip("\n").split("\n----\n")
        before, after = change.split("\n--->\n")
        found.append((before, after, expected))
    return found


def load(folder: Path, text: str) -> Pipeline | str:
    """The pipeline that the text declares, or its mistakes, one a line."""
    (folder / "queries").mkdir(parents=True)
    (folder / "pipeline.yml").write_text(text, encoding="utf-8", newline="")
    (folder / "queries" / "count.sql").write_text(QUERY, encoding="utf-8")
    for name, content in OTHER_FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    try:
        return load_pipeline(folder)
    except DeclarationErrors as error:
        return "\n".join(str(mistake).replace(f"{folder}/", "") for mistake in error.mistakes)


@pytest.fixture(autouse=True)
def _no_landing_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_LANDING", raising=False)
    monkeypatch.delenv("TIDEGATE_UNSET_VARIABLE", raising=False)
    monkeypatch.delenv("KAFKA_SERVERS", raising=False)
    monkeypatch.delenv("KAFKA_PASSWORD", raising=False)


def test_the_unchanged_file_is_good(tmp_path: Path) -> None:
    assert isinstance(load(tmp_path / "flights", GOOD), Pipeline)


@pytest.mark.parametrize(("before", "after", "expected"), cases())
def test_a_change_for_the_worse_is_told(tmp_path: Path, before: str, after: str, expected: str) -> None:
    assert before in GOOD
    assert load(tmp_path / "flights", GOOD.replace(before, after, 1)) == expected


def test_the_fixture_holds_the_cases_that_it_should() -> None:
    assert len(cases()) >= 140


def test_a_column_that_is_called_none_is_the_id_that_none_names(tmp_path: Path) -> None:
    columns = "      none_of_it: boolean\n    id: [receipt, line]"
    pipeline = load(tmp_path / "flights", GOOD.replace(columns, "      none: string\n    id: none", 1))
    assert isinstance(pipeline, Pipeline) and pipeline.stream("sales").id == ("none",)
    without = load(tmp_path / "without" / "flights", GOOD.replace("id: [receipt, line]", "id: none", 1))
    assert isinstance(without, Pipeline) and without.stream("sales").id == ()


def test_what_the_new_keys_say_is_in_the_model(tmp_path: Path) -> None:
    pipeline = load(tmp_path / "flights", GOOD)
    assert isinstance(pipeline, Pipeline)
    sales = pipeline.stream("sales")
    dialect = sales.csv
    assert (dialect.delimiter, dialect.decimal, dialect.quote, dialect.nulls) == (";", ",", '"', ("", "NA"))
    assert (dialect.header, dialect.encoding, dialect.comment) == (True, "utf-8", "")
    steps = {column.name: column.steps for column in sales.columns}
    assert steps["receipt"] == ("Receipt no",) and steps["line"] == (3,) and steps["none_of_it"] == ("none_of_it",)
    sold = sales.column("sold")
    assert (sold.format, sold.zone) == ("%d.%m.%Y %H:%M:%S", "Europe/Berlin")
    assert sales.column("price").type == "decimal(10,2)" and sales.other_columns == "ignore"


def test_what_streams_that_come_through_spark_say_is_in_the_model(tmp_path: Path) -> None:
    pipeline = load(tmp_path / "flights", GOOD)
    assert isinstance(pipeline, Pipeline)
    assert [stream.name for stream in pipeline.landed_streams] == ["orders", "clicks"]
    assert pipeline.retention_s == {"landed": 30 * 86_400}
    orders, clicks = pipeline.landed_streams
    kafka = orders.source
    assert isinstance(kafka, KafkaSource)
    assert (kafka.topic, kafka.schema_text, kafka.registry) == ("shop.orders", SCHEMA, None)
    assert (orders.format, orders.path, orders.checkpoint) == ("avro", "", "s3a://checkpoints/orders")
    assert (orders.arrival_time, orders.arrival_stamp) == (None, "broker")
    assert [(column.part, column.path) for column in orders.columns] == [
        ("value", ()),
        ("value", ("payment", "amount")),
        ("key", ()),
        ("headers", ("trace.id",)),
        ("partition", ()),
        ("timestamp", ()),
    ]
    assert (clicks.arrival_time, clicks.arrival_stamp, clicks.id) == (None, "landed", ())
    assert clicks.source == SparkSource(
        format="text", options={"path": "/clicks", "maxFilesPerTrigger": "100"}, columns="value STRING"
    )


def test_variables_of_a_source_are_looked_up_by_whoever_reads_it_and_never_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_SERVERS", "kafka:9092")
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    pipeline = load(tmp_path / "flights", GOOD)
    assert isinstance(pipeline, Pipeline)
    assert "hunter2" not in pipeline.model_dump_json() and b"hunter2" not in pickle.dumps(pipeline)
    kafka = pipeline.stream("orders").source
    assert isinstance(kafka, KafkaSource) and kafka.servers == "${KAFKA_SERVERS}"
    assert 'password="hunter2"' in expanded(kafka.options)["kafka.sasl.jaas.config"]
    monkeypatch.delenv("KAFKA_PASSWORD")
    with pytest.raises(UserError, match="kafka.sasl.jaas.config: the environment variable KAFKA_PASSWORD is not set"):
        expanded(kafka.options)


def test_a_value_of_kafka_is_one_object_whether_its_format_is_called_json_or_jsonl(tmp_path: Path) -> None:
    values = GOOD.replace("        schema: order.avsc\n", "").replace("    format: avro", "    format: json")
    pipeline = load(tmp_path / "flights", values)
    assert isinstance(pipeline, Pipeline) and pipeline.stream("orders").format == "jsonl"


def test_a_source_of_spark_has_columns_unless_a_format_says_otherwise(tmp_path: Path) -> None:
    pipeline = load(
        tmp_path / "flights", GOOD.replace("value STRING}\n    format: jsonl", "'at TIMESTAMP, page STRING'}")
    )
    assert isinstance(pipeline, Pipeline) and pipeline.stream("clicks").format == ""


def test_a_checkpoint_is_a_folder_beside_the_declaration_or_a_uri(tmp_path: Path) -> None:
    pipeline = load(tmp_path / "flights", GOOD.replace("s3a://checkpoints/orders", "../checkpoints"))
    assert isinstance(pipeline, Pipeline)
    assert pipeline.stream("orders").checkpoint == str(tmp_path / "checkpoints")


def test_retention_of_what_no_stream_has_is_a_mistake(tmp_path: Path) -> None:
    text = GOOD[: GOOD.index("  orders:")] + "retention: {landed: 30 days}\n"
    assert load(tmp_path / "flights", text) == (
        "pipeline.yml:57:12: 'retention' in the pipeline is of tables that it does not have: no stream comes through "
        "Spark; expected a stream with source: {kafka: …} or {spark: …}"
    )
