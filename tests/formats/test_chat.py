"""Chat templates: the text, the loss mask, the places of media, and what is refused."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from chat_data import MARKED, PARTS, PLAIN, write_tokenizer
from playhead.errors import DataError, RecipeError
from playhead.formats.chat import Chat, chat_spec
from playhead.formats.conversation import Conversation, MediaPart, Turn
from playhead.formats.lengths import UNKNOWN
from playhead.formats.media import Media
from playhead.formats.tokens import tokenizer_digest
from playhead.recipe.values import AudioTokens, Template, VisualTokens

AUDIO = AudioTokens(tag="<|audio|>", token_equivalent_duration=0.08)
IMAGE = VisualTokens(tag="<|image|>", patch=14)
TURNS = ("all", "input", "output")


@dataclass(frozen=True)
class Sizes:
    """Every recording has a second, and every image 28 x 30 pixels."""

    def seconds_of(self, _media: Media) -> float:
        return 1.0

    def image_size_of(self, _media: Media) -> tuple[int, int]:
        return 28, 30

    def video_bytes_of(self, _media: Media) -> bytes:
        return b"four"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat")
    write_tokenizer(folder / "tokenizer.json")
    for name, text in (("marked", MARKED), ("plain", PLAIN), ("parts", PARTS)):
        (folder / f"{name}.jinja").write_text(text)
    return folder


def make_chat(folder: Path, name: str = "marked", **more: Any) -> Chat:
    tokenizer = str(folder / "tokenizer.json")
    where = {} if "function" in more else {"file": str(folder / f"{name}.jinja")}
    template = Template(**{"tokenizer": tokenizer, "audio": AUDIO, "image": IMAGE, **where, **more})
    return Chat(chat_spec(template, None, {}, "template"), {tokenizer: tokenizer_digest(tokenizer, "template")})


def audio(seconds: float | None = None) -> MediaPart:
    return MediaPart(Media("audio", path="a.wav"), seconds)


def image() -> MediaPart:
    return MediaPart(Media("image", path="a.png"))


def talk(*turns: tuple[str, Any]) -> Conversation:
    made = [Turn(role, parts if isinstance(parts, tuple) else (parts,)) for role, parts in turns]
    return Conversation("c1", tuple(made))


TEXTS = st.text(st.sampled_from("ab cżł漢😀<|\n{%}"), max_size=8)
PART = st.one_of(TEXTS, st.builds(audio, st.one_of(st.none(), st.floats(0, 9))), st.builds(image))
TURN = st.tuples(st.sampled_from(["user", "assistant", "system"]), st.lists(PART, min_size=1, max_size=3).map(tuple))
CONVERSATIONS = st.lists(TURN, min_size=1, max_size=5).map(lambda turns: talk(("user", "?"), *turns))


def slow_tokens(folder: Path, conversation: Conversation) -> tuple[list[int], list[bool], list[int]]:
    """The tokens, the mask and the places of media, piece by piece and character by character."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text, trained = "", []
    for turn in conversation.turns:
        inside = " ".join(part if isinstance(part, str) else f"<|{part.kind}|>" for part in turn.parts)
        head, body = f"<|im_start|>{turn.role}\n", f"{inside}<|im_end|>\n"
        text += head + body
        trained += [False] * len(head) + [turn.role == "assistant"] * len(body)
    found = tokenizer.encode(text, add_special_tokens=False)
    media = list(conversation.media())
    tokens: list[int] = []
    mask: list[bool] = []
    places: list[int] = []
    for token, (first, end) in zip(found.ids, found.offsets, strict=True):
        name = tokenizer.id_to_token(token)
        if name not in ("<|audio|>", "<|image|>"):
            tokens.append(token)
            mask.append(any(trained[first:end]))
            continue
        part = media[len(places)]
        count = (
            2 * 3
            if part.kind == "image"
            else max(1, int(np.ceil((1.0 if part.seconds is None else part.seconds) / 0.08)))
        )
        places.append(len(tokens))
        tokens += [token] * count
        mask += [False] * count
    return tokens, mask, places


