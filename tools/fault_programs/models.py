"""Small models for the fault programs: a transformer, a patch classifier, a convolution net, a mixture of experts."""

# mypy: no-warn-return-any, allow-subclassing-any, allow-untyped-calls

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name


class Block(nn.Module):
    """Attention and a feed-forward layer, with pre-norm residuals."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        hidden: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return hidden


class LanguageModel(nn.Module):
    """A small GPT; returns the mean loss of each sequence, shape (batch,)."""

    def __init__(self, layers: int, width: int, vocabulary: int = 1024) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(Block(width, max(1, width // 128)) for _ in range(layers)))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.head(self.blocks(self.embedding(tokens[:, :-1])))
        losses = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), reduction="none")
        return losses.view(len(tokens), -1).mean(1)


class PatchClassifier(nn.Module):
    """A small vision transformer over square patches; takes images (batch, 3, size, size), returns the mean loss."""

    def __init__(self, layers: int, width: int, patch: int, classes: int = 100) -> None:
        super().__init__()
        self.patch = patch
        self.embedding = nn.Linear(3 * patch * patch, width)
        self.blocks = nn.Sequential(*(Block(width, max(1, width // 128)) for _ in range(layers)))
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        batch, channels, height, width = images.shape
        patch = self.patch
        grid = images.view(batch, channels, height // patch, patch, width // patch, patch)
        patches = grid.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * patch * patch)
        x = self.blocks(self.embedding(patches.to(self.embedding.weight.dtype)))
        return F.cross_entropy(self.head(x.mean(1)).float(), labels)


class ConvolutionBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(x)))


class ConvolutionNet(nn.Module):
    """A small residual net; returns the mean loss."""

    def __init__(self, blocks: int, channels: int, classes: int = 100) -> None:
        super().__init__()
        self.stem = nn.Conv2d(8, channels, 3, padding=1)
        self.blocks = nn.Sequential(*(ConvolutionBlock(channels) for _ in range(blocks)))
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = self.blocks(self.stem(images)).mean((2, 3))
        return F.cross_entropy(self.head(x).float(), labels)


class Experts(nn.Module):
    """A layer of experts, one per token. `loop`: find each expert's tokens with nonzero, one expert after the other."""

    numbers: Tensor

    def __init__(self, experts: int, width: int, loop: bool) -> None:
        super().__init__()
        self.loop = loop
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 4 * width) / width**0.5)
        self.down = nn.Parameter(torch.randn(experts, 4 * width, width) / (2 * width**0.5))
        self.register_buffer("numbers", torch.arange(experts))

    def forward(self, x: Tensor) -> Tensor:
        weight, choice = self.gate(x).softmax(-1).max(-1)
        mix = self._mix_in_a_loop if self.loop else self._mix_sorted
        return x + mix(x, choice) * weight[:, None]

    def _mix_in_a_loop(self, x: Tensor, choice: Tensor) -> Tensor:
        output = torch.zeros_like(x)
        for number in range(len(self.up)):
            (rows,) = torch.where(choice == number)
            output.index_add_(0, rows, F.gelu(x[rows] @ self.up[number]) @ self.down[number])
        return output

    def _mix_sorted(self, x: Tensor, choice: Tensor) -> Tensor:
        """Put each expert's tokens into a slice of fixed length; tokens beyond it are dropped."""
        (tokens, width), experts = x.shape, len(self.up)
        room = tokens * 5 // (4 * experts)
        expert, order = choice.sort()
        first = torch.searchsorted(expert, self.numbers)
        place = torch.arange(tokens, device=x.device) - first.index_select(0, expert)
        slot = torch.where(place < room, expert * room + place, experts * room)
        slices = x.new_zeros(experts * room + 1, width).index_copy_(0, slot, x.index_select(0, order))
        mixed = F.gelu(slices[:-1].view(experts, room, width) @ self.up) @ self.down
        slices[:-1] = mixed.flatten(0, 1)
        return torch.empty_like(x).index_copy_(0, order, slices.index_select(0, slot))


class NormedLayers(nn.Module):
    """Residual layers with many small parameters: four per layer."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(layers))
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x.float().square().mean()
