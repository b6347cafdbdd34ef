"""What Spark and Kafka say when a source cannot be read, as a sentence for who can mend it."""

from __future__ import annotations

import re

from tidegate.declarations.models import KafkaSource, Stream
from tidegate.landing.kafka import wrong_password

_SECRET = re.compile(r"(?i)((?:password|secret|token|jaas\.config)\S*\s*[=:]\s*)\S+")

# Of a Spark Connect server, or a worker, that has died, which is the machine's fault: the stage is tried once more.
_SERVER_LOST = ("INVALID_HANDLE.", "RETRIES_EXCEEDED")
_WORKER_LOST = re.compile(r"Python worker (exited unexpectedly|failed to connect back)|ExecutorLostFailure")


def sentence_of(error: BaseException, stream: Stream) -> str | None:
    """A sentence if the source, or who lands, is to blame; None for any other error."""
    text = str(error)
    known = re.search(r"LeaseLostError: ([^\n]*)|UserError: ([^\n]*)", text)
    if known:
        return (known[1] or known[2]).strip()
    name = stream.name
    missing = re.search(r"Path does not exist: ([^\s]+?)\.? ", text)
    if missing:
        return f"{name}: there is no folder {missing[1]}: make it, or mend 'path' under options in pipeline.yml"
    if "S3AFileSystem not found" in text or 'No FileSystem for scheme "s3a"' in text:
        return (
            f"{name}: its checkpoint is in an object store, for which Spark needs Hadoop's connector (hadoop-aws): "
            "give it that, or name another place with 'checkpoint' in pipeline.yml"
        )
    if isinstance(stream.source, KafkaSource):
        servers, topic = stream.source.servers, stream.source.topic
        if "UnknownTopicOrPartition" in text or "does not host this topic" in text:
            return f"{name}: there is no topic '{topic}' at {servers}: create it, or mend 'topic' in pipeline.yml"
        if "SaslAuthenticationException" in text or "Authentication failed" in text:
            return f"{name}: {wrong_password(servers)}"
        if "TopicAuthorizationException" in text or "GroupAuthorizationException" in text:
            return f"{name}: this user may not read topic '{topic}' at {servers}"
        if "SslAuthenticationException" in text or "SSL handshake failed" in text:
            return f"{name}: no TLS connection to Kafka at {servers}: {_line(text, 'S[sS][lL]')}"
        if "KAFKA_DATA_LOSS" in text or "data loss" in text.lower() or "some data may have been lost" in text.lower():
            return (
                f"{name}: the topic has lost records before they landed: {_line(text, 'offset|partition|lost')}; to go "
                "on without them, write failOnDataLoss: 'false' under options, land once, and take it out again"
            )
        if "TimeoutException" in text or "No resolvable bootstrap urls" in text or "ConfigException" in text:
            return f"{name}: Kafka at {servers} does not answer: {_line(text, 'TimeoutException|ConfigException|urls')}"
        if "Failed to find data source: kafka" in text or "Failed to find the data source: kafka" in text:
            return (
                f"{name}: Spark has no Kafka connector: give it spark-sql-kafka-0-10 (spark.jars.packages, or its jars "
                "with spark.jars), see docs/how-to/kafka.md"
            )
    condition = re.search(r"\[([A-Z_.]+)\] ([^\n]*)", text)
    if _WORKER_LOST.search(text) or (condition and condition[1].startswith(_SERVER_LOST)):
        return None
    if condition and type(error).__module__.startswith("pyspark"):
        what, _, traceback = text[condition.start(2) :].partition("Traceback (most recent call last):")
        # Of an error in Python the last line of its traceback says what it is; Java's frames come behind it.
        causes = re.findall(r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit)\b[^\n]*", traceback, re.MULTILINE)
        told = what.partition("\n")[0] + (causes[-1] if causes else "")
        return f"{name}: {_clean(told)[:400]} ({condition[1]})"
    return None


def _line(text: str, sign: str) -> str:
    lines = [line.strip() for line in text.splitlines() if re.search(sign, line)]
    return _clean(lines[0] if lines else text.splitlines()[0])[:300]


def _clean(text: str) -> str:
    return _SECRET.sub(r"\1…", text)
