"""The programs of `record_what_if.py`: models with random weights, and pairs of one step with and without a change.

Needs a GPU, torch, torchvision and transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset

Step = Callable[[], object]
Variants = dict[str, Step]
"""Steps by the name of the variant: `a` and `a2` before the change, `b` after it."""


class NoisyImages(Dataset[torch.Tensor]):
    """Images that take `work` passes of NumPy each to make."""

    def __init__(self, work: int) -> None:
        self.work = work

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        image = np.random.default_rng(index).standard_normal((3, 224, 224), dtype=np.float32)
        for _ in range(self.work):
            image = np.clip(image * 1.01 + 0.01, -3, 3)
        return torch.from_numpy(image)


def make_resnet(dtype: torch.dtype = torch.float32) -> nn.Module:
    return torchvision.models.resnet50().cuda().to(dtype=dtype, memory_format=torch.channels_last)


def make_vit(dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    return torchvision.models.vit_b_16().cuda().to(dtype)


def make_convnext(dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    return torchvision.models.convnext_tiny().cuda().to(dtype)


def make_swin(dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    return torchvision.models.swin_t().cuda().to(dtype)


def make_efficientnet(dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    return torchvision.models.efficientnet_b0().cuda().to(dtype)


def make_llama(dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=10, num_attention_heads=16, use_cache=False
    )
    return LlamaForCausalLM(config).cuda().to(dtype)


def make_gpt2(dtype: torch.dtype = torch.bfloat16, layers: int = 12) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=layers, use_cache=False)).cuda().to(dtype)


def make_bert(dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()).cuda().to(dtype).eval()


def make_images(count: int, dtype: torch.dtype) -> torch.Tensor:
    images = torch.randn(count, 3, 224, 224, device="cuda", dtype=dtype)
    return images.contiguous(memory_format=torch.channels_last)


def make_tokens(rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, 30000, (rows, length), device="cuda")


def lose_images(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Compute the loss of a batch of images, all of class 1."""
    scores: torch.Tensor = model(images)
    return nn.functional.cross_entropy(scores.float(), torch.ones(len(images), device="cuda", dtype=torch.long))


def lose_tokens(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Compute the loss of a batch of tokens that are to be repeated."""
    loss: torch.Tensor = model(input_ids=tokens, labels=tokens).loss
    return loss


def train(model: nn.Module, optimizer: torch.optim.Optimizer, compute_loss: Step) -> Step:
    """Return a training step."""

    def step() -> object:
        optimizer.zero_grad()
        loss: Any = compute_loss()
        loss.backward()
        optimizer.step()
        return loss

    return step


def infer(model: nn.Module, batch: torch.Tensor) -> Step:
    """Return a step of inference."""

    def step() -> object:
        with torch.no_grad():
            return model(batch)

    return step


def train_images(model: nn.Module, images: torch.Tensor, called: nn.Module | None = None) -> Step:
    """Return a training step with fused SGD; `called`: what is called in place of the model, as compiled."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True)
    used = model if called is None else called  # a compiled module has no truth value where its model has no length
    return train(model, optimizer, lambda: lose_images(used, images))


def train_tokens(model: nn.Module, tokens: torch.Tensor, called: nn.Module | None = None) -> Step:
    """Return a training step with fused AdamW; `called`: what is called in place of the model, as compiled."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    used = model if called is None else called  # a compiled module has no truth value where its model has no length
    return train(model, optimizer, lambda: lose_tokens(used, tokens))


def capture(step: Step) -> Step:
    """Capture a step as a CUDA graph, and return its replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def item_resnet() -> Variants:
    step = train_images(make_resnet(torch.bfloat16), make_images(16, torch.bfloat16))
    return {"a": lambda: step().item(), "b": step}  # type: ignore[attr-defined]


def item_gpt2_large() -> Variants:
    step = train_tokens(make_gpt2(), make_tokens(16, 1024))
    return {"a": lambda: step().item(), "b": step}  # type: ignore[attr-defined]


def item_blocks_vit() -> Variants:
    """After each block the largest value is read on the CPU, or only computed."""
    model, images = make_vit(), make_images(16, torch.bfloat16)
    reads = [True]

    def watch(_module: object, _inputs: object, output: torch.Tensor) -> None:
        largest = output.detach().abs().max()
        if reads[0]:
            largest.item()

    for block in model.encoder.layers:  # type: ignore[union-attr]
        block.register_forward_hook(watch)
    step = train_images(model, images)

    def with_reads(value: bool) -> Step:
        def run() -> object:
            reads[0] = value
            return step()

        return run

    return {"a": with_reads(True), "b": with_reads(False)}


def clip_gpt2() -> Variants:
    """The norm of the gradients is checked on the CPU before they are clipped, or not."""
    model, tokens = make_gpt2(), make_tokens(4, 512)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def make(checks: bool) -> Step:
        def run() -> object:
            optimizer.zero_grad()
            lose_tokens(model, tokens).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=checks)
            optimizer.step()
            return None

        return run

    return {"a": make(True), "b": make(False)}