@given(CONVERSATIONS)
def test_tokens_masks_and_places_are_those_of_a_slow_twin(folder: Path, conversation: Conversation) -> None:
    (found,) = make_chat(folder).tokenized([conversation], Sizes())
    tokens, mask, places = slow_tokens(folder, conversation)
    assert found.tokens.tolist() == tokens
    assert found.loss_mask.tolist() == mask
    assert found.positions == places
    assert found.kinds == [part.kind for part in conversation.media()]


@given(st.lists(CONVERSATIONS, max_size=4), st.sampled_from(["marked", "plain"]))
def test_a_length_is_the_number_of_tokens_delivered(folder: Path, talks: list[Conversation], name: str) -> None:
    chat, sizes = make_chat(folder, name), [Sizes()] * len(talks)
    whole, before, last = (chat.counts(talks, turns, sizes).tolist() for turns in TURNS)
    assert whole == [len(found.tokens) for found in chat.tokenized(talks, Sizes())]
    assert [sum(pair) for pair in zip(before, last, strict=True)] == whole


@given(CONVERSATIONS)
def test_prefixes_find_what_the_marks_of_a_template_mark(folder: Path, conversation: Conversation) -> None:
    (marked,), (plain,) = (make_chat(folder, name).tokenized([conversation], Sizes()) for name in ("marked", "plain"))
    assert marked.tokens.tolist() == plain.tokens.tolist()
    assert marked.loss_mask.tolist() == plain.loss_mask.tolist()


def test_placeholders_are_delivered_once_if_the_recipe_says_so(folder: Path) -> None:
    conversation = talk(("user", ("what is said", audio(0.5), image())), ("assistant", "hello"))
    (whole,), (once,) = (
        make_chat(folder, expand_placeholders=expand).tokenized([conversation], Sizes()) for expand in (True, False)
    )
    assert (whole.num_tokens, once.num_tokens) == ([7, 6], [7, 6])
    assert len(whole.tokens) - len(once.tokens) == 6 + 5
    assert once.tokens[once.positions].tolist() == whole.tokens[whole.positions].tolist()
    assert (once.loss_mask.sum(), whole.positions[1] - once.positions[1]) == (whole.loss_mask.sum(), 6)


def test_the_last_turn_is_the_output_and_the_rest_the_input(folder: Path) -> None:
    answered = talk(("user", ("hello", audio(0.4))), ("assistant", "there"))
    for name in ("marked", "plain"):
        chat = make_chat(folder, name)
        before, last = (int(chat.counts([answered], turns, [None])[0]) for turns in ("input", "output"))
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        assert last == len(tokenizer.encode("there<|im_end|>\n", add_special_tokens=False).ids)
        assert before == int(chat.counts([answered], "all", [None])[0]) - last


def test_a_length_that_a_row_does_not_declare_is_unknown_to_a_scan(folder: Path) -> None:
    chat = make_chat(folder)
    declared, other, shown = talk(("user", audio(1.0))), talk(("user", audio())), talk(("user", image()))
    lengths = chat.counts([declared, other, shown], "all", [None] * 3)
    assert lengths[0] == chat.counts([other], "all", [Sizes()])[0]
    assert lengths[1:].tolist() == [UNKNOWN] * 2
    output = talk(("user", audio()), ("assistant", "ok"))
    assert chat.counts([output], "output", [None])[0] < UNKNOWN  # the audio is not in its last turn
    with pytest.raises(DataError, match='conversation "c1": media of the last turn need a length'):
        chat.counts([other], "output", [None])


def test_a_template_may_get_the_parts_of_messages(folder: Path) -> None:
    conversation = talk(("user", ("say", image(), "now", audio(0.16))), ("assistant", "ok"))
    (found,) = make_chat(folder, "parts", content="parts").tokenized([conversation], Sizes())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert found.kinds == ["image", "audio"]
    assert [tokenizer.id_to_token(int(found.tokens[place])) for place in found.positions] == ["<|image|>", "<|audio|>"]
    assert tokenizer.decode(found.tokens.tolist(), skip_special_tokens=False).count("<|audio|>") == 2


def test_texts_between_media_have_the_separator_of_the_recipe(folder: Path) -> None:
    conversation = talk(("user", ("a", audio(0.01), "b")))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for separator in (" ", "", "\n"):
        (found,) = make_chat(folder, separator=separator).tokenized([conversation], Sizes())
        text = tokenizer.decode(found.tokens.tolist(), skip_special_tokens=False)
        assert f"a{separator}<|audio|>{separator}b" in text


