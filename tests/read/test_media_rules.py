from __future__ import annotations

import pytest

from playhead.errors import SampleError
from playhead.formats.media import Media
from playhead.read.media_rules import media_rules
from playhead.recipe.values import MediaOptions

LOCAL = media_rules(["/data/rows-*.jsonl"])
BUCKET = media_rules(["s3://corpus/manifests/rows-*.jsonl"])
AIS = media_rules(["ais://corpus/rows.jsonl"])
WEB = media_rules(["https://host.example/corpus/rows.jsonl"])
ALLOWING = media_rules(
    ["/data/rows.jsonl"], MediaOptions(allow=["s3://speech/clean", "https://host.example/a/", "/shared/"])
)
REMOTE_ALLOWING = media_rules(["s3://corpus/rows.jsonl"], MediaOptions(allow=["/shared/audio"]))


def resolve(rules, path, base=None):
    return rules.resolve(Media("audio", path=path, base=base))


@pytest.mark.parametrize(
    ("rules", "path", "base", "found"),
    [
        (LOCAL, "a.wav", "/data", "/data/a.wav"),
        (LOCAL, "../audio/a.wav", "/data/x", "/data/audio/a.wav"),
        (LOCAL, "/elsewhere/a.wav", "/data", "/elsewhere/a.wav"),
        (LOCAL, "/elsewhere/a.wav", None, "/elsewhere/a.wav"),
        (BUCKET, "a.wav", "s3://corpus/manifests", "s3://corpus/manifests/a.wav"),
        (BUCKET, "../audio/./a.wav", "s3://corpus/manifests/", "s3://corpus/audio/a.wav"),
        (BUCKET, "s3://corpus/audio/a+b.wav", None, "s3://corpus/audio/a+b.wav"),
        (BUCKET, "a day in üñí/100% #1.wav", "s3://corpus/audio", "s3://corpus/audio/a day in üñí/100% #1.wav"),
        (BUCKET, "S3://corpus/a/b.wav", None, "S3://corpus/a/b.wav"),
        (AIS, "ais://corpus/a//b.wav", None, "ais://corpus/a//b.wav"),
        (WEB, "a/b.wav", "https://host.example/corpus", "https://host.example/corpus/a/b.wav"),
        (WEB, "https://HOST.example/corpus/b.wav", None, "https://HOST.example/corpus/b.wav"),
        (ALLOWING, "s3://speech/clean/a.wav", "/data", "s3://speech/clean/a.wav"),
        (ALLOWING, "https://host.example/a/b.wav", "/data", "https://host.example/a/b.wav"),
        (REMOTE_ALLOWING, "/shared/audio/a.wav", "s3://corpus", "/shared/audio/a.wav"),
    ],
)
def test_what_rows_may_name(rules, path, base, found):
    assert resolve(rules, path, base) == found


@pytest.mark.parametrize(
    ("rules", "path", "base"),
    [
        (LOCAL, "s3://corpus/a.wav", "/data"),
        (LOCAL, "https://host.example/a.wav", "/data"),
        (LOCAL, "file:///etc/passwd", "/data"),
        (LOCAL, "a.wav", None),
        (LOCAL, "", "/data"),
        (LOCAL, None, "/data"),
        (LOCAL, 7, "/data"),
        (LOCAL, "/data/a\0.wav", "/data"),
        (BUCKET, "s3://corpus-of-others/a.wav", None),
        (BUCKET, "gs://corpus/a.wav", None),
        (BUCKET, "/etc/passwd", "s3://corpus/manifests"),
        (BUCKET, "/etc/passwd", None),
        (BUCKET, "../../a.wav", "s3://corpus/manifests"),
        (BUCKET, "s3://corpus/../other/a.wav", None),
        (BUCKET, "memory://a.wav", None),
        (BUCKET, "s3://corpus/a\nb.wav", None),
        (BUCKET, "s3://corpus /a.wav", None),
        (BUCKET, "S3://corpus/a//b.wav", None),
        (WEB, "wavs//1.wav", "https://host.example/corpus"),
        (WEB, "a b.wav", "https://host.example/corpus"),
        (WEB, "https://host.example/other/a.wav", None),
        (WEB, "https://host.example/corpus-b/a.wav", None),
        (WEB, "http://host.example/corpus/a.wav", None),
        (WEB, "../a.wav", "https://host.example/corpus"),
        (WEB, "%2e%2e/a.wav", "https://host.example/corpus"),
        (WEB, "x%2f..%2f..%2fa.wav", "https://host.example/corpus"),
        (WEB, "..%2fa.wav", "https://host.example/corpus"),
        (WEB, "https://host.example/corpus/\\..\\a.wav", None),
        (WEB, "https://host.example@evil.example/corpus/a.wav", None),
        (WEB, "https://host.example.evil.example/corpus/a.wav", None),
        (WEB, "https://host.example/corpus/a.wav?x=1", None),
        (ALLOWING, "s3://speech/cleaner/a.wav", "/data"),
        (ALLOWING, "s3://speech/clean/../noisy/a.wav", "/data"),
        (ALLOWING, "https://host.example/a/../b.wav", "/data"),
        (REMOTE_ALLOWING, "/shared/audio/../secret.wav", "s3://corpus"),
        (REMOTE_ALLOWING, "/shared/audiobooks/a.wav", "s3://corpus"),
    ],
)
def test_what_rows_may_not_name(rules, path, base):
    with pytest.raises(SampleError):
        resolve(rules, path, base)


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.1.1:80",
        "[fe80::1]",
        "[fe80::1%25eth0]",
        "[::ffff:169.254.169.254]",
        "0xa9fea9fe",
        "2852039166",
        "0251.0376.0251.0376",
        "metadata.google.internal",
        "METADATA.google.internal.",
    ],
)
def test_link_local_addresses_are_refused_even_where_they_are_allowed(host):
    rules = media_rules([f"http://{host}/rows.jsonl"])
    with pytest.raises(SampleError, match="link-local"):
        resolve(rules, f"http://{host}/latest/a.wav")


def test_messages_leave_queries_and_users_out():
    for path in ("https://user:secret@host.example/a.wav?signature=secret", "s3://other/a.wav?signature=secret"):
        with pytest.raises(SampleError) as caught:
            resolve(WEB, path)
        assert "secret" not in str(caught.value)
        assert "a.wav" in str(caught.value)


def test_the_refusal_says_what_to_write():
    with pytest.raises(SampleError) as caught:
        resolve(BUCKET, "gs://speech/a/b.wav")
    assert caught.value.expected == "one of: s3://corpus/"
    assert caught.value.fix == "if you trust it, add gs://speech/ to `media: {allow: [...]}` of the recipe"
