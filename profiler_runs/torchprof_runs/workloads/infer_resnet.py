"""Classify images with a ResNet-18 in bf16, one batch a step.

    torchprof-tui run infer_resnet                  torchprof-tui run infer_resnet --batch 1

What to expect in the trace:

- The table groups the step by op: aten::cudnn_convolution first, then batch norm, ReLU and the additions.
- ``--batch 1``: the same number of kernels, each of which works for a few microseconds. The CPU needs longer to launch
  them than the GPU to run them.
- ``--keep-features``: the output of each block is copied to the CPU (``.cpu()``), and each copy waits for the GPU.
- ``--empty-cache``: what the step has freed goes back to the driver (``torch.cuda.empty_cache()``), so that each step
  calls cudaMalloc and cudaFree again.
"""

# mypy: allow-subclassing-any, allow-untyped-calls

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.profiler import record_function

WIDTHS = (64, 128, 256, 512)
CLASSES = 1000


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a 1x1 convolution where the size changes."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.convolution1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.convolution2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.convolution1(x)))
        result: torch.Tensor = F.relu(self.norm2(self.convolution2(y)) + self.shortcut(x))
        return result


class ResNet(nn.Module):
    """Sixteen convolutions in eight blocks of four widths, between a stem and a linear layer."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, WIDTHS[0], 7, 2, padding=3, bias=False),
            nn.BatchNorm2d(WIDTHS[0]),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, padding=1),
        )
        self.blocks = nn.ModuleList()
        channels_in = WIDTHS[0]
        for width in WIDTHS:
            for index in range(blocks):
                self.blocks.append(Block(channels_in, width, 2 if index == 0 and width > WIDTHS[0] else 1))
                channels_in = width
        self.classify = nn.Linear(WIDTHS[-1], CLASSES)

    def forward(self, images: torch.Tensor, features: list[torch.Tensor] | None = None) -> torch.Tensor:
        """Return the scores, [batch, classes]; append the output of each block to `features`, on the CPU."""
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
            if features is not None:
                features.append(x.cpu())
        scores: torch.Tensor = self.classify(x.mean((2, 3)))
        return scores


def step(model: ResNet, images: torch.Tensor, keep_features: bool, empty_cache: bool) -> torch.Tensor:
    """Run one step, which is what the profiler counts: the best class of each image, int64[batch]."""
    features: list[torch.Tensor] | None = [] if keep_features else None
    with record_function("classify"), torch.inference_mode():
        classes: torch.Tensor = model(images, features).argmax(1)
    if empty_cache:
        torch.cuda.empty_cache()
    return classes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64, help="images in a step (default 64)")
    parser.add_argument("--edge", type=int, default=224, help="pixels, the side of an image (default 224)")
    parser.add_argument("--blocks", type=int, default=2, help="of each of the four widths (default 2: ResNet-18)")
    parser.add_argument("--keep-features", action="store_true", help="copy the output of each block to the CPU")
    parser.add_argument("--empty-cache", action="store_true", help="return free memory to the driver after each step")
    parser.add_argument("--warmup", type=int, default=5, help="calls before the first step")
    parser.add_argument("--active", type=int, default=3, help="steps to record, after two other steps")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.empty_cache and args.device == "cpu":
        parser.error("--empty-cache: only the GPU's memory is cached")

    dtype = getattr(torch, args.dtype)
    model = ResNet(args.blocks).to(args.device, dtype).eval()
    model.to(memory_format=torch.channels_last)
    images = torch.randn(args.batch, 3, args.edge, args.edge).to(args.device, dtype, memory_format=torch.channels_last)
    for _ in range(args.warmup):
        step(model, images, args.keep_features, args.empty_cache)
    start = time.perf_counter()
    for _ in range(2 + args.active):
        classes = step(model, images, args.keep_features, args.empty_cache)
    classes.cpu()
    seconds = (time.perf_counter() - start) / (2 + args.active)
    print(f"infer_resnet, {args.batch} images on {args.device}: {seconds * 1e3:.2f} ms a step")


if __name__ == "__main__":
    main()
