"""The recipe as frozen values: its fields and their types.

Numbers about length (`budget`, `max_length`, `edges`, ...) are in the unit of the sources: tokens, bytes, characters
or seconds. The plan works in whole numbers: tokens, bytes, characters or milliseconds.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from playhead.recipe.augments import Augment

Shuffle = Literal["none", "global", "shards"]
ShuffleUnit = Literal["shard", "block"]
Unit = Literal["tokens", "seconds", "bytes", "characters"]
Overlong = Literal["error", "drop", "alone", "truncate"]
Exhaustion = Literal["repeat", "stop_first", "stop_all", "drop"]
WeightsIn = Literal["samples", "length"]
OnError = Literal["raise", "substitute"]
Dtype = Literal[
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"
]
Masks = Literal["always", "padded", "never"]
Channels = Literal["all", "mono", "first"]
AudioDtype = Literal["float32", "int16"]
ImageMode = Literal["RGB", "L", "RGBA"]
OnLengthMismatch = Literal["error", "truncate", "substitute"]
Turns = Literal["all", "input", "output"]
TemplateContent = Literal["text", "parts"]
ConversationForm = Literal["transcript", "question"]
CacheUnit = Literal["shard", "block", "range"]

LENGTH_TOLERANCE_SECONDS = 0.2  # as in NeMo: manifests round, and decoders pad

CACHE_DIR = ".playhead"

SUM_NAME = "all"  # totals report the sum of all sources under this name, so no source may have it

Count = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0)]

# A rule of `keep`: a range of numbers [low, high] (null: open), a list of strings (any of them),
# or a pattern: shell style ("*.wav"), or a regular expression after "re:". A key "a/b" is a ratio of columns.
# The columns @length and @output_length are the planned lengths, in the units in which they are written in a recipe.
PLANNED_COLUMNS = {"@length": "length", "@output_length": "output_length"}
KeepRule = str | list[str | float | None]


class Length(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a sample's length comes from: a field, a user function, (unit bytes) its size, a tokenizer, the header of
    `audio` or of an `image`, measuring, or the `sum` of such terms.

    To measure is to run the map over every row: `playhead prepare --measure`. With a `tokenizer` the length is the
    number of tokens of the text in `field`, or of a `template` of fields. Seconds times `per_second`, rounded up, are
    frames or tokens of audio; an image has a token for every `patch` x `patch` pixels, at its edges too.
    `turns` counts the tokens of a conversation, as the recipe's `template` makes them: all of them, those before its
    last turn (`input`) or those of its last turn (`output`).
    """

    field: str | None = None
    function: str | None = None
    measure: bool = False
    unit: Unit = "tokens"
    tokenizer: str | None = None
    template: str | None = None
    special: bool = True
    max: Count | None = None
    audio: str | None = None
    per_second: Positive | None = None
    image: str | None = None
    patch: Count | None = None
    sum: list[Length] = []  # `field` is a field here; msgspec gives every length its own list
    turns: Turns | None = None

    @property
    def terms(self) -> list[Length]:
        """The terms of a sum, or the length itself."""
        return self.sum or [self]

    @property
    def in_seconds(self) -> bool:
        """Whether the value read from a row is in seconds."""
        return not self.sum and (self.unit == "seconds" or self.per_second is not None)

    @property
    def by_terms(self) -> bool:
        """Whether it differs from the size of the sequence field, and is counted again to check it."""
        return bool(self.sum or self.per_second or self.image) or self.unit == "characters"

    @property
    def from_headers(self) -> bool:
        """Whether the header of a medium may be needed to determine it."""
        return any(term.audio or term.image for term in self.terms)


