"""Adapters for the models of the bench: what each makes of a batch, as features of shape (batch, length, width)."""

# mypy: no-warn-return-any, allow-subclassing-any, allow-untyped-calls, disable-error-code="import"

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

CLASSES = 256


class Task(nn.Module):
    """A model with random weights that classifies each position.

    `inputs` is what `features` takes, its first dimension the batch; `labels` are int64[batch, length].
    """

    inputs: Tensor
    labels: Tensor

    def __init__(self, model: nn.Module, inputs: Tensor, **others: Tensor) -> None:
        super().__init__()
        self.model = model
        for name, values in {"inputs": inputs, **others}.items():
            self.register_buffer(name, values)
        with torch.no_grad():
            _, self.length, self.width = self.features(inputs[:1]).shape
        self.head = nn.Linear(self.width, CLASSES)
        self.register_buffer("labels", torch.randint(CLASSES, (len(inputs), self.length)))

    def features(self, inputs: Tensor) -> Tensor:
        """Compute the features, floating point of shape (batch, length, width)."""
        raise NotImplementedError

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.features(inputs))


@dataclass(frozen=True)
class Size:
    """How large a model is built: "busy" keeps a GPU busy, "light" is limited by the CPU, "tiny" is for tests."""

    name: str

    def choose(self, busy: int, light: int, tiny: int) -> int:
        return {"busy": busy, "light": light, "tiny": tiny}[self.name]


class ImageTask(Task):
    """Images or clips, whose feature maps (batch, width, ...) are seen as positions."""

    def features(self, inputs: Tensor) -> Tensor:
        return self.model(inputs).flatten(2).transpose(1, 2)


def build_convnext(size: Size) -> Task:
    """Build ConvNeXt Tiny of torchvision without its classifier."""
    from torchvision.models import convnext_tiny

    pixels = size.choose(224, 64, 32)
    return ImageTask(convnext_tiny().features, torch.randn(size.choose(32, 2, 2), 3, pixels, pixels))


def build_r2plus1d(size: Size) -> Task:
    """Build R(2+1)D of 18 layers of torchvision without its classifier."""
    from torchvision.models.video import r2plus1d_18

    net = r2plus1d_18()
    model = nn.Sequential(net.stem, net.layer1, net.layer2, net.layer3, net.layer4)
    pixels = size.choose(112, 32, 16)
    return ImageTask(model, torch.randn(size.choose(8, 2, 2), 3, size.choose(8, 4, 2), pixels, pixels))


class WindowTask(Task):
    """Images whose feature maps come with the channels last: (batch, height, width, channels)."""

    def features(self, inputs: Tensor) -> Tensor:
        return self.model(inputs).flatten(1, 2)


def build_swin_v2(size: Size) -> Task:
    """Build a Swin Transformer V2 of torchvision of three blocks, without its classifier."""
    from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformer, SwinTransformerBlockV2

    pixels = size.choose(256, 64, 32)
    depths = [2] if size.name == "tiny" else [2, 1]
    model = SwinTransformer(
        patch_size=[4, 4],
        embed_dim=size.choose(192, 64, 32),
        depths=depths,
        num_heads=[2 << stage for stage in range(len(depths))],
        window_size=[8, 8] if size.name == "busy" else [4, 4],
        block=SwinTransformerBlockV2,
        downsample_layer=PatchMergingV2,
    )
    return WindowTask(nn.Sequential(model.features, model.norm), torch.randn(size.choose(16, 2, 2), 3, pixels, pixels))


class TokenTask(Task):
    """Tokens, int64[batch, length]."""

    def features(self, inputs: Tensor) -> Tensor:
        return self.model(input_ids=inputs, use_cache=False).last_hidden_state


