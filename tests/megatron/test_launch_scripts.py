"""Whole argument lists of well-known kinds of jobs, pasted: nothing in them is refused, and what matters is taken.

The lists are put together from groups of flags; the values of those that do not matter are arbitrary.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from playhead.errors import RecipeError
from playhead.megatron.arguments import read_request
from playhead.megatron.releases import REFUSED, RELEASES, TAKEN, flags_of

LAUNCHER = "--nnodes 2 --nproc_per_node 4 --node_rank 1 --master_addr host --master_port 1 --rdzv-id 7 --max-restarts 0"
NETWORK = """
    --num-layers 4 --hidden-size 64 --num-attention-heads 8 --max-position-embeddings 9000 --ffn-hidden-size 96
    --kv-channels 8 --attention-dropout 0 --hidden-dropout 0 --init-method-std 0.1 --make-vocab-size-divisible-by 64
    --attention-backend flash --transformer-impl transformer_engine --use-mcore-models
"""
MODERN = """
    --swiglu --normalization RMSNorm --norm-epsilon 1e-6 --disable-bias-linear --group-query-attention
    --num-query-groups 2 --position-embedding-type rope --rotary-base 7000 --rotary-percent 0.5 --no-rope-fusion
    --use-rope-scaling --rope-scaling-factor 4 --untie-embeddings-and-output-weights --qk-layernorm
    --no-position-embedding --apply-layernorm-1p
"""
OPTIMIZER = """
    --optimizer adam --lr 1e-3 --min-lr 1e-5 --lr-decay-style WSD --lr-wsd-decay-style cosine --lr-warmup-init 1e-7
    --lr-warmup-fraction 0.02 --weight-decay 0.2 --clip-grad 0.5 --adam-beta1 0.8 --adam-beta2 0.9 --adam-eps 1e-9
    --decoupled-lr 1e-4 --decoupled-min-lr 1e-6 --use-distributed-optimizer --overlap-grad-reduce
    --overlap-param-gather --use-precision-aware-optimizer --exp-avg-dtype bf16 --main-params-dtype fp16
    --optimizer-cpu-offload --optimizer-offload-fraction 0.3
"""
LOGGING = """
    --log-interval 7 --log-throughput --log-params-norm --log-num-zeros-in-grad --log-timers-to-tensorboard
    --log-validation-ppl-to-tensorboard --tensorboard-dir tb --wandb-project w --wandb-exp-name x --logging-level 30
    --timing-log-level 1 --profile --profile-step-start 3 --profile-step-end 5 --log-straggler
    --disable-straggler-on-startup --one-logger-project o --app-tag-run-name r
"""
CHECKPOINT = """
    --save s --load s --save-interval 9 --save-retain-interval 90 --ckpt-format torch_dist --async-save
    --dist-ckpt-strictness log_all --auto-detect-ckpt-format --no-load-optim --no-load-rng --finetune
    --ckpt-assume-constant-structure --exit-duration-in-mins 5 --exit-signal-handler
"""
RUNNING = """
    --sequence-parallel --num-layers-per-virtual-pipeline-stage 1 --distributed-timeout-minutes 8 --manual-gc
    --manual-gc-interval 4 --empty-unused-memory-level 2 --no-check-for-nan-in-loss-and-grad --num-workers 3
    --no-mmap-bin-files --no-create-attention-mask-in-dataloader --distributed-backend nccl --tp-comm-overlap
    --ddp-num-buckets 4 --num-dataset-builder-threads 2 --te-rng-tracker --cuda-graph-scope attn
"""
HALF = """
    --fp16 --initial-loss-scale 1024 --loss-scale-window 50 --hysteresis 3 --attention-softmax-in-fp32
    --accumulate-allreduce-grads-in-fp32 --no-bias-gelu-fusion --no-bias-dropout-fusion --no-masked-softmax-fusion
    --no-gradient-accumulation-fusion --recompute-granularity full --recompute-method block --recompute-num-layers 2
    --distribute-saved-activations
"""
FP8 = """
    --bf16 --fp8-format e4m3 --fp8-recipe delayed --fp8-amax-history-len 16 --fp8-amax-compute-algo max
    --fp8-param-gather --first-last-layers-bf16 --num-layers-at-start-in-bf16 2 --grad-reduce-in-bf16
    --cross-entropy-loss-fusion --calculate-per-token-loss
"""
EXPERTS = """
    --num-experts 16 --expert-model-parallel-size 4 --expert-tensor-parallel-size 1 --moe-router-topk 3
    --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.01 --moe-grouped-gemm
    --moe-token-dispatcher-type alltoall --moe-expert-capacity-factor 1.5 --moe-pad-expert-input-to-capacity
    --moe-permute-fusion --moe-ffn-hidden-size 32 --moe-layer-freq [0]*1+[1]*3 --moe-router-dtype fp64
    --moe-shared-expert-intermediate-size 32 --moe-router-num-groups 4 --moe-router-group-topk 2
    --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-router-bias-update-rate 0.01
    --moe-enable-deepep --overlap-moe-expert-parallel-comm --delay-wgrad-compute
