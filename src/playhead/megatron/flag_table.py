"""The flags of Megatron's training jobs, by what they do to a dataset cache. Names without the leading dashes.

A flag in none of these is refused: it might matter. A negation (`no-`, `disable-`) of a harmless flag is harmless too.
"""

from __future__ import annotations

# How many words follow a flag that matters: none, one, or any number.
SWITCH, ONE, MANY = "none", "one", "any number"

USED = {
    "data-path": MANY,
    "data-args-path": ONE,
    "split": ONE,
    "train-data-path": MANY,
    "valid-data-path": MANY,
    "test-data-path": MANY,
    "per-split-data-args-path": ONE,
    "data-cache-path": ONE,
    "seq-length": ONE,
    "seed": ONE,
    "train-samples": ONE,
    "train-iters": ONE,
    "global-batch-size": ONE,
    "micro-batch-size": ONE,
    "rampup-batch-size": MANY,
    "decrease-batch-size-if-needed": SWITCH,
    "eval-interval": ONE,
    "eval-iters": ONE,
    "full-validation": SWITCH,
    "multiple-validation-sets": SWITCH,
    "skip-train": SWITCH,
    "start-eval-at-iter": ONE,
    "eval-global-batch-size": ONE,
    "phase-transition-iterations": ONE,
    "mid-level-dataset-surplus": ONE,
    "prepare-cache-world-size": ONE,
    "prepare-cache-start-iteration": ONE,
    "tensor-model-parallel-size": ONE,
    "pipeline-model-parallel-size": ONE,
    "context-parallel-size": ONE,
    "tokenizer-type": ONE,
    "tokenizer-model": ONE,
    "tokenizer-metadata": ONE,
    "legacy-tokenizer": SWITCH,
    "vocab-file": ONE,
    "merge-file": ONE,
    "vocab-size": ONE,
    "tokenizer-special-tokens": MANY,
    "tiktoken-special-tokens": MANY,
    "tiktoken-pattern": ONE,
    "tiktoken-num-special-tokens": ONE,
    "tokenizer-hf-no-use-fast": SWITCH,
    "tokenizer-hf-no-include-special-tokens": SWITCH,
    "tokenizer-sentencepiece-legacy": SWITCH,
    "no-tokenizer-sentencepiece-ignore-extra-whitespaces": SWITCH,
    "null-tokenizer-eod-id": ONE,
    "null-tokenizer-pad-id": ONE,
    "trust-remote-code": SWITCH,
    "chat-template": ONE,
    "dataloader-fast-cache-load": SWITCH,
    "dataloader-defer-npy-index-mmap": SWITCH,
    "per-dataset-sequences-path": ONE,
}

REFUSED = {
    "mock-data": "mock data needs no cache",
    "sft": "fine-tuning data is packed in another way",
    "fim-data": "fill-in-the-middle data makes another cache",
    "step-batch-size-schedule": "a schedule of batch sizes changes the counts in ways of its own",
    "yaml-cfg": "the arguments would be in that file",
    "retro-project-dir": "a Retro project overrides the data arguments",
    "perform-rl-step": "reinforcement learning draws its own samples",
    "encoder-seq-length": "it would stand in for --seq-length",
    "use-checkpoint-args": "the arguments would be in the checkpoint",
    "use-mp-args-from-checkpoint-args": "the parallel sizes would be in the checkpoint",
    "batch-size": "Megatron no longer takes it; use --micro-batch-size",
    "model-parallel-size": "Megatron no longer takes it; use --tensor-model-parallel-size",
}

# Beginnings of names.
_FAMILIES = """
adam- adaptive-muon adlr- app-tag- attention- async- bert- biencoder- calc-ft- check-for- ckpt- cp-comm-
cpu-offloading- cross-entropy- cuda-graph- ddp- decoder- decoupled- dino- dist-ckpt- distrib- distributed- dsa-
embedding- error-injection- exit- exp-avg- expert- fine-grained- fp16 fp32 fp4 fp8 fsdp- grpo- heterogeneous-
hierarchical- hybrid- ict- indexer- inference- init- initial- inprocess- keep-fp8- kitchen- langrl- linear- lion- load
log- logging- loss- lr lr- main- mamba- manual-gc masked- max-tokens- memory- mhc- min- mla- moe- mscale mtp-
multi-latent- muon- mup- nccl- non-persistent- norm- num-experts num-layers num-query- one-logger optimizer- overlap-
override-opt pipeline-model-parallel- position- profile pytorch-profiler qk- quant record- recompute- rerun-
replication result- retriever- rl- rdzv- rope- rotary- save sgd- sharp- soap- spec straggler- swin- te- tensorboard
timing- torch- tp-comm- train-sync- transformer- use-cpu- use-dist use-flash use-fused use-legacy- use-mcore
use-megatron-fsdp use-nccl use-persistent use-precision use-pytorch use-ring use-rope use-rotary use-sharp use-te
use-torch use-tp-pp use-checkpoint-opt use-gloo use-kitchen use-mamba use-mup use-custom-fsdp use-distributed virtual-
vision- wandb- weight-decay window- wgrad-
"""