def pieces(conversation: Conversation) -> list[tuple[Any, bool]]:
    """A template function: each turn by itself, and a token of its own at the end."""
    told = [(f"{turn.role}: {conversation.text(turn)}\n", turn.role == "assistant") for turn in conversation.turns]
    return [*told, ([1], True)]


def broken(conversation: Conversation) -> Any:
    return ["no pair"] if conversation.id == "c1" else conversation.nothing  # type: ignore[attr-defined]


def test_a_function_gives_pairs_of_texts_or_tokens_and_whether_they_are_trained_on(folder: Path) -> None:
    conversation = talk(("user", ("hello", audio(0.2))), ("assistant", "there"))
    chat = make_chat(folder, function="formats.test_chat:pieces")
    (found,) = chat.tokenized([conversation], Sizes())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    asked, said = ([*tokenizer.encode(text).ids] for text in ("user: hello <|audio|>\n", "assistant: there\n"))
    place = asked.index(tokenizer.token_to_id("<|audio|>"))
    asked[place : place + 1] = [asked[place]] * 3
    assert found.tokens.tolist() == [*asked, *said, 1]
    assert found.loss_mask.tolist() == [False] * len(asked) + [True] * (len(said) + 1)
    assert chat.counts([conversation], "all", [None])[0] == len(found.tokens)


def test_a_function_that_gives_something_else_is_refused_with_the_conversation(folder: Path) -> None:
    chat = make_chat(folder, function="formats.test_chat:broken")
    with pytest.raises(DataError, match=r'(?s)conversation "c1": the template function did not return pairs.*no pair'):
        chat.tokenized([talk(("user", "hi"))], Sizes())
    with pytest.raises(DataError, match=r"conversation \"c2\": the template formats.test_chat:broken failed"):
        chat.tokenized([Conversation("c2", (Turn("user", ("hi",)),))], Sizes())


@pytest.mark.parametrize("text", ["the <|audio|> tag", "<|image|>"])
def test_a_text_that_holds_a_tag_is_refused(folder: Path, text: str) -> None:
    with pytest.raises(DataError, match=r'conversation "c1": a text of the user holds the placeholder'):
        make_chat(folder).tokenized([talk(("user", ("hi", text)))], Sizes())


def test_media_without_a_tag_are_refused(folder: Path) -> None:
    with pytest.raises(DataError, match='conversation "c1": holds media of the kind image, and the'):
        make_chat(folder, image=None).counts([talk(("user", image()))], "all", [None])


def test_a_tag_that_is_no_token_of_the_tokenizer_is_refused(folder: Path) -> None:
    tag = AudioTokens(tag="<audio>", token_equivalent_duration=0.08)
    with pytest.raises(RecipeError, match=r'template.audio.tag: "<audio>" is not one token of the tokenizer'):
        make_chat(folder, audio=tag).counts([talk(("user", "hi"))], "all", [None])


def write(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.jinja").write_text(text)
    return name


def test_a_template_that_rewrites_earlier_turns_is_refused_without_marks(folder: Path) -> None:
    name = write(
        folder, "thoughts", "{% for m in messages %}{{ m.content if loop.last else m.content[:2] }}|{% endfor %}"
    )
    with pytest.raises(
        DataError, match=r"(?s)conversation \"c1\": the template writes earlier turns differently.*generation"
    ):
        make_chat(folder, name).counts([talk(("user", "hi"), ("assistant", "there"), ("user", "ok"))], "all", [None])


def test_a_template_that_leaves_media_out_is_refused(folder: Path) -> None:
    name = write(folder, "first", "{{ messages[0].content }}")
    conversation = talk(("user", "hi"), ("user", audio(1.0)))
    with pytest.raises(DataError, match=r'(?s)"c1": the template does not write one placeholder.*none.*audio'):
        make_chat(folder, name).counts([conversation], "all", [None])


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% include '/etc/hostname' %}",
        "{{ raise_exception('no ' ~ messages[0].role) }}",
        "{{ messages[0].content + 1 }}",
        "{{ lipsum() }}",
    ],
)
def test_templates_reach_nothing_but_messages(folder: Path, text: str) -> None:
    chat = make_chat(folder, write(folder, "reach", text))
    with pytest.raises(DataError, match=r'conversation "c1": the chat template (refuses|failed)'):
        chat.counts([talk(("user", "hi"))], "all", [None])