def _load(work: int, batch: int) -> Variants:
    model = make_resnet(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True)

    def make(workers: int) -> Step:
        loader = DataLoader(
            NoisyImages(work), batch, num_workers=workers, pin_memory=True, persistent_workers=workers > 0
        )
        batches: Iterator[torch.Tensor] = iter(loader)

        def compute_loss() -> torch.Tensor:
            images = next(batches).cuda(non_blocking=True).bfloat16()
            return lose_images(model, images.contiguous(memory_format=torch.channels_last))

        return train(model, optimizer, compute_loss)

    return {"a": make(0), "b": make(4)}


def workers_resnet() -> Variants:
    return _load(2, 16)


def workers_resnet_short() -> Variants:
    return _load(1, 4)


def graph_resnet_infer() -> Variants:
    step = infer(make_resnet(torch.bfloat16).eval(), make_images(1, torch.bfloat16))
    return {"a": step, "b": capture(step)}


def graph_bert_infer() -> Variants:
    step = infer(make_bert(), make_tokens(1, 128))
    return {"a": step, "b": capture(step)}


def _graph_training(model: nn.Module, count: int) -> Variants:
    images = make_images(count, torch.bfloat16)
    target = torch.ones(count, device="cuda", dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True)
    step = train(model, optimizer, lambda: nn.functional.cross_entropy(model(images).float(), target))
    return {"a": step, "b": capture(step)}


def graph_vit_train() -> Variants:
    return _graph_training(make_vit(), 4)


def _graph_infer(model: nn.Module, count: int) -> Variants:
    step = infer(model.eval(), make_images(count, torch.bfloat16))
    return {"a": step, "b": capture(step)}


def graph_convnext_infer() -> Variants:
    return _graph_infer(make_convnext(), 2)


def graph_swin_infer() -> Variants:
    return _graph_infer(make_swin(), 2)


def graph_efficientnet_train() -> Variants:
    return _graph_training(make_efficientnet(), 16)


def _compile_training(model: nn.Module, count: int) -> Variants:
    images = make_images(count, torch.bfloat16)
    return {"a": train_images(model, images), "b": train_images(model, images, torch.compile(model))}


def compile_swin() -> Variants:
    return _compile_training(make_swin(), 16)


def compile_efficientnet() -> Variants:
    return _compile_training(make_efficientnet(), 32)


def compile_mobilenet_infer() -> Variants:
    model = torchvision.models.mobilenet_v3_large().cuda().to(torch.bfloat16).eval()
    images = make_images(4, torch.bfloat16)
    return {"a": infer(model, images), "b": infer(torch.compile(model), images)}


def compile_transformers_llama() -> Variants:
    model, tokens = make_llama(), make_tokens(4, 1024)
    return {"a": train_tokens(model, tokens), "b": train_tokens(model, tokens, torch.compile(model))}


def compile_bert_train() -> Variants:
    from transformers import BertConfig, BertForMaskedLM

    model, tokens = BertForMaskedLM(BertConfig()).cuda().bfloat16(), make_tokens(8, 256)
    return {"a": train_tokens(model, tokens), "b": train_tokens(model, tokens, torch.compile(model))}


