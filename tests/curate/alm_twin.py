"""Both stages, slow and obvious: one loop after another, every list made anew. Checks what the package does."""

from __future__ import annotations

import copy
from typing import Any

NAMES = ("lost_bw", "lost_sr", "lost_spk", "lost_win", "lost_no_spkr", "lost_next_seg_bm")


def total(numbers: list[Any]) -> Any:
    found = 0
    for number in numbers:
        found = found + number
    return found


def names_in(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip() != ""]


def without(values: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {key: copy.deepcopy(value) for key, value in values.items() if key not in names}


def width(segment: dict[str, Any]) -> Any:
    if "metrics" not in segment or "bandwidth" not in segment["metrics"]:
        return 0
    return segment["metrics"]["bandwidth"]


def voices(segments: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    """Each speaker and its seconds, in order of first speech."""
    found: list[tuple[Any, Any]] = []
    for segment in segments:
        if not segment.get("speaker"):
            continue
        known = [i for i, (name, _) in enumerate(found) if name == segment["speaker"]]
        seconds = segment["end"] - segment["start"]
        if known:
            found[known[0]] = (found[known[0]][0], found[known[0]][1] + seconds)
        else:
            found.append((segment["speaker"], 0 + seconds))
    return found


def too_many(segments: list[dict[str, Any]], most: int) -> bool:
    heard = [name for name, _ in voices(segments)]
    return len(heard) > most or "no-speaker" in heard


def shortened(segment: dict[str, Any], limit: Any) -> dict[str, Any]:
    part = copy.deepcopy(segment)
    part["words"] = [word for word in part.get("words", []) if word["end"] <= limit]
    part["text"] = " ".join(word["word"] for word in part["words"] if word.get("word"))
    part["end"] = part["words"][-1]["end"] if part["words"] else part["start"]
    return part


def built(row: dict[str, Any], p: dict[str, Any]) -> dict[str, Any]:
    row = copy.deepcopy(row)
    segments = row.get("segments", [])
    margin = p["target_window_duration"] * p["tolerance"]
    shortest, longest = p["target_window_duration"] - margin, p["target_window_duration"] + margin
    drop = names_in(p["drop_fields"])
    stats: dict[str, Any] = {
        "total_segments": len(segments),
        "total_dur": total([segment["end"] - segment["start"] for segment in segments]),
        "swift_path": row.get("swift_audio_filepath", ""),
        "audio_sample_rate": row.get("audio_sample_rate", 0),
    }
    for name in NAMES:
        stats[name] = 0
        stats["dur_" + name] = 0.0
    stats["lost_win_full_data"] = []
    if stats["audio_sample_rate"] < p["min_sample_rate"]:
        stats["lost_sr"], stats["dur_lost_sr"] = len(segments), stats["total_dur"]
        answer = {"audio_filepath": row.get("audio_filepath")}
        return {**answer, "windows": [], "stats": stats, "truncation_events": 0}

    def lose(name: str, segment: dict[str, Any]) -> None:
        stats[name] = stats[name] + 1
        stats["dur_" + name] = stats["dur_" + name] + (segment["end"] - segment["start"])

    windows, events = [], 0
    for first in range(len(segments)):
        opening = segments[first]
        if width(opening) < p["min_bandwidth"]:
            lose("lost_bw", opening)
            continue
        members: list[dict[str, Any]] = []
        until = opening["end"]
        stop = first
        for stop in range(first, len(segments)):
            candidate = segments[stop]
            if width(candidate) < p["min_bandwidth"]:
                break
            if candidate["end"] - opening["start"] > longest:
                limit = opening["start"] + longest
                if p["truncation"] and candidate["start"] < limit:
                    events += 1
                    part = shortened(candidate, limit)
                    if not too_many([*members, part], p["max_speakers"]):
                        members.append(without(part, drop))
                        until = part["end"]
                break
            if too_many([*members, candidate], p["max_speakers"]):
                break
            members.append(without(candidate, drop))
            until = candidate["end"]
        in_range = shortest <= until - opening["start"] <= longest
        if not in_range or len(members) < 2 or [m for m in members if width(m) < p["min_bandwidth"]]:
            lose("lost_win", opening)
            if segments[stop].get("speaker", "no-speaker") == "no-speaker":
                lose("lost_no_spkr", opening)
            elif width(segments[stop]) < p["min_bandwidth"]:
                lose("lost_next_seg_bm", opening)
            record = {"index": first, "window_segs": members, "next_seg": without(segments[stop], drop)}
            record["prev_seg"] = without(segments[first - 1 if first else 0], drop)
            stats["lost_win_full_data"].append(record)
            continue
        heard = voices(members)
        if len(heard) < p["min_speakers"] or too_many(members, p["max_speakers"]):
            lose("lost_spk", opening)
            continue
        shares = [seconds for _, seconds in heard]
        shares.sort(key=lambda seconds: -seconds)
        windows.append({"segments": members, "speaker_durations": (shares + [0.0] * 5)[:5]})
    answer = without(row, names_in(p["drop_fields_top_level"]))
    answer["windows"] = windows
    answer["stats"] = stats
    answer["truncation_events"] = events
    return answer


def filtered(row: dict[str, Any], p: dict[str, Any]) -> dict[str, Any]:
    answer = copy.deepcopy(row)
    if not row["windows"]:
        empty = [("filtered_windows", []), ("filtered_dur", 0.0), ("filtered_dur_list", []), ("total_dur_window", 0.0)]
        empty += [("total_dur_list_window", []), ("total_dur_list_window_timestamps", []), ("filtered", [])]
        for key, value in [*empty, ("manifest_filepath", None), ("swift_filepath", None)]:
            if key not in answer:
                answer[key] = value
        return answer
    times = [(window["segments"][-1]["end"], window["segments"][0]["start"]) for window in row["windows"]]
    ordered = sorted(times, key=lambda pair: (pair[1], pair[0]))
    alive = list(range(len(ordered)))
    for i in range(len(ordered)):
        for j in range(i + 1, len(ordered)):
            if i not in alive:
                break
            if j not in alive:
                continue
            (end, start), (end2, start2) = ordered[i], ordered[j]
            if start2 >= end:
                break
            shorter = min(end - start, end2 - start2)
            ratio = max(0, min(end, end2) - max(start, start2)) / shorter if shorter else 0
            if ratio >= p["overlap_percentage"] / 100:
                far, far2 = abs(end - start - p["target_duration"]), abs(end2 - start2 - p["target_duration"])
                first_goes = far2 < far or (far == far2 and end - start < end2 - start2)
                alive.remove(i if first_goes else j)
    kept = [ordered[i] for i in alive]
    near = [(round(end, 6), round(start, 6)) for end, start in kept]
    answer["total_dur_window"] = total([end - start for end, start in times])
    answer["total_dur_list_window"] = [end - start for end, start in times]
    answer["total_dur_list_window_timestamps"] = times
    answer["filtered"] = kept
    answer["filtered_windows"] = [
        window
        for window, (end, start) in zip(answer["windows"], times, strict=True)
        if (round(end, 6), round(start, 6)) in near
    ]
    answer["filtered_dur"] = total([end - start for end, start in kept])
    answer["filtered_dur_list"] = [end - start for end, start in kept]
    answer["manifest_filepath"] = None
    answer["swift_filepath"] = row["stats"]["swift_path"]
    return answer
