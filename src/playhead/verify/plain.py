"""The report as plain values, for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from playhead.verify.figures import percentile
from playhead.verify.verify import VerifyReport


def plain(report: VerifyReport) -> dict[str, Any]:
    settings, figures = report.settings, report.figures
    return {
        "recipe": report.recipe,
        "version": report.version,
        "fingerprint": report.fingerprint,
        "passed": report.is_proved,
        "world_size": settings.world_size,
        "workers": settings.options.workers,
        "worker_kind": settings.options.worker_kind,
        "lanes": report.lanes,
        "steps": report.steps,
        "payload": settings.payload,
        "loader": settings.loader,
        "launcher": settings.launch.launcher,
        "records": str(settings.records),
        "seconds": round(report.seconds, 3),
        "seconds_to_first": figures.seconds_to_first and round(figures.seconds_to_first, 3),
        "step_seconds": {
            f"p{q}": round(percentile(figures.step_seconds, q), 6) if figures.step_seconds else None for q in (50, 95)
        },
        "questions": [
            {
                "question": verdict.question,
                "title": verdict.title,
                "outcome": verdict.outcome,
                "tag": verdict.tag,
                "evidence": list(verdict.evidence),
                "difference": verdict.difference and asdict(verdict.difference),
                "seconds": round(verdict.seconds, 3),
            }
            for verdict in report.verdicts
        ],
        "shares": [asdict(share) for share in figures.shares],
    }
