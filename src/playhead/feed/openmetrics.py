"""The counters of a loader as OpenMetrics text, which Prometheus reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from playhead.errors import PlayheadError
from playhead.feed.stats import STAGES, LoaderStats


class _Metric(NamedTuple):
    """A metric; `field` is that of the statistics, of all or of each worker. Its name ends with its unit."""

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    about: str
    field: str


_OF_LOADER = (
    _Metric("batches", "counter", "", "Micro-batches delivered.", "batches"),
    _Metric("steps", "counter", "", "Steps delivered whole.", "steps"),
    _Metric("samples", "counter", "", "Samples delivered.", "samples"),
    _Metric("wait_seconds", "counter", "seconds", "Time the training loop waited for batches.", "wait_seconds"),
    _Metric("consumer_seconds", "counter", "seconds", "Time it took between batches.", "consumer_seconds"),
    _Metric("queue_depth", "gauge", "", "Batches ready when one is asked for: the mean.", "queue_depth_mean"),
    _Metric("resident_bytes", "gauge", "bytes", "Resident memory of the training process.", "resident_bytes"),
    _Metric("major_faults", "counter", "", "Its page faults that waited for a disk.", "major_faults"),
)
_OF_WORKERS = (
    _Metric("ahead_seconds", "counter", "seconds", "Time of look-ahead threads for which it did not wait.", "ahead"),
    _Metric("storage_wait_seconds", "counter", "seconds", "Time the worker waited for storage.", "waited"),
    _Metric("requests", "counter", "", "Requests to storage.", "num_requests"),
    _Metric("read_bytes", "counter", "bytes", "Bytes read, from storage or from the shard cache.", "num_bytes"),
    _Metric("cache_hits", "counter", "", "Reads that the shard cache answered.", "cache_hits"),
    _Metric("cache_misses", "counter", "", "Reads that the shard cache did not answer.", "cache_misses"),
    _Metric("cache_bytes", "counter", "bytes", "Bytes read from the shard cache.", "cache_bytes"),
    _Metric("worker_resident_bytes", "gauge", "bytes", "Resident memory of the worker.", "resident_bytes"),
    _Metric("worker_major_faults", "counter", "", "Page faults of the worker that waited for a disk.", "major_faults"),
)
_STAGES = _Metric("stage_seconds", "counter", "seconds", "Time of the worker by stage.", "")

_NAME = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]*")
_OWN_LABELS = ("worker", "stage")

_Samples = Sequence[tuple[Mapping[str, str], float]]


def openmetrics(stats: LoaderStats, **labels: str | int) -> str:
    """The counters as OpenMetrics text; `labels` are added to every sample.

    text = playhead.openmetrics(loader.stats(), rank=loader.rank)
    """
    _check_names(labels)
    given = {name: str(value) for name, value in labels.items()}
    workers = [({"worker": str(each.worker)}, each) for each in stats.workers]  # its process may change
    stages = [({**about, "stage": name}, getattr(each, name)) for about, each in workers for name in STAGES]
    parts = [_text(metric, [({}, getattr(stats, metric.field))], given) for metric in _OF_LOADER]
    parts.append(_text(_STAGES, stages, given))
    parts += [
        _text(metric, [(about, getattr(each, metric.field)) for about, each in workers], given)
        for metric in _OF_WORKERS
    ]
    return "".join(parts) + "# EOF\n"


def _check_names(labels: Mapping[str, object]) -> None:
    for name in labels:
        if _NAME.fullmatch(name) is None or name in _OWN_LABELS:
            raise PlayheadError(
                "openmetrics: a label cannot have this name",
                found=repr(name),
                expected=f"letters, digits and _, not beginning with a digit or __; not {', '.join(_OWN_LABELS)}",
                fix="give it another name",
            )


def _text(metric: _Metric, samples: _Samples, given: Mapping[str, str]) -> str:
    name = f"playhead_{metric.name}"
    lines = [f"# TYPE {name} {metric.kind}"]
    if metric.unit:
        lines.append(f"# UNIT {name} {metric.unit}")
    lines.append(f"# HELP {name} {metric.about}")
    suffix = "_total" if metric.kind == "counter" else ""
    for about, value in samples:
        labels = ",".join(f'{label}="{_escaped(text)}"' for label, text in {**given, **about}.items())
        lines.append(f"{name}{suffix}{{{labels}}} {value}" if labels else f"{name}{suffix} {value}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