class Tokenize(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens of the text in `field`, or of a `template` of fields, put into every sample as the field `to`."""

    tokenizer: str
    field: str | None = None
    template: str | None = None
    to: str = "tokens"
    special: bool = True
    max: Count | None = None


class AudioTokens(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Recordings in a conversation: the token that stands for one, and the seconds that a token stands for.

    A recording has ceil(seconds / token_equivalent_duration) tokens, at least one.
    """

    tag: str
    token_equivalent_duration: Positive


class VisualTokens(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Images or videos in a conversation: the token that stands for one, and how many tokens one has.

    A number for all, a token for every `patch` x `patch` pixels of an image as it is delivered, or your function: of
    the width and height of an image, or of the bytes of a video.
    """

    tag: str
    tokens: Count | None = None
    patch: Count | None = None
    function: str | None = None


class Template(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How conversations become tokens: a Hugging Face chat template in a `file`, or your `function`.

    The file is a Jinja template, or a JSON file (`tokenizer_config.json`) that holds one as `chat_template`.
    """

    tokenizer: str
    file: str | None = None
    function: str | None = None
    variables: dict[str, Any] = field(default_factory=dict)
    content: TemplateContent = "text"
    separator: str = " "
    audio: AudioTokens | None = None
    image: VisualTokens | None = None
    video: VisualTokens | None = None
    expand_placeholders: bool = True

    @property
    def media_tags(self) -> dict[Literal["audio", "image", "video"], str]:
        """The tags of the kinds of media that conversations may have."""
        found: dict[Literal["audio", "image", "video"], str] = {}
        if self.audio is not None:
            found["audio"] = self.audio.tag
        if self.image is not None:
            found["image"] = self.image.tag
        if self.video is not None:
            found["video"] = self.video.tag
        return found


class AsConversation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows of audio as conversations: the user gives a context and the audio, the assistant answers with its text.

    In the form `question` the user also asks, and the answer is that of the row. `context`, `question`, `answer`,
    `text` and `system_prompt` name fields of the rows, or tags of the source; rows may lack a context and a system
    prompt.
    """

    form: ConversationForm = "transcript"
    text: str = "text"
    context: str = "context"
    question: str = "question"
    answer: str = "answer"
    system_prompt: str = "system_prompt"
    audio: str = "audio"
    duration: str = "duration"


class AudioOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How audio is delivered: at a rate (by default its own), some of its channels, as fractions or whole numbers."""

    sample_rate: Count | None = None
    channels: Channels | list[Annotated[int, Meta(ge=0)]] = "all"
    dtype: AudioDtype = "float32"


class ImageOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How images are delivered: in a mode and of a size, by default those they are stored with.

    `size` is a width and a height; `shortest` and `longest` are lengths of one side, the other keeps the aspect ratio.
    """

    mode: ImageMode | None = None
    size: tuple[Count, Count] | None = None
    shortest: Count | None = None
    longest: Count | None = None


class Fixed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="fixed"):
    """Micro-batches of `size` samples."""

    size: Count
    max_length: Positive | None = None
    overlong: Overlong = "error"


class Budget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="budget"):
    """Micro-batches of as many samples, in order, as keep count * longest effective length within `budget`."""

    budget: Positive
    quadratic: Positive | None = None
    overlong: Overlong = "error"


class Bucket(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="bucket"):
    """Micro-batches of samples of like length.

    Buckets are given by their upper `edges` (a number each, or an [input, output] pair each) or counted with
    `num` (K, or [K, M]: K by input times M by output length), then of equal total length. Each bucket has a
    batch `size` (one for all, or one each) or a `budget`.
    """

    # A bare number beside a pair is not `Positive` or `Count`: msgspec 0.22 crashes in garbage collection on a union
    # of a bounded number and a fixed tuple. check_batching.py keeps the bounds instead.
    edges: list[float | tuple[Positive, Positive]] | None = None
    num: int | tuple[Count, Count] | None = None
    size: Count | list[Count] | None = None
    budget: Positive | None = None
    quadratic: Positive | None = None
    overlong: Overlong = "error"


class Pack(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="pack"):
    """Micro-batches of one bin of at most `max_length`, filled by best fit."""

    max_length: Positive
    overlong: Overlong = "error"


Batching = Fixed | Budget | Bucket | Pack


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="source"):
    """One dataset. Its files are in `path`, or in options of its format that are paths."""

    name: str
    path: list[str] = field(default_factory=list)
    format: str | None = None
    weight: float | None = None
    shuffle: Shuffle = "global"
    shuffle_group: Count = 8
    shuffle_unit: ShuffleUnit = "shard"
    length: Length | None = None
    output_length: Length | None = None
    ids: str | None = None
    keep: dict[str, KeepRule] = field(default_factory=dict)
    drop_ids: list[str] = field(default_factory=list)
    drop_rows: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    tags: dict[str, str | float | bool] = field(default_factory=dict)
    as_conversation: bool | AsConversation = False
    template: bool | Template | None = None
    tokenize: bool | Tokenize | None = None
    map: str | None = None
    audio: AudioOptions | None = None
    image: ImageOptions | None = None
    augment: list[Augment] | None = None
    store: dict[str, str | bool | float] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


class Group(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="group"):
    """Sources that share a weight; with its own `batching` it is a sub-stream."""

    name: str
    sources: list[Source | Group]
    weight: float | None = None
    temperature: Positive | None = None
    weights_in: WeightsIn | None = None
    batching: Batching | None = None
    lanes: Count | None = None
    window_size: Count | None = None
    balance: Count | None = None


class Evaluation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finite set, unshuffled, every row once, on any world size."""

    sources: list[Source]
    batching: Batching
    lanes: Count | None = None


class MediaOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which media rows may name, and the limits for one sample."""

    allow: list[str] = field(default_factory=list)
    max_seconds: Positive = 3600.0
    max_bytes: Count = 1 << 30
    max_pixels: Count = 1 << 26  # 8,192 x 8,192, of which Pillow needs 256 MiB; its own limit is 1.3 times that


class ShardCache(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Local copies of what the plan needs next, shared by all processes of a node.

    Copies take at most `max_bytes`. `look_ahead` is how many steps are planned ahead of those in use; if left out, as
    many as are useful. `unit` is what is copied and evicted together: whole files, blocks, or the byte ranges of rows.
    """

    dir: str
    max_bytes: Count
    look_ahead: Count | None = None
    unit: CacheUnit = "shard"


class Recipe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that determines the stream, and the paths of its files."""

    sources: list[Source | Group]
    batching: Batching | None = None
    seed: int = 0
    lanes: Count | None = None
    weights_in: WeightsIn | None = None
    temperature: Positive | None = None
    exhaustion: Exhaustion = "repeat"
    epochs: Count | None = None
    window_size: Count | None = None
    balance: Count | None = None
    fuse: Literal["zip"] | dict[str, Positive] | None = None
    parts: Count = 1
    cache_dir: str = CACHE_DIR
    indexes_root: str | None = None
    copies: str | None = None
    shard_cache: ShardCache | None = None
    stores: dict[str, dict[str, str | bool | float]] = field(default_factory=dict)
    evaluation: dict[str, Evaluation] = field(default_factory=dict)
    template: Template | None = None
    tokenize: Tokenize | None = None
    map: str | None = None
    decode: bool = True
    media: bool | MediaOptions = True
    audio: AudioOptions = AudioOptions()
    image: ImageOptions = ImageOptions()
    video: str | None = None
    augment: list[Augment] = field(default_factory=list)
    noises: list[Source] = field(default_factory=list)
    collate: str = "pad"
    fields: list[str] | None = None
    sequence: str | None = "tokens"
    sequence_rate: Positive | None = None
    pad_to: Literal["batch", "bucket"] | Count = "batch"
    pad_batch: bool = False
    pad_values: dict[str, float] = field(default_factory=dict)
    masks: Masks = "always"
    dtypes: dict[str, Dtype] = field(default_factory=dict)
    on_error: OnError = "raise"
    on_length_mismatch: OnLengthMismatch = "error"
    length_tolerance: Annotated[float, Meta(ge=0)] = LENGTH_TOLERANCE_SECONDS
    max_bad: Annotated[float, Meta(ge=0, le=1)] = 0.01

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recipe:
        """The recipe in a YAML file (or JSON, by its suffix); relative paths start at the file's directory."""
        from playhead.recipe.read import load

        return load(path)

    @classmethod
    def parse(cls, values: Any, base_dir: str | os.PathLike[str] | None = None) -> Recipe:
        """The recipe in Python values; relative paths start at `base_dir`, else at the working directory.

        The `path` of a source may be a `datasets.Dataset`: the recipe then names its files.
        """
        from playhead.recipe.read import parse

        return parse(values, base_dir)

    def to_dict(self) -> dict[str, Any]:
        """The recipe as plain values, without what is default. Law: `Recipe.parse` of it is the same recipe."""
        from playhead.recipe.plain import to_plain

        plain: dict[str, Any] = to_plain(self)
        return plain