def compile_t5() -> Variants:
    from transformers import T5Config, T5ForConditionalGeneration

    model, tokens = (
        T5ForConditionalGeneration(T5Config(decoder_start_token_id=0)).cuda().bfloat16(),
        make_tokens(8, 256),
    )
    return {"a": train_tokens(model, tokens), "b": train_tokens(model, tokens, torch.compile(model))}


def compile_qwen_infer() -> Variants:
    from transformers import Qwen3Config, Qwen3Model

    config = Qwen3Config(
        hidden_size=1024, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=8,
        use_cache=False,
    )  # fmt: skip
    model, tokens = Qwen3Model(config).cuda().bfloat16().eval(), make_tokens(1, 512)
    return {"a": infer(model, tokens), "b": infer(torch.compile(model), tokens)}


def compile_regnet() -> Variants:
    return _compile_training(torchvision.models.regnet_y_400mf().cuda().bfloat16(), 16)


def compile_densenet_infer() -> Variants:
    model, images = torchvision.models.densenet121().cuda().bfloat16().eval(), make_images(4, torch.bfloat16)
    return {"a": infer(model, images), "b": infer(torch.compile(model), images)}


def compile_resnet() -> Variants:
    return _compile_training(make_resnet(torch.bfloat16), 32)


def compile_vit() -> Variants:
    return _compile_training(make_vit(), 16)


def compile_convnext_infer() -> Variants:
    model, images = make_convnext().eval(), make_images(8, torch.bfloat16)
    return {"a": infer(model, images), "b": infer(torch.compile(model), images)}


def compile_bert_infer() -> Variants:
    model, tokens = make_bert(), make_tokens(4, 256)
    return {"a": infer(model, tokens), "b": infer(torch.compile(model), tokens)}


def compile_gpt2() -> Variants:
    model, tokens = make_gpt2(), make_tokens(8, 1024)
    return {"a": train_tokens(model, tokens), "b": train_tokens(model, tokens, torch.compile(model))}


def _optimize(model: nn.Module, compute_loss: Step) -> Variants:
    def make(**options: bool) -> Step:
        return train(model, torch.optim.AdamW(model.parameters(), lr=1e-5, **options), compute_loss)

    return {"a": make(foreach=False), "a2": make(foreach=True), "b": make(fused=True)}


def adam_resnet() -> Variants:
    model, images = make_resnet(), make_images(8, torch.float32)
    return _optimize(model, lambda: lose_images(model, images))


def adam_gpt2() -> Variants:
    model, tokens = make_gpt2(torch.float32), make_tokens(4, 512)
    return _optimize(model, lambda: lose_tokens(model, tokens))


def bf16_resnet() -> Variants:
    return {
        "a": train_images(make_resnet(), make_images(64, torch.float32)),
        "b": train_images(make_resnet(torch.bfloat16), make_images(64, torch.bfloat16)),
    }


def bf16_gpt2() -> Variants:
    tokens = make_tokens(8, 1024)
    return {
        "a": train_tokens(make_gpt2(torch.float32), tokens),
        "b": train_tokens(make_gpt2(), tokens),
    }


def bf16_bert_infer() -> Variants:
    tokens = make_tokens(32, 256)
    return {"a": infer(make_bert(torch.float32), tokens), "b": infer(make_bert(), tokens)}


PAIRS = (
    graph_resnet_infer, graph_bert_infer, graph_vit_train, item_resnet, item_blocks_vit, item_gpt2_large, clip_gpt2,
    workers_resnet, workers_resnet_short, adam_resnet, adam_gpt2, bf16_resnet, bf16_gpt2, bf16_bert_infer,
    graph_convnext_infer, graph_swin_infer, graph_efficientnet_train,
    compile_mobilenet_infer, compile_swin, compile_transformers_llama, compile_efficientnet,
    compile_bert_train, compile_t5, compile_qwen_infer, compile_regnet, compile_densenet_infer,
    compile_bert_infer, compile_vit, compile_convnext_infer, compile_gpt2, compile_resnet,
)  # fmt: skip
