"""Airflow's intervals: half-open, UTC, of arrival time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from tidegate.declarations.errors import UserError
from tidegate.declarations.interval_labels import interval_label, label_start
from tidegate.declarations.models import EPOCH, Pipeline, from_us, to_us
from tidegate.operators.schedule import Int64s


@dataclass(frozen=True, order=True)
class Interval:
    """[start, end) of arrival time; ``label`` names its partitions."""

    start: datetime
    end: datetime
    label: str

    @property
    def start_us(self) -> int:
        """Start in microseconds since 1970-01-01 UTC."""
        return to_us(self.start)

    @property
    def end_us(self) -> int:
        """End in microseconds since 1970-01-01 UTC."""
        return to_us(self.end)

    @property
    def ends_day(self) -> bool:
        """Whether the interval is the last of its UTC day."""
        return (self.end - EPOCH) % timedelta(days=1) == timedelta(0)


def interval_at(pipeline: Pipeline, start: datetime) -> Interval:
    """The interval that begins at ``start``, which must be a multiple of the pipeline's interval since 1970."""
    length = timedelta(seconds=pipeline.interval_s)
    return Interval(start, start + length, interval_label(start, length))


def interval_labelled(pipeline: Pipeline, label: str) -> Interval:
    """The interval whose partitions bear this label."""
    return interval_at(pipeline, label_start(label))


def interval_holding(pipeline: Pipeline, instant_us: int) -> Interval:
    """The interval that holds an instant (microseconds since 1970-01-01 UTC)."""
    length = pipeline.interval_s * 1_000_000
    return interval_at(pipeline, from_us(instant_us // length * length))


def labels_holding(pipeline: Pipeline, instants_us: Int64s) -> list[str]:
    """The label of the interval that holds each instant."""
    length = pipeline.interval_s * 1_000_000
    numbers, place = np.unique(instants_us // length, return_inverse=True)
    labels = [interval_holding(pipeline, int(number) * length).label for number in numbers]
    return [labels[i] for i in place]


def intervals_between(pipeline: Pipeline, start: datetime, end: datetime) -> tuple[Interval, ...]:
    """Every interval of [start, end), in order; UserError if the range does not consist of whole intervals."""
    step = timedelta(seconds=pipeline.interval_s)
    for name, instant in (("--from", start), ("--to", end)):
        if (instant - EPOCH) % step != timedelta(0):
            lower = instant - (instant - EPOCH) % step
            raise UserError(
                f"{name} {instant:%Y-%m-%dT%H:%M:%SZ} is not the start of an interval of {pipeline.interval_s} s: "
                f"use {lower:%Y-%m-%dT%H:%M:%SZ} or {lower + step:%Y-%m-%dT%H:%M:%SZ}"
            )
    if end <= start:
        raise UserError(f"--to {end:%Y-%m-%dT%H:%M:%SZ} must be later than --from {start:%Y-%m-%dT%H:%M:%SZ}")
    return tuple(interval_at(pipeline, start + step * i) for i in range((end - start) // step))