def build_gpt_neox(size: Size) -> Task:
    """Build a GPT-NeoX of transformers: 8 layers of width 1,024 where it is busy."""
    from transformers import GPTNeoXConfig, GPTNeoXModel

    width = size.choose(1024, 256, 32)
    config = GPTNeoXConfig(
        vocab_size=8192,
        hidden_size=width,
        num_hidden_layers=size.choose(8, 6, 2),
        num_attention_heads=max(2, width // 64),
        intermediate_size=4 * width,
        max_position_embeddings=512,
    )
    return TokenTask(GPTNeoXModel(config), torch.randint(8192, (size.choose(16, 2, 2), size.choose(512, 64, 16))))


class SpeechTask(Task):
    """Log-mel spectra, float32[batch, 80, frames], and tokens of the decoder, int64[batch, length]."""

    tokens: Tensor

    def features(self, inputs: Tensor) -> Tensor:
        tokens = self.tokens[: len(inputs)]
        return self.model(input_features=inputs, decoder_input_ids=tokens, use_cache=False).last_hidden_state


def build_whisper(size: Size) -> Task:
    """Build a Whisper of transformers: encoder and decoder of six layers of width 512 where it is busy."""
    from transformers import WhisperConfig, WhisperModel

    width, layers, positions = size.choose(512, 256, 32), size.choose(6, 4, 1), size.choose(1500, 64, 16)
    config = WhisperConfig(
        vocab_size=8192,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=max(2, width // 64),
        decoder_attention_heads=max(2, width // 64),
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        max_source_positions=positions,
        max_target_positions=256,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    batch = size.choose(12, 2, 2)
    tokens = torch.randint(3, 8192, (batch, size.choose(224, 32, 8)))
    return SpeechTask(WhisperModel(config), torch.randn(batch, 80, 2 * positions), tokens=tokens)


class TranslationTask(Task):
    """Tokens of the encoder, int64[batch, positions], and of the decoder, int64[batch, length]."""

    tokens: Tensor

    def features(self, inputs: Tensor) -> Tensor:
        tokens = self.tokens[: len(inputs)]
        return self.model(input_ids=inputs, decoder_input_ids=tokens, use_cache=False).last_hidden_state


def build_t5(size: Size) -> Task:
    """Build a T5 of transformers: encoder and decoder of two layers of width 1,024 where it is busy."""
    from transformers import T5Config, T5Model

    width, batch = size.choose(1024, 256, 32), size.choose(32, 2, 2)
    config = T5Config(
        vocab_size=8192,
        d_model=width,
        d_kv=min(64, width // 2),
        d_ff=4 * width,
        num_layers=size.choose(2, 2, 1),
        num_heads=max(2, width // 64),
        feed_forward_proj="gated-gelu",
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    tokens = torch.randint(2, 8192, (batch, size.choose(256, 32, 8)))
    return TranslationTask(T5Model(config), torch.randint(2, 8192, (batch, size.choose(512, 64, 16))), tokens=tokens)


class Attention(nn.Module):
    """Graph attention (GATv2) written with gather and scatter, used where torch_geometric is missing."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.left, self.right = nn.Linear(width, width), nn.Linear(width, width)
        self.score = nn.Parameter(torch.randn(heads, width // heads))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        left, right = (linear(x).view(len(x), self.heads, -1) for linear in (self.left, self.right))
        message = left[source]
        score = (nn.functional.leaky_relu(message + right[target], 0.2) * self.score).sum(-1).float()
        weight = (score - score.amax()).exp()
        total = weight.new_zeros(len(x), self.heads).index_add_(0, target, weight)
        weight = (weight / total[target].clamp_min(1e-9)).to(message.dtype)
        return torch.zeros_like(left).index_add_(0, target, message * weight[..., None]).flatten(1)


class GraphTask(Task):
    """Graphs of equal size, float32[batch, nodes, width], each with the same random edges, int64[2, edges]."""

    edges: Tensor

    def features(self, inputs: Tensor) -> Tensor:
        batch, nodes, _ = inputs.shape
        offsets = torch.arange(batch, device=inputs.device)[:, None] * nodes
        edges = (self.edges[:, None] + offsets).flatten(1)
        x = inputs.flatten(0, 1)
        for layer in self.model.children():
            x = x + nn.functional.elu(layer(x, edges))
        return x.view(batch, nodes, -1)


def build_gatv2(size: Size) -> Task:
    """Build four layers of graph attention of torch_geometric, of four heads each."""
    width, nodes, batch = size.choose(256, 128, 32), size.choose(256, 64, 16), size.choose(48, 4, 2)
    heads, layers = 4, size.choose(4, 6, 2)
    try:
        from torch_geometric.nn import GATv2Conv
    except ImportError:
        stack = [Attention(width, heads) for _ in range(layers)]
    else:
        stack = [GATv2Conv(width, width // heads, heads=heads, add_self_loops=False) for _ in range(layers)]
    edges = torch.randint(nodes, (2, 16 * nodes))
    return GraphTask(nn.Sequential(*stack), torch.randn(batch, nodes, width), edges=edges)


class EdgePooling(nn.Module):
    """Edge convolution written with gather and scatter, used where torch_geometric is missing."""

    def __init__(self, edge_net: nn.Module) -> None:
        super().__init__()
        self.edge_net = edge_net

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        message = self.edge_net(torch.cat([x[target], x[source] - x[target]], -1))
        index = target[:, None].expand_as(message)
        pooled = message.new_zeros(len(x), message.shape[-1])
        return pooled.scatter_reduce(0, index, message, "amax", include_self=False)


def build_edge_conv(size: Size) -> Task:
    """Build layers of edge convolution of torch_geometric: a small network per edge, and the maximum per node."""
    width, nodes, batch = size.choose(256, 96, 32), size.choose(256, 64, 16), size.choose(32, 4, 2)
    try:
        from torch_geometric.nn import EdgeConv
    except ImportError:
        EdgeConv = EdgePooling  # noqa: N806 - stands in for the class
    nets = [
        nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width))
        for _ in range(size.choose(4, 5, 2))
    ]
    edges = torch.randint(nodes, (2, 16 * nodes))
    layers = nn.Sequential(*(EdgeConv(net) for net in nets))
    return GraphTask(layers, torch.randn(batch, nodes, width), edges=edges)


class DetectionTask(Task):
    """Images, seen at five scales; the features of both towers of the detection head, for all scales in one."""

    def features(self, inputs: Tensor) -> Tensor:
        levels = self.model.get_submodule("backbone")(inputs).values()
        towers = [self.model.get_submodule(name) for name in ("classes", "boxes")]
        return torch.cat([torch.cat([t(level) for t in towers], 1).flatten(2) for level in levels], 2).transpose(1, 2)


def build_fcos(size: Size) -> Task:
    """Build FCOS of torchvision: a feature pyramid on a ResNet of 18 layers, and two towers of two convolutions."""
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
    from torchvision.models.detection.fcos import FCOSHead
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    backbone = resnet_fpn_backbone(
        backbone_name="resnet18",
        weights=None,
        norm_layer=nn.BatchNorm2d,
        trainable_layers=5,
        returned_layers=[2, 3, 4],
        extra_blocks=LastLevelP6P7(256, 256),
    )
    head = FCOSHead(256, 1, 1, num_convs=2)
    parts = {"backbone": backbone, "classes": head.classification_head.conv, "boxes": head.regression_head.conv}
    pixels = size.choose(320, 64, 64)
    return DetectionTask(nn.ModuleDict(parts), torch.randn(size.choose(32, 2, 2), 3, pixels, pixels))


class ToHalf(nn.Module):
    """Cast a weight to bf16 where it is used, as autocast does for products it knows."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight.to(torch.bfloat16)


def build_mixtral(size: Size) -> Task:
    """Build a Mixtral of transformers: 3 layers of width 1,024 with two of eight experts per token where it is busy.

    The experts are computed by one grouped product, which autocast does not know.
    """
    from transformers import MixtralConfig, MixtralModel

    width = size.choose(1024, 256, 32)
    config = MixtralConfig(
        vocab_size=8192,
        hidden_size=width,
        intermediate_size=size.choose(1024, 512, 64),
        num_hidden_layers=size.choose(3, 3, 1),
        num_attention_heads=max(2, width // 64),
        num_key_value_heads=max(1, width // 256),
        num_local_experts=size.choose(8, 8, 4),
        num_experts_per_tok=2,
        max_position_embeddings=512,
        sliding_window=None,
    )
    config._experts_implementation = "grouped_mm"
    model = MixtralModel(config)
    for layer in model.layers:
        for name in ("gate_up_proj", "down_proj"):
            nn.utils.parametrize.register_parametrization(layer.mlp.experts, name, ToHalf(), unsafe=True)
    return TokenTask(model, torch.randint(8192, (size.choose(16, 2, 2), size.choose(512, 64, 16))))


class CrossNet(nn.Module):
    """Deep & Cross Network V2: embeddings of all fields, layers that multiply by them, and a residual tower."""

    def __init__(self, fields: int, rows: int, width: int, crosses: int, depth: int) -> None:
        super().__init__()
        self.table = nn.Embedding(fields * rows, width)
        total = fields * width
        self.crosses = nn.ModuleList(nn.Linear(total, total) for _ in range(crosses))
        self.tower = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(total), nn.Linear(total, total), nn.ReLU()) for _ in range(depth)
        )

    def forward(self, numbers: Tensor) -> Tensor:
        first = self.table(numbers).flatten(1)
        x = first
        for cross in self.crosses:
            x = first * cross(x) + x
        for block in self.tower:
            x = x + block(x)
        return x


class FieldsTask(Task):
    """Rows of a table, int64[batch, fields], each field with its own range of numbers."""

    def features(self, inputs: Tensor) -> Tensor:
        return self.model(inputs).view(*inputs.shape, -1)


def build_dcn_v2(size: Size) -> Task:
    """Build a recommender (DCN V2) of 26 fields in one embedding table."""
    fields, rows, batch = 26, size.choose(10_000, 1_000, 10), size.choose(16384, 64, 4)
    model = CrossNet(fields, rows, size.choose(64, 16, 4), size.choose(3, 14, 1), size.choose(2, 10, 1))
    return FieldsTask(model, torch.randint(rows, (batch, fields)) + rows * torch.arange(fields))


class SegmentationTask(Task):
    """Images; the scores of all pixels of the map that the segmentation head makes, at an eighth of the side."""

    def features(self, inputs: Tensor) -> Tensor:
        maps = self.model.get_submodule("backbone")(inputs)
        return self.model.get_submodule("classifier")(maps).flatten(2).transpose(1, 2)


def build_lraspp(size: Size) -> Task:
    """Build Lite R-ASPP of torchvision: a segmentation head on a MobileNetV3 of depthwise convolutions."""
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    pixels = size.choose(384, 64, 32)
    model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=size.choose(128, 64, 16))
    return SegmentationTask(model, torch.randn(size.choose(32, 2, 2), 3, pixels, pixels))


class AudioTask(Task):
    """Raw audio, float32[batch, samples]."""

    def features(self, inputs: Tensor) -> Tensor:
        return self.model(input_values=inputs).last_hidden_state


def build_conformer(size: Size) -> Task:
    """Build a Wav2Vec2-Conformer of transformers: strided convolutions on audio, then attention with convolutions."""
    from transformers import Wav2Vec2ConformerConfig, Wav2Vec2ConformerModel

    width, channels = size.choose(512, 128, 32), size.choose(512, 64, 16)
    config = Wav2Vec2ConformerConfig(
        hidden_size=width,
        num_hidden_layers=size.choose(6, 4, 1),
        num_attention_heads=max(2, width // 64),
        intermediate_size=4 * width,
        conv_dim=(channels,) * 7,
        position_embeddings_type="relative",
        layerdrop=0.0,
        apply_spec_augment=False,
    )
    model = Wav2Vec2ConformerModel(config)
    # It would ask for gradients of the audio, for checkpointing, and so keep a frozen model in the backward pass.
    model.feature_extractor._requires_grad = False
    return AudioTask(model, 0.1 * torch.randn(size.choose(16, 2, 2), size.choose(96_000, 6_400, 1_600)))


def build_mamba2(size: Size) -> Task:
    """Build a Mamba-2 of transformers, a state-space model, on the path that needs no kernels of other packages."""
    from transformers import Mamba2Config, Mamba2Model

    width, depth = size.choose(512, 128, 32), size.choose(64, 32, 16)
    config = Mamba2Config(
        vocab_size=8192,
        hidden_size=width,
        num_hidden_layers=size.choose(4, 4, 1),
        expand=2,
        num_heads=2 * width // depth,
        head_dim=depth,
        state_size=size.choose(64, 16, 8),
        n_groups=1,
        chunk_size=size.choose(64, 16, 8),
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return TokenTask(Mamba2Model(config), torch.randint(3, 8192, (size.choose(8, 2, 2), size.choose(512, 64, 16))))


class ResidualBlock(nn.Module):
    """Two convolutions with group norm, between which the embedded time is added."""

    def __init__(self, channels: int, out: int, time_width: int, groups: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(groups, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time_width, out))
        self.second = nn.Sequential(nn.GroupNorm(groups, out), nn.SiLU(), nn.Conv2d(out, out, 3, padding=1))
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.first(x) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.second(h)


class CrossAttention(nn.Module):
    """Attention to a context; to itself where both are the same."""

    def __init__(self, width: int, context_width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(context_width, 2 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        q = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.key_value(context).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class ContextBlock(nn.Module):
    """A transformer block over the positions of a feature map: itself, the context, and a gated feed-forward net."""

    def __init__(self, channels: int, context_width: int, groups: int, heads: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.GroupNorm(groups, channels), nn.Conv2d(channels, channels, 1))
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.itself = CrossAttention(channels, channels, heads)
        self.context = CrossAttention(channels, context_width, heads)
        self.up, self.down = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)
        self.leave = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        h = self.enter(x).flatten(2).transpose(1, 2)
        n = self.norms[0](h)
        h = h + self.itself(n, n)
        h = h + self.context(self.norms[1](h), context)
        wide, gate = self.up(self.norms[2](h)).chunk(2, -1)
        h = h + self.down(wide * nn.functional.gelu(gate))
        return x + self.leave(h.transpose(1, 2).unflatten(2, x.shape[2:]))


class DiffusionNet(nn.Module):
    """The U-Net of a latent diffusion model, without its last convolution: three levels, attention on the lowest."""

    def __init__(self, channels: int, context_width: int, groups: int, heads: int) -> None:
        super().__init__()
        widths, self.channels, time_width = [channels, 2 * channels, 4 * channels], channels, 4 * channels
        self.time = nn.Sequential(nn.Linear(channels, time_width), nn.SiLU(), nn.Linear(time_width, time_width))
        self.stem = nn.Conv2d(4, channels, 3, padding=1)
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        self.shrinks, self.grows = nn.ModuleList(), nn.ModuleList()
        before = channels
        for width in widths:
            self.downs.append(ResidualBlock(before, width, time_width, groups))
            if width != widths[-1]:
                self.shrinks.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
            before = width
        self.middle = nn.ModuleList(ResidualBlock(before, before, time_width, groups) for _ in range(2))
        self.contexts = nn.ModuleList(ContextBlock(before, context_width, groups, heads) for _ in range(3))
        for width in reversed(widths):
            self.ups.append(ResidualBlock(before + width, width, time_width, groups))
            if width != channels:
                self.grows.append(nn.Conv2d(width, width, 3, padding=1))
            before = width
        self.norm = nn.Sequential(nn.GroupNorm(groups, channels), nn.SiLU())

    def forward(self, latents: Tensor, times: Tensor, context: Tensor) -> Tensor:
        rates = torch.exp(torch.arange(0, self.channels, 2, device=times.device) * (-9.21 / self.channels))
        angles = times[:, None] * rates
        time = self.time(torch.cat([angles.cos(), angles.sin()], -1))
        x, kept = self.stem(latents), []
        for level, down in enumerate(self.downs):
            x = down(x, time)
            if level == len(self.shrinks):
                x = self.contexts[0](x, context)
            kept.append(x)
            if level < len(self.shrinks):
                x = self.shrinks[level](x)
        x = self.middle[1](self.contexts[1](self.middle[0](x, time), context), time)
        for level, up in enumerate(self.ups):
            x = up(torch.cat([x, kept.pop()], 1), time)
            if level == 0:
                x = self.contexts[2](x, context)
            if level < len(self.grows):
                x = self.grows[level](nn.functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.norm(x)


class DiffusionTask(Task):
    """Noisy latents, float32[batch, 4, side, side], their times, and the text's states that the net attends to."""

    times: Tensor
    context: Tensor

    def features(self, inputs: Tensor) -> Tensor:
        maps = self.model(inputs, self.times[: len(inputs)], self.context[: len(inputs)])
        return maps.flatten(2).transpose(1, 2)


def build_diffusion_unet(size: Size) -> Task:
    """Build a U-Net for latent diffusion in torch alone, conditioned on the time and on 77 states of a text."""
    batch, width, side = size.choose(16, 4, 2), size.choose(768, 128, 16), size.choose(64, 16, 8)
    model = DiffusionNet(size.choose(256, 32, 8), width, size.choose(32, 8, 2), size.choose(16, 4, 2))
    times = 1000 * torch.rand(batch)
    context = torch.randn(batch, size.choose(77, 77, 5), width)
    return DiffusionTask(model, torch.randn(batch, 4, side, side), times=times, context=context)


def build_qwen2(size: Size) -> Task:
    """Build a Qwen2 of transformers, with grouped attention: four layers of the shapes of its 1.5B where it is busy."""
    from transformers import Qwen2Config, Qwen2Model

    width, depth = size.choose(1536, 256, 32), size.choose(128, 64, 8)
    config = Qwen2Config(
        vocab_size=8192,
        hidden_size=width,
        intermediate_size=size.choose(8960, 704, 64),
        num_hidden_layers=size.choose(4, 4, 1),
        num_attention_heads=width // depth,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    return TokenTask(Qwen2Model(config), torch.randint(8192, (size.choose(16, 4, 2), size.choose(512, 64, 16))))


class PlainTask(Task):
    """Inputs of which the model itself makes features (batch, length, width): needs torch alone."""

    def features(self, inputs: Tensor) -> Tensor:
        return self.model(inputs)


class RecurrentLayer(nn.Module):
    """One LSTM with dropout, a residual and a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.dropout, self.norm = nn.Dropout(0.1), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.dropout(self.lstm(x)[0]))


class StackTime(nn.Module):
    """Join each two frames into one."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, 2)).flatten(2)


def build_lstm_encoder(size: Size) -> Task:
    """Build the encoder of a speech transducer (RNN-T) in torch alone: LSTMs, the later ones on half the frames.

    Few frames and a large batch keep the kernels few, since cuDNN starts some per frame.
    """
    width, frames, batch = size.choose(1024, 256, 32), size.choose(64, 8, 8), size.choose(1024, 4, 2)
    model = nn.Sequential(
        nn.Linear(240, width),
        *(RecurrentLayer(width) for _ in range(size.choose(2, 3, 1))),
        StackTime(),
        nn.Linear(2 * width, width),
        *(RecurrentLayer(width) for _ in range(size.choose(3, 5, 1))),
    )
    return PlainTask(model, torch.randn(batch, frames, 240))


class EncoderBlock(nn.Module):
    """A block of a vision transformer: attention and a feed-forward net, each behind its norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.norm_after(x))


class VisionTransformer(nn.Module):
    """A vision transformer without its classifier: patches of 16 pixels, one token for the image, encoder blocks."""

    def __init__(self, pixels: int, width: int, heads: int, blocks: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, (pixels // 16) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(images), -1, -1), patches], 1) + self.positions
        return self.norm(self.blocks(x))


def build_vit(size: Size) -> Task:
    """Build a vision transformer in torch alone: eight blocks of the shapes of ViT-B/16 where it is busy."""
    width, pixels = size.choose(768, 256, 32), size.choose(224, 64, 32)
    model = VisionTransformer(pixels, width, max(2, width // 64), size.choose(8, 6, 2))
    return PlainTask(model, torch.randn(size.choose(96, 2, 2), 3, pixels, pixels))


class VariationalAutoencoder(nn.Module):
    """Convolutions that halve the image, a random latent map, and transposed convolutions that double it."""

    def __init__(self, widths: list[int], latent: int) -> None:
        super().__init__()
        pairs = list(pairwise(widths))
        self.encoder = nn.Sequential(
            self.layer(nn.Conv2d(1, widths[0], 3, padding=1)),
            *(self.layer(nn.Conv2d(a, b, 4, stride=2, padding=1), nn.Conv2d(b, b, 3, padding=1)) for a, b in pairs),
            nn.Conv2d(widths[-1], 2 * latent, 1),
        )
        self.decoder = nn.Sequential(
            self.layer(nn.Conv2d(latent, widths[-1], 3, padding=1)),
            *(
                self.layer(nn.ConvTranspose2d(b, a, 4, stride=2, padding=1), nn.Conv2d(a, a, 3, padding=1))
                for a, b in reversed(pairs)
            ),
        )

    @staticmethod
    def layer(*convolutions: nn.Conv2d | nn.ConvTranspose2d) -> nn.Module:
        parts = [[one, nn.BatchNorm2d(one.out_channels), nn.ReLU(inplace=True)] for one in convolutions]
        return nn.Sequential(*(part for three in parts for part in three))

    def forward(self, images: Tensor) -> Tensor:
        mean, spread = self.encoder(images).chunk(2, 1)
        if self.training:
            mean = mean + torch.exp(0.5 * spread) * torch.randn_like(mean)
        return self.decoder(mean)


def build_vae(size: Size) -> Task:
    """Build a variational autoencoder in torch alone, for grey images; the head classifies the level of each pixel.

    The loss is the reconstruction's alone: the bench has no term for the latent map.
    """
    width, pixels = size.choose(128, 32, 8), size.choose(64, 32, 16)
    model = VariationalAutoencoder([width, 2 * width, 4 * width, 4 * width], size.choose(32, 16, 4))
    return ImageTask(model, torch.randn(size.choose(96, 2, 2), 1, pixels, pixels))


class GatedLayer(nn.Module):
    """A causal dilated convolution with a gate; gives what goes on and what skips to the end."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.dilated = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        self.out = nn.Conv1d(width, 2 * width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        signal, gate = self.dilated(nn.functional.pad(x, (self.dilation, 0))).chunk(2, 1)
        on, skip = self.out(torch.tanh(signal) * torch.sigmoid(gate)).chunk(2, 1)
        return x + on, skip


class WaveNet(nn.Module):
    """A net of causal convolutions over the levels of an audio signal, without its last convolution."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.levels = nn.Embedding(CLASSES, width)
        self.layers = nn.ModuleList(GatedLayer(width, 1 << number) for number in range(layers))
        self.last = nn.Conv1d(width, width, 1)

    def forward(self, samples: Tensor) -> Tensor:
        x = self.levels(samples).transpose(1, 2)
        total = torch.zeros_like(x)
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        return nn.functional.relu(self.last(nn.functional.relu(total))).transpose(1, 2)


def build_wavenet(size: Size) -> Task:
    """Build a WaveNet in torch alone, which predicts one of 256 levels for each sample: dilations 1 to 512."""
    model = WaveNet(size.choose(256, 64, 16), size.choose(10, 10, 3))
    return PlainTask(model, torch.randint(CLASSES, (size.choose(16, 2, 2), size.choose(4096, 256, 16))))


def build_plain(size: Size) -> Task:
    """Build eight linear layers."""
    width = size.choose(1024, 256, 32)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(8)))
    return PlainTask(model, torch.randn(size.choose(16, 4, 4), size.choose(512, 16, 16), width))


BUILDERS: dict[str, Callable[[Size], Task]] = {
    "convnext": build_convnext,
    "gpt_neox": build_gpt_neox,
    "whisper": build_whisper,
    "r2plus1d": build_r2plus1d,
    "gatv2": build_gatv2,
    "swin_v2": build_swin_v2,
    "t5": build_t5,
    "edge_conv": build_edge_conv,
    "fcos": build_fcos,
    "mixtral": build_mixtral,
    "dcn_v2": build_dcn_v2,
    "lraspp": build_lraspp,
    "conformer": build_conformer,
    "mamba2": build_mamba2,
    "diffusion_unet": build_diffusion_unet,
    "qwen2": build_qwen2,
    "lstm_encoder": build_lstm_encoder,
    "vit": build_vit,
    "vae": build_vae,
    "wavenet": build_wavenet,
    "plain": build_plain,
}