_NAMES = """
account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split accumulate-allreduce-grads-in-fp32
activation-func-clamp-value add-bias-linear add-position-embedding add-qkv-bias align-grad-reduce align-param-gather
allow-ambiguous-pad-tokens apply-layernorm-1p apply-query-key-layer-scaling apply-residual-connection-post-layernorm
auto-detect-ckpt-format barrier-with-level-1-timing batch-invariant-mode bf16 bf16-reduced-precision-matmul
bias-dropout-fusion bias-gelu-fusion bias-linear bias-swiglu-fusion cache-mla-latents calculate-per-token-loss
check-weight-hash-across-dp-replicas-interval clip-grad clone-scatter-output-in-embedding config-logger-dir
create-attention-mask-in-dataloader data-parallel-random-init data-parallel-sharding-strategy data-sharding
dataloader-type defer-embedding-wgrad-compute delay-grad-reduce delay-wgrad-compute deterministic-mode
distribute-saved-activations dump-param-to-param-group-map dynamic-context-parallel empty-unused-memory-level
enable-cuda-graph enable-experimental enable-ft-package enable-full-sharding-in-hsdp enable-gloo-process-groups
enable-msc enable-one-logger encoder-num-layers end-weight-decay eod-mask-loss eval-micro-batch-size
experimental-attention-variant export-force-local-attention export-te-mcore-model external-cuda-graph ffn-hidden-size
filter-warnings finetune first-last-layers-bf16 flash-decode gloo-process-groups glu-linear-offset
gpu-sniff-test-interval grad-reduce-in-bf16 gradient-accumulation-fusion gradient-reduce-div-fusion
group-query-attention hidden-dropout hidden-size high-priority-stream-groups hysteresis initialization is-hybrid-model
iterations-to-skip kv-channels kv-lora-rank layernorm-epsilon lazy-mpu-init local-rank make-vocab-size-divisible-by
master-addr master-port max-position-embeddings max-restarts microbatch-group-size-per-virtual-pipeline-stage
mlp-chunks-for-prefill mmap-bin-files modules-to-filter most-recent-k mrope-section msc nnodes no-load-optim
no-load-rng no-save-optim no-save-rng no-weight-decay-cond-type node-rank normalization nproc-per-node
num-attention-heads num-channels num-dataset-builder-threads num-distributed-optimizer-instances
num-virtual-stages-per-pipeline-rank num-workers nvtx-ranges object-storage-cache-path offload-modules onnx-safe
openai-gelu optimizer original-max-position-embeddings output-bert-embeddings pad-vocab-size padded-vocab-size
perform-initialization persist-layer-norm persistent-save-interval pin-cpu-grads pin-cpu-params pretrained-checkpoint
q-lora-rank query-key-layer-scaling quick-geglu relative-attention-max-distance relative-attention-num-buckets
reset-attention-mask reset-position-ids reuse-grad-buf-for-mxfp8-param-ag run-workload-inspector-server
runtime-time-unit sample-rate scatter-gather-tensors-in-pipeline sequence-parallel set-level-for-all-loggers
sft-tokenizer-prompt-format softmax-type squared-relu standalone-embedding-stage start-weight-decay
stochastic-rounding straggler-on-startup strict-fsdp-dtensor-load suggested-communication-unit-size swiglu
symmetric-ar-type symmetric-registration test-mode throughput-window-size tp-only-amax-red
untie-embeddings-and-output-weights use-one-sent-docs use-tokenizer-model-from-checkpoint-args v-head-dim
validation-set-names verify-integrity vocab-extra-ids
"""

HARMLESS_FAMILIES = tuple(_FAMILIES.split())
HARMLESS = frozenset(_NAMES.split())


def is_harmless(name: str) -> bool:
    if name in HARMLESS or any(name.startswith(family) for family in HARMLESS_FAMILIES):
        return True
    for negation in ("no-", "disable-"):
        if name.startswith(negation):
            positive = name[len(negation) :]
            return positive not in USED and positive not in REFUSED and is_harmless(positive)
    return False
