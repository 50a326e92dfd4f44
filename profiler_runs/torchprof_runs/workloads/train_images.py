"""Training a small CNN on images that take longer to decode than to train on; runs without a GPU.

    torchprof-tui run train_images                  torchprof-tui run train_images --workers 4

What to expect in the trace:

- Each step: enumerate(DataLoader)…__next__, then forward, backward and Optimizer.step#SGD.step.
- Most of a step is the DataLoader's: the data set decodes, resizes, blurs and normalizes one image after the other in
  the training process, so the model waits for its batch. The ops below ``__next__`` are those of the transform.
- ``--workers 4`` loads the next batches in other processes, which run beside the training step;
  ``--prefetch 4``: so many batches ahead in each.
- ``--edge 64``: a smaller source image, and the same loop spends its time in the model.
"""

# mypy: allow-subclassing-any, allow-untyped-calls

from __future__ import annotations

import argparse
import time
import zlib
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

CLASSES = 10
MODEL_EDGE = 32  # pixels, the side of the images that the model takes
BLUR_TAPS = 9


class ImageDataset(Dataset[tuple[torch.Tensor, int]]):
    """Compressed random images of `edge` x `edge` pixels, decoded and transformed when they are asked for."""

    def __init__(self, count: int, edge: int) -> None:
        self.count, self.edge = count, edge
        # Coarse blocks, so that the image compresses as a photo does.
        blocks = torch.randint(256, (3, edge // 8, edge // 8), dtype=torch.uint8)
        image = blocks.repeat_interleave(8, 1).repeat_interleave(8, 2)
        self.encoded = zlib.compress(bytes(image.flatten().tolist()))
        self.blur = torch.full((3, 1, BLUR_TAPS, BLUR_TAPS), 1 / BLUR_TAPS**2)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = torch.frombuffer(bytearray(zlib.decompress(self.encoded)), dtype=torch.uint8)
        image = pixels.view(1, 3, self.edge // 8 * 8, self.edge // 8 * 8).float() / 255
        image = F.conv2d(image, self.blur, padding=BLUR_TAPS // 2, groups=3)
        image = F.interpolate(image, size=(MODEL_EDGE, MODEL_EDGE), mode="bilinear", antialias=True)
        return ((image - image.mean()) / (image.std() + 1e-6)).squeeze(0), index % CLASSES


def create_model(width: int) -> nn.Sequential:
    """Create a CNN of two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * width * (MODEL_EDGE // 4) ** 2, CLASSES),
    )


def step(
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: str,
) -> None:
    """Run one step, which is what the profiler counts."""
    images, labels = (tensor.to(device) for tensor in next(batches))
    with record_function("forward"):
        loss = F.cross_entropy(model(images), labels)
    with record_function("backward"):
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edge", type=int, default=256, help="pixels, the side of a source image (default 256)")
    parser.add_argument("--width", type=int, default=16, help="channels of the first convolution (default 16)")
    parser.add_argument("--batch", type=int, default=16, help="images in a step (default 16)")
    parser.add_argument(
        "--workers", type=int, default=0, help="processes that load data; 0: the training process loads"
    )
    parser.add_argument("--prefetch", type=int, help="batches that each worker loads ahead (default 2)")
    parser.add_argument("--warmup", type=int, default=2, help="training steps before the recorded ones")
    parser.add_argument("--active", type=int, default=3, help="steps to record, after two other steps")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.prefetch and not args.workers:
        parser.error("--prefetch: only workers load ahead; add --workers")

    model = create_model(args.width).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    steps = args.warmup + 2 + args.active
    data = ImageDataset(steps * args.batch, args.edge)
    batches = iter(DataLoader(data, args.batch, num_workers=args.workers, prefetch_factor=args.prefetch))
    for _ in range(args.warmup):
        step(batches, model, optimizer, args.device)
    start = time.perf_counter()
    for _ in range(2 + args.active):
        step(batches, model, optimizer, args.device)
    seconds = (time.perf_counter() - start) / (2 + args.active)
    print(f"train_images on {args.device}: {seconds * 1e3:.1f} ms a step")


if __name__ == "__main__":
    main()
