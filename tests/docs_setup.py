"""Small data for the pages of the documentation, named by their `<!-- setup: ... -->` comments.

Each function runs in the page's fresh directory and writes files there.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def make_data() -> None:
    """Speech and text in JSON lines, with lengths, languages and ids."""
    Path("speech").mkdir()
    for shard in range(4):
        rows = [
            {"id": f"s{shard}-{i}", "duration": 1 + (i * 7 + shard) % 30, "text": "word " * (i % 9 + 1), "lang": "en"}
            for i in range(50)
        ]
        _write(Path("speech") / f"part-{shard:03d}.jsonl", rows)
    for name, count in (("web", 300), ("books", 100), ("dev", 30)):
        _write(Path(f"{name}.jsonl"), [{"id": f"{name}-{i}", "num_tokens": 10 + i % 200} for i in range(count)])
    Path("bad-ids.txt").write_text("web-3\nweb-5\n")
    Path("bad-rows.txt").write_text("0\n7\n")
    Path("lengths.py").write_text("def count_words(sample):\n    return len(sample['text'].split())\n")
    _write_tokenizer()


def _write(file: Path, rows: list[dict[str, object]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_talks() -> None:
    """Talks of many lengths in four files, notes, and a dev set; whole numbers only, alike on every platform."""
    Path("talks").mkdir()
    rows = [_talk(i) for i in range(2000)]
    for shard in range(4):
        _write(Path("talks") / f"part-{shard}.jsonl", rows[500 * shard : 500 * (shard + 1)])
    _write(Path("notes.jsonl"), [{"id": f"note-{i}", "num_tokens": 1 + i * i * 7919 % 500} for i in range(3000)])
    _write(Path("dev.jsonl"), [{"id": f"dev-{i}", "num_tokens": 20 + i * 37 % 200} for i in range(45)])
    Path("bad-ids.txt").write_text("# reported by listeners\ntalk-17\ntalk-99\ntalk-5000\n")


def _talk(i: int) -> dict[str, object]:
    eighths = 8 + (i * 7919 % 16) * (i * i * 31 % 17)  # of a second
    spoken = {"duration": eighths / 8, "num_tokens": eighths * (2 + i % 11) // 8}
    return {"id": f"talk-{i}", **spoken, "lang": ("en", "en", "pl", "xx", "en")[i % 5]}


def make_tokens() -> None:
    """Rows with their tokens: two sources to train on, and a dev set whose size no number of ranks divides."""
    for name, count, longest in (("web", 900, 200), ("books", 300, 500), ("dev", 45, 100)):
        rows = []
        for i in range(count):
            length = 5 + i * i * 7919 % (longest - 5)
            tokens = [(i * 31 + j * 17) % 997 + 1 for j in range(length)]
            rows.append({"id": f"{name}-{i}", "num_tokens": length, "score": i % 10, "tokens": tokens})
        _write(Path(f"{name}.jsonl"), rows)


def make_files() -> None:
    """A file or two of every format: JSON lines, and a WebDataset tar of four samples."""
    make_data()
    with tarfile.open("calls.tar", "w") as tar:
        for i in range(4):
            about = json.dumps({"duration": 2.5 + i, "text": "hello"}).encode()
            for extension, data in (("wav", b"RIFF" * (10 + i)), ("json", about)):
                member = tarfile.TarInfo(f"call-{i}.{extension}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


@contextmanager
def make_slow_store() -> Iterator[None]:
    """Tokens in eight files on a web server with 50 ms of latency and 20 MB/s; $DATA is its address."""
    from loopback import serving
    from slow_proxy import Network, slow_proxy

    objects = {}
    for shard in range(8):
        rows = [
            {"id": f"{shard}-{i}", "tokens": [(i * 31 + j * j * 17 + shard) % 997 for j in range(1500)]}
            for i in range(100)
        ]
        objects[f"/part-{shard}.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    slow = Network(latency_seconds=0.05, bytes_per_second=20e6)
    with serving(objects) as server, slow_proxy(server.port, slow) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATA", proxy.address)
        yield


def make_megatron() -> None:
    """Two Megatron datasets, texts and a tokenizer to make a third."""
    import numpy as np

    from playhead.formats.megatron_idx import write_idx

    for name, lengths in (("web", [5 + i % 700 for i in range(4000)]), ("books", [900 + i for i in range(300)])):
        marks = np.arange(len(lengths) + 1, dtype=np.int64)
        write_idx(name, np.dtype(np.uint16), np.array(lengths, np.int32), marks)
        Path(f"{name}.bin").write_bytes(bytes(2 * sum(lengths)))
    _write(Path("notes.jsonl"), [{"text": "a note " * (i % 7)} for i in range(100)])
    _write_tokenizer()


def _write_tokenizer() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<unk>": 0, "</s>": 1, "a": 2, "note": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))  # noqa: S106 - a word, not a secret
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save("tokenizer.json")


def make_recordings() -> None:
    """A minute of quiet noise, and where there is speech in it."""
    import numpy as np
    import soundfile

    from alm_rows import write_manifest

    samples = np.random.default_rng(0).integers(-900, 900, 60 * 8000, dtype=np.int16)
    soundfile.write("talk.wav", samples, 8000)
    speech = [
        (0.5, 6.0, "good morning"),
        (6.4, 11.0, "and welcome"),
        (14.0, 19.0, "to a long talk"),
        (40.0, 40.5, "hm"),
    ]
    segments = [{"start": start, "end": end, "text": text} for start, end, text in speech]
    write_manifest(Path("talks.jsonl"), [{"audio_filepath": "talk.wav", "duration": 60.0, "segments": segments}])


def make_nemo() -> None:
    """Two tarred datasets and a dev set of NeMo, with quiet noise for speech; a tokenizer."""
    import numpy as np

    for name, count in (("english", 24), ("polish", 16)):
        Path(name).mkdir()
        for shard in range(2):
            rows = []
            with tarfile.open(f"{name}/audio_{shard}.tar", "w") as tar:
                for i in range(count):
                    frames = 8000 + 1600 * (i * 7 % 11)
                    rows.append(
                        {"audio_filepath": f"{i}.wav", "duration": frames / 8000, "text": "a note " * (i % 3 + 1)}
                    )
                    data = _wav(np.random.default_rng(i).integers(-900, 900, frames, dtype=np.int16))
                    member = tarfile.TarInfo(f"{i}.wav")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
            _write(Path(name) / f"manifest_{shard}.json", rows)
    Path("dev").mkdir()
    Path("dev/dev.wav").write_bytes(_wav(np.zeros(8000, np.int16)))
    _write(Path("dev/dev.json"), [{"audio_filepath": "dev.wav", "duration": 1.0, "text": "a note"}])
    _write_tokenizer()


def make_nemo_job() -> None:
    """The same, and the configuration of a job."""
    make_nemo()
    entry = {"type": "nemo_tarred", "weight": 1}
    sets = [
        {
            **entry,
            "manifest_filepath": f"{name}/manifest_{{0..1}}.json",
            "tarred_audio_filepaths": f"{name}/audio_{{0..1}}.tar",
        }
        for name in ("english", "polish")
    ]
    dataset = {"input_cfg": sets, "batch_duration": 12, "max_duration": 4, "shuffle": True, "sample_rate": 8000}
    Path("config.yaml").write_text(json.dumps({"train_ds": dataset}))


def _wav(samples: Any) -> bytes:
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, samples, 8000, format="WAV", subtype="PCM_16")
    return file.getvalue()


def make_meetings() -> None:
    """Diarised meetings in two files of a folder, and a bad row in a third file."""
    from alm_rows import conversation, write_manifest

    write_manifest(Path("meetings/monday.jsonl"), [conversation(i, 60, words=True) for i in range(4)])
    write_manifest(Path("meetings/tuesday.jsonl"), [conversation(i, 60) for i in range(4, 8)])
    rows = [conversation(8), {**conversation(9), "segments": [{"start": 3.0, "speaker": "a"}]}]
    write_manifest(Path("friday.jsonl"), rows)


def make_conversations() -> None:
    """Conversations in three formats, a manifest of speech, their media, a tokenizer and a chat template."""
    from chat_data import MARKED, write_image, write_tokenizer, write_wav

    write_tokenizer(Path("tokenizer.json"))
    Path("chat.jinja").write_text(MARKED)
    Path("media").mkdir()
    for i in range(12):
        write_wav(Path(f"media/{i}.wav"), 8000 + 800 * i, first=i)
        write_image(Path(f"media/{i}.png"), 28 + 4 * i, 28, 20 * i)
    said = [{"value": "hello there", "from": "Assistant", "type": "text"}]
    asked = [{"value": "what is said", "from": "User", "type": "text"}]
    _write(
        Path("asked.jsonl"),
        [
            {
                "id": f"asked-{i}",
                "conversations": [
                    *asked,
                    {"value": f"media/{i}.wav", "from": "User", "type": "audio", "duration": 0.5 + 0.05 * i},
                    *said,
                ],
            }
            for i in range(12)
        ],
    )
    answer = {"role": "assistant", "content": "a square"}
    rows = [
        {
            "id": f"seen-{i}",
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": f"{i}.png"}},
                        {"type": "text", "text": "what is it?"},
                    ],
                },
                answer,
            ],
        }
        for i in range(12)
    ]
    Path("seen.json").write_text(json.dumps(rows, indent=1))
    spoken = [
        {"audio_filepath": f"media/{i}.wav", "duration": 0.5 + 0.05 * i, "text": "good morning"} for i in range(12)
    ]
    _write(Path("speech.json"), spoken)


def make_cuts() -> None:
    """Cuts of noise with transcripts, as lhotse writes them."""
    import numpy as np
    import soundfile
    from lhotse import CutSet, MonoCut, Recording, SupervisionSegment

    Path("wavs").mkdir()
    cuts = []
    for i in range(40):
        samples = np.random.default_rng(i).integers(-900, 900, 4000 + 300 * i, dtype=np.int16)
        soundfile.write(f"wavs/{i}.wav", samples, 16000)
        of = Recording.from_file(f"wavs/{i}.wav")
        said = SupervisionSegment(f"s{i}", of.id, 0, of.duration, text=f"sentence number {i}")
        cuts.append(MonoCut(f"cut-{i}", 0, of.duration, 0, recording=of, supervisions=[said]))
    CutSet.from_cuts(cuts).to_file("cuts.jsonl")