def test_texts_of_rows_are_not_run_as_templates(folder: Path) -> None:
    conversation = talk(("user", "{{ 7 * 6 }}{% generation %}"), ("assistant", "{% endgeneration %}\x020\x03\x021\x03"))
    (found,) = make_chat(folder).tokenized([conversation], Sizes())
    tokens, mask, _ = slow_tokens(folder, conversation)
    assert (found.tokens.tolist(), found.loss_mask.tolist()) == (tokens, mask)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% for m in messages %}", "is not a chat template"),
        ("{{ bos_token }}{{ messages[0].content }}", "special tokens that have no value"),
        ("{{ strftime_now('%Y') }}", "uses the clock"),
    ],
)
def test_templates_that_cannot_be_used_are_refused_by_the_recipe(folder: Path, text: str, message: str) -> None:
    with pytest.raises(RecipeError, match=rf"template.file: .*{message}"):
        make_chat(folder, write(folder, "unusable", text))


def test_special_tokens_come_from_the_recipe_or_from_a_tokenizer_config(folder: Path) -> None:
    text = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    write(folder, "special", text)
    tokens = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}}
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": text, **tokens, "model_max_length": 9}))
    (folder / "named.json").write_text(json.dumps({"chat_template": [{"name": "default", "template": text}], **tokens}))
    hello = talk(("user", "hello"))
    given = make_chat(folder, "special", variables={"bos_token": "<s>", "eos_token": "</s>"})
    (expected,) = given.tokenized([hello], Sizes())
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).id_to_token(int(expected.tokens[0])) == "<s>"
    for name in ("tokenizer_config.json", "named.json"):
        (found,) = make_chat(folder, file=str(folder / name)).tokenized([hello], Sizes())
        assert found.tokens.tolist() == expected.tokens.tolist()
    (folder / "empty.json").write_text("{}")
    with pytest.raises(RecipeError, match="has no `chat_template`"):
        make_chat(folder, file=str(folder / "empty.json"))


def test_what_decides_tokens_is_in_the_content_and_where_files_are_is_not(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.jinja").write_text(MARKED)
    digests = {str(folder / "tokenizer.json"): "t"}
    first = make_chat(folder).spec.content(digests)
    assert make_chat(folder, file=str(tmp_path / "other.jinja")).spec.content(digests) == first
    assert make_chat(folder, "plain").spec.content(digests) != first
    assert make_chat(folder, separator="").spec.content(digests) != first


@pytest.mark.parametrize("how", [{"tokens": 5}, {"patch": 14}, {"function": "formats.test_chat:area"}])
def test_images_have_tokens_by_number_by_patch_or_by_a_function(folder: Path, how: dict[str, Any]) -> None:
    chat = make_chat(folder, image=VisualTokens(tag="<|image|>", **how))
    (found,) = chat.tokenized([talk(("user", image()))], Sizes())
    assert found.num_tokens == [{"tokens": 5, "patch": 2 * 3, "function": 28 * 30 // 100}[next(iter(how))]]


def test_videos_have_tokens_by_number_or_by_a_function_of_their_bytes(folder: Path) -> None:
    video = MediaPart(Media("video", path="a.mp4"))
    for how, expected in (({"tokens": 9}, 9), ({"function": "formats.test_chat:num_bytes"}, 4)):
        chat = make_chat(folder, video=VisualTokens(tag="<|video|>", **how))
        (found,) = chat.tokenized([talk(("user", ("see", video)))], Sizes())
        assert (found.kinds, found.num_tokens) == (["video"], [expected])


def area(width: int, height: int) -> int:
    return width * height // 100


def num_bytes(data: bytes) -> int:
    return len(data)


def test_the_number_of_tokens_of_audio_is_that_of_nemo(folder: Path) -> None:
    chat = make_chat(folder)
    for seconds, expected in ((0.0, 1), (0.01, 1), (0.08, 1), (0.081, 2), (0.56, 8), (1.0, 13), (30.0, 375)):
        (found,) = chat.tokenized([talk(("user", audio(seconds)))], Sizes())
        assert found.num_tokens == [expected], seconds  # ceil(seconds / 0.08), in binary fractions as there
