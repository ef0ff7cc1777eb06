"""Keys of NeMo's loader that have no counterpart in a recipe: those that may be ignored, and those that may not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_WORKERS = "an argument of the Loader, not of the recipe: it does not change the stream"
_BUFFER = "a size of buffers and threads: Playhead shuffles and buckets by its index"
_KIND = "which kind of torch dataset is used: Playhead has one"
_RESUME = "Playhead always resumes exactly"
_WITH_PARENT = "it belongs to an augmentation that is off"
_ORDER = "`seed` alone decides the order"

# Keys that name data. Which of them are read depends on the type of an entry.
DATA_KEYS = (
    "input_cfg",
    "manifest_filepath",
    "tarred_audio_filepaths",
    "tarred_audio_filepath",
    "cuts_path",
    "shar_path",
    "paths",
    "data_dir",
    "source_path",
    "source_paths",
    "target_path",
    "target_paths",
)

IGNORED = {
    "use_lhotse": "Playhead takes the place of Lhotse's sampler",
    "num_workers": _WORKERS,
    "pin_memory": _WORKERS,
    "cuda_expandable_segments": "a setting of torch's allocator, which stays in the training job",
    "shuffle_buffer_size": _BUFFER,
    "bucket_buffer_size": _BUFFER,
    "num_cuts_for_bins_estimate": _BUFFER,
    "concurrent_bucketing": _BUFFER,
    "max_open_streams": "Playhead reads rows where they are, and keeps few files open",
    "shard_seed": _ORDER,
    "slice_length": "shuffles are of single rows, so slices of shards are not needed",
    "force_map_dataset": _KIND,
    "force_iterable_dataset": _KIND,
    "tarred_random_access": "an old name of skip_missing_manifest_entries",
    "use_stateful_dataloader": _RESUME,
    "indexed": "Playhead always reads by an index, which `playhead prepare` builds",
    "index_pack": "`playhead prepare` builds its own index",
    "index_pack_root": "`playhead prepare` builds its own index",
    "index_pack_max_open_files": "`playhead prepare` builds its own index",
    "metadata_only": "a mode of NeMo's tools that estimate bins",
    "drop_last": "the stream has no end, so it has no last batch",
    "lang_field": "samples have all fields of their rows, under their own names",
    "noise_snr": _WITH_PARENT,
    "noise_mix_prob": _WITH_PARENT,
    "concatenate_gap_seconds": _WITH_PARENT,
    "concatenate_duration_factor": _WITH_PARENT,
    "concatenate_merge_supervisions": _WITH_PARENT,
    "db_norm": _WITH_PARENT,
    "truncate_offset_type": _WITH_PARENT,
    "cut_into_windows_hop": _WITH_PARENT,
    "keep_excessive_supervisions": "samples keep the whole text of their row",
    "rir_path": _WITH_PARENT,
    "rir_prob": _WITH_PARENT,
    "pad_direction": _WITH_PARENT,
    "lowpass_frequencies_interval": _WITH_PARENT,
    "lowpass_prob": _WITH_PARENT,
    "compression_prob": _WITH_PARENT,
    "compression_level_interval": _WITH_PARENT,
    "compression_codecs": _WITH_PARENT,
    "compression_codec_weights": _WITH_PARENT,
    "compression_enable_for_custom_fields": _WITH_PARENT,
    "clipping_gain_db": _WITH_PARENT,
    "clipping_normalize": _WITH_PARENT,
    "clipping_oversampling": _WITH_PARENT,
    "clipping_prob_hard": _WITH_PARENT,
    "clipping_prob": _WITH_PARENT,
    "speaker_filter_fields": _WITH_PARENT,
    "sampler_weights": "weights apply to `sampler_fusion: randomized_round_robin` only",
    "prompt_format": "sub-configs have prompt formats of their own",
    "num_hours": "a remark on the data",
    "language": "a remark on the data; give it as a tag to have it in samples",
    "labels": "a setting of the model's dataset class",
    "is_tarred": "whether data is tarred follows from its paths",
    "augmentor": "Lhotse's loader does not read it either",
    "trim_silence": "Lhotse's loader does not read it either",
    "normalize_transcripts": "Lhotse's loader does not read it either",
    "shuffle_n": "a setting of NeMo's older loader",
    "bucketing_strategy": "a setting of NeMo's older loader",
    "bucketing_batch_size": "a setting of NeMo's older loader",
    "return_sample_id": "samples have ids",
}


@dataclass(frozen=True)
class Refused:
    """Why a key cannot be mapped, and the values at which it has no effect."""

    why: str
    unless: tuple[Any, ...] = (False,)


_AUDIO = "Playhead has no such augmentation: do it in your map, or write the audio beforehand"

REFUSED = {
    "concatenate_samples": Refused("utterances are not joined: join them beforehand"),
    "cut_into_windows_duration": Refused("a row is one sample: cut recordings beforehand (`playhead curate`)"),
    "cut_text_into_windows_tokens": Refused("a row is one sample: cut texts beforehand"),
    "rir_enabled": Refused(_AUDIO),
    "lowpass_enabled": Refused(_AUDIO),
    "compression_enabled": Refused(_AUDIO),
    "clipping_enabled": Refused(_AUDIO),
    "random_padding": Refused(_AUDIO),
    "max_cer": Refused(
        "it filters by a field of supervisions: write such rows to a list for `drop_ids`", (float("inf"),)
    ),
    "min_context_speaker_similarity": Refused(
        "it filters by a field of supervisions: write such rows to a list for `drop_ids`", (-1,)
    ),
    "excluded_speaker_ids": Refused("write the rows of these speakers to a list for `drop_ids`", ()),
    "keep": Refused("it filters by the validation status: write `keep` in the recipe", ("pass",)),
    "preference_sampling": Refused("instructions are not drawn: write the conversations beforehand", ()),
    "questions_path": Refused("`text_pair` has two files: put the question into a tag, or into the source file", ()),
    "questions_language": Refused("`text_pair` has two files", ()),
}

# Where a setting is in the recipe, if it means the same there and nothing else is to be said about it.
DESTINATIONS = {
    "audio_locator_tag": "template.audio.tag",
    "batch_duration": "batching.budget",
    "batch_tokens": "batching.budget",
    "batch_size": "batching.size",
    "channel_selector": "audio.channels",
    "measure_total_length": "length of text and conversations",
    "input_cfg": "sources",
    "manifest_filepath": "sources",
    "noise_mix_prob": "augment: probability",
    "noise_snr": "augment: snr",
    "num_buckets": "batching",
    "pretokenize": "length and output_length",
    "quadratic_duration": "batching.quadratic",
    "quadratic_factor": "batching.quadratic",
    "sampler_weights": "fuse",
    "skip_missing_manifest_entries": "options.skip_missing",
    "tarred_random_access": "options.skip_missing",
    "shar_path": "sources",
    "shuffle": "shuffle",
    "tarred_audio_filepaths": "sources",
    "text_field": "the field of that name",
    "token_equivalent_duration": "lengths and template.audio",
    "use_bucketing": "batching",
    "use_multimodal_dataloading": "lengths in tokens",
    "use_multimodal_sampling": "lengths in tokens",
}