"""
LATENT = """
    --multi-latent-attention --q-lora-rank 24 --kv-lora-rank 16 --qk-head-dim 8 --qk-pos-emb-head-dim 4 --v-head-dim 8
    --rotary-scaling-factor 3 --mscale 0.9 --mscale-all-dim 0.9 --mtp-num-layers 1 --mtp-loss-scaling-factor 0.2
    --recompute-modules moe layernorm --pipeline-model-parallel-layout Ett|tL --enable-experimental
"""
HYBRID = """
    --hybrid-override-pattern M*-M --is-hybrid-model --mamba-state-dim 16 --mamba-head-dim 8 --mamba-num-groups 2
    --squared-relu --spec some.module some_spec --position-embedding-type none
"""
EVERY_JOB = (LAUNCHER, NETWORK, OPTIMIZER, LOGGING, CHECKPOINT, RUNNING)
COUNTED = "--seq-length 4096 --data-cache-path cache --micro-batch-size 1 --global-batch-size 64 --split 98,1,1"

DENSE = " ".join((*EVERY_JOB, MODERN, FP8, COUNTED, "--train-samples 64000 --data-path web books --bf16"))
HUGE = " ".join((*EVERY_JOB, HALF, COUNTED, "--train-iters 3000 --data-path web --vocab-file v --merge-file m"))
MIXTURE = " ".join((*EVERY_JOB, MODERN, EXPERTS, COUNTED, "--train-iters 2500 --data-path 0.6 web 0.4 books"))
LATENT_MIXTURE = " ".join((*EVERY_JOB, MODERN, EXPERTS, LATENT, FP8, COUNTED, "--train-samples 192000 --data-path web"))
STATE_SPACE = " ".join((*EVERY_JOB, HYBRID, FP8, COUNTED, "--train-samples 128000 --data-args-path {data}"))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("script", "tokenizer", "train", "points"),
    [
        (DENSE, "--tokenizer-type HuggingFaceTokenizer --tokenizer-model o/m --vocab-size 99", 64_000, 11),
        (HUGE, "", 192_000, 31),
        (MIXTURE, "--tokenizer-type Llama2Tokenizer --tokenizer-model t.model", 160_000, 26),
        (LATENT_MIXTURE, "--tokenizer-type HuggingFaceTokenizer --tokenizer-model o/m", 192_000, 31),
        (STATE_SPACE, "--tokenizer-type TikTokenizer --tokenizer-model v.json --tiktoken-pattern v2", 128_000, 21),
    ],
    ids=["dense", "huge", "experts", "latent attention and experts", "hybrid state space"],
)
def test_a_pasted_launch_script_is_taken_whole(
    tmp_path: Path, script: str, tokenizer: str, train: int, points: int, release: str
) -> None:
    (tmp_path / "data.txt").write_text("0.5 web\n0.5 books\n")
    parallel = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --context-parallel-size 1"
    evaluation = "--eval-interval 100 --eval-iters 5"
    words = f"{script} {tokenizer} {parallel} {evaluation}".replace("{data}", str(tmp_path / "data.txt")).split()
    request = read_request(words, {"megatron_release": release})
    assert request.job.sizes == (train, points * 5 * 64, 5 * 64)
    assert {"--nnodes", "--num-layers", "--lr", "--save"} <= set(request.ignored)


@pytest.mark.parametrize("release", RELEASES)
def test_every_flag_of_a_release_may_be_pasted_at_once(release: str) -> None:
    values = {"0": 0, "1": 1, "3": 3, "*": 2, "+": 2}
    table = flags_of(release).takes
    others = [name for name in table if name not in TAKEN and name not in REFUSED]
    words = [word for name in others for word in (f"--{name}", *["1"] * values[table[name]])]
    request = read_request(
        [*words, *COUNTED.split(), "--data-path=web", "--train-iters=9", "--eval-interval=3"],
        {"megatron_release": release},
    )
    assert set(request.ignored) == {f"--{name}" for name in others}
    assert len(others) > 500


@pytest.mark.parametrize(
    "flag",
    ["--varlen-mock-dataset-config-json", "--sequence-packing-scheduler", "--data-sampler", "--seq-length-schedule"],
)
def test_a_flag_about_data_that_is_not_known_is_refused_in_the_midst_of_them(flag: str) -> None:
    with pytest.raises(RecipeError, match=f"{flag}: unknown in release"):
        read_request([*DENSE.split(), flag, "x"])
