"""Try remedies on programs with one known fault, on their mended twins, and on models as they are.

    python -m benchmarks.try_programs run FOLDER [--part 0/2] [--variants faulty,mended] [--names A,B] [--seconds S]

Without `--cpu` it needs a GPU; with it, it runs the programs whose fault is on the CPU.

    python -m benchmarks.try_programs report FOLDER

`run` writes FOLDER/NAME.VARIANT.json, the answer of `try`; `report` prints the Markdown of benchmarks/try.md: whether
the best row is the fault's remedy, whether a row of a twin claims a win, and predicted against measured savings.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEPS, WARMUP = 48, 10
TRIED_HEAD = "| program | finding | remedy | predicted | measured |"
MODULE = "benchmarks.try_programs"


@dataclass(frozen=True)
class Program:
    """`right`: remedies that mend the fault; () for a model as it is."""

    build: Callable[[bool], Iterator[None]]
    right: tuple[str, ...] = ()
    on_cpu: bool = False


def _train(model: Any, batch: Any, optimizer: Any = None, loss: Any = None, after: Any = None) -> Iterator[None]:
    """Train on one batch for ever; `after` gets the loss of each step. `batch`: a tensor, or a function."""
    import torch

    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    while True:
        inputs = batch() if callable(batch) else batch
        value = loss(model(inputs)) if loss else model(inputs).float().square().mean()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        if after:
            after(value)
        yield


def _mlp(width: int, layers: int, dtype: Any = None, device: str = "cuda") -> Any:
    import torch

    torch.manual_seed(0)
    layer = [each for _ in range(layers) for each in (torch.nn.Linear(width, width), torch.nn.GELU())]
    return torch.nn.Sequential(*layer).to(device, dtype or torch.float32)


def _mlp_on_cpu(width: int, layers: int) -> Any:
    return _mlp(width, layers, device="cpu")


def _random(*shape: int, dtype: Any = None, **more: Any) -> Any:
    import torch

    return torch.randn(*shape, dtype=dtype or torch.float32, **{"device": "cuda", **more})


def anomaly_mode(faulty: bool) -> Iterator[None]:
    import torch

    torch.autograd.set_detect_anomaly(faulty)
    return _train(_mlp(512, 24), _random(64, 512))


def deterministic_mode(faulty: bool) -> Iterator[None]:
    import torch

    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(faulty)

    class Rows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(16384, 256, device="cuda"))

        def forward(self, index: Any) -> Any:
            # Adding rows by index is what the mode makes slow (tools/fault_bench measured 29 to 33 % for it). There is
            # no matmul, whose precision would cost more.
            total = torch.zeros(16384, 256, device="cuda").index_add(0, index, self.table.index_select(0, index))
            return total.index_add(0, index, self.table.index_select(0, index))

    return _train(Rows(), torch.randint(16384, (65536,), device="cuda"))


def synchronized_parts(faulty: bool) -> Iterator[None]:
    import torch

    class Timed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = _mlp(1024, 40)

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
                if faulty:
                    torch.cuda.synchronize()
            return x

    return _train(Timed(), _random(512, 1024))


def logged_values(faulty: bool) -> Iterator[None]:
    import torch

    # In bfloat16 and with few rows the matmuls are short: what costs is that every value is waited for.
    model = _mlp(512, 60, torch.bfloat16)

    def log(value: Any) -> None:
        if faulty:
            for parameter in model.parameters():
                for number in parameter.detach().flatten()[:4]:
                    number.item()
        value.detach()

    return _train(model, _random(64, 512, dtype=torch.bfloat16), after=log)


def emptied_cache(faulty: bool) -> Iterator[None]:
    import torch

    def free(_: Any) -> None:
        if faulty:
            torch.cuda.empty_cache()

    # In bfloat16: of float32 matmuls the precision would cost more than the fault.
    return _train(_mlp(2048, 12, torch.bfloat16), _random(8192, 2048, dtype=torch.bfloat16), after=free)


def _load(faulty: bool, edge: int, pinned: bool, items: int = 256) -> Iterator[Any]:
    import torch

    class Images(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 10**6

        def __getitem__(self, index: int) -> Any:
            generator = torch.Generator().manual_seed(index)
            image = torch.rand(3, edge, edge, generator=generator)
            for _ in range(4 if edge < 128 else 0):
                image = torch.nn.functional.interpolate(image[None], scale_factor=1.5, mode="bilinear")[
                    0, :, :edge, :edge
                ]
            return image

    workers: dict[str, Any] = {} if faulty else {"num_workers": 8, "persistent_workers": True}
    return iter(torch.utils.data.DataLoader(Images(), items, pin_memory=pinned, **workers))


def _convolutions(channels_last: bool, dtype: Any = None) -> Any:
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 128, 3, padding=1)]
    for _ in range(8):
        layers += [torch.nn.BatchNorm2d(128), torch.nn.ReLU(), torch.nn.Conv2d(128, 128, 3, padding=1)]  # type: ignore[list-item]
    form = torch.channels_last if channels_last else torch.contiguous_format
    return torch.nn.Sequential(*layers).to("cuda", dtype or torch.float32, memory_format=form)


def loading_in_process(faulty: bool) -> Iterator[None]:
    batches = _load(faulty, 32, pinned=True, items=64)
    return _train(_convolutions(False), lambda: next(batches).to("cuda", non_blocking=True))


def pageable_batches(faulty: bool) -> Iterator[None]:
    import torch

    data = torch.rand(256, 3, 224, 224)
    batch = data if faulty else data.pin_memory()

    class Repeat(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            while True:
                yield batch

    loader = torch.utils.data.DataLoader(Repeat(), batch_size=None, pin_memory=not faulty)
    batches = iter(loader)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 7, 4), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3, 2)).to("cuda")
    return _train(model, lambda: next(batches).to("cuda", non_blocking=not faulty))


def float32_matmuls(faulty: bool) -> Iterator[None]:
    import torch

    torch.set_float32_matmul_precision("highest" if faulty else "high")
    return _train(_mlp(4096, 8), _random(4096, 4096))


def looping_optimizer(faulty: bool) -> Iterator[None]:
    import torch

    model = _mlp(128, 60)
    given = {"foreach": False} if faulty else {"fused": True}
    return _train(model, _random(64, 128), torch.optim.AdamW(model.parameters(), lr=1e-4, **given))


def written_elementwise(faulty: bool) -> Iterator[None]:
    import torch

    class Chain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(4096, device="cuda"))

        def forward(self, x: Any) -> Any:
            for _ in range(6):
                x = x * self.scale
                x = 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
            return x

    model: Any = Chain()
    return _train(model if faulty else torch.compile(model), _random(8192, 4096))


def many_launches(faulty: bool) -> Iterator[None]:
    import torch

    model = _mlp(256, 80)
    return _train(model if faulty else torch.compile(model, mode="reduce-overhead"), _random(32, 256))


def contiguous_images(faulty: bool) -> Iterator[None]:
    import torch

    form = torch.contiguous_format if faulty else torch.channels_last
    images = _random(64, 3, 128, 128, dtype=torch.bfloat16).to(memory_format=form)
    return _train(_convolutions(not faulty, torch.bfloat16), images)


def math_attention(faulty: bool) -> Iterator[None]:
    import torch

    for name in ("flash", "mem_efficient", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(not faulty)
    model = torch.nn.TransformerEncoderLayer(512, 8, 1024, 0.0, batch_first=True, device="cuda", dtype=torch.bfloat16)
    return _train(model, _random(8, 2048, 512, dtype=torch.bfloat16))


def collected_garbage(faulty: bool) -> Iterator[None]:
    kept = [[number] for number in range(400_000)]

    def collect(_: Any) -> None:
        if faulty and kept:
            gc.collect()

    return _train(_mlp(512, 24), _random(64, 512), after=collect)


# --- faults on the CPU ------------------------------------------------------------------------------------------


def _wait_for_items(faulty: bool, model: Any, shape: tuple[int, ...], seconds: float) -> Iterator[None]:
    """Train on items that take a while to come, as from a disk of the network: no core is used meanwhile."""
    import torch

    class Items(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 10**6

        def __getitem__(self, index: int) -> Any:
            time.sleep(seconds)
            return torch.full(shape, index % 7 / 7)

    workers: dict[str, Any] = {} if faulty else {"num_workers": 1, "persistent_workers": True}
    batches = iter(torch.utils.data.DataLoader(Items(), 8, **workers))
    return _train(model, lambda: next(batches), torch.optim.SGD(model.parameters(), 1e-3))


def slow_items_mlp(faulty: bool) -> Iterator[None]:
    return _wait_for_items(faulty, _mlp_on_cpu(1024, 4), (1024,), 0.005)


def slow_items_conv(faulty: bool) -> Iterator[None]:
    import torch

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 32, 3))
    return _wait_for_items(faulty, model, (3, 32, 32), 0.005)


def slow_items_encoder(faulty: bool) -> Iterator[None]:
    import torch

    model = torch.nn.TransformerEncoderLayer(128, 4, 256, 0.0, batch_first=True)
    return _wait_for_items(faulty, model, (64, 128), 0.005)


def slow_items_wide(faulty: bool) -> Iterator[None]:
    return _wait_for_items(faulty, _mlp_on_cpu(2048, 1), (2048,), 0.003)


def anomaly_mode_mlp_cpu(faulty: bool) -> Iterator[None]:
    import torch

    torch.autograd.set_detect_anomaly(faulty)
    model = _mlp_on_cpu(64, 40)
    batch = torch.randn(8, 64)
    return _train(model, batch, torch.optim.SGD(model.parameters(), 1e-3))


def anomaly_mode_encoder_cpu(faulty: bool) -> Iterator[None]:
    import torch

    torch.autograd.set_detect_anomaly(faulty)
    layers = [torch.nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True) for _ in range(6)]
    model = torch.nn.Sequential(*layers)
    batch = torch.randn(4, 16, 32)
    return _train(model, batch, torch.optim.SGD(model.parameters(), 1e-3))


def anomaly_mode_conv_cpu(faulty: bool) -> Iterator[None]:
    import torch

    torch.autograd.set_detect_anomaly(faulty)
    layers = [each for _ in range(12) for each in (torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers)
    batch = torch.randn(2, 8, 8, 8)
    return _train(model, batch, torch.optim.SGD(model.parameters(), 1e-3))


def resnet50(_: bool) -> Iterator[None]:
    import torchvision

    return _train(torchvision.models.resnet50().cuda(), _random(32, 3, 224, 224))


def vit(_: bool) -> Iterator[None]:
    import torchvision

    return _train(torchvision.models.vit_b_16().cuda(), _random(32, 3, 224, 224))


def _language_model(config: Any, of: Any) -> Iterator[None]:
    import torch

    tokens = torch.randint(1000, (8, 256), device="cuda")
    return _train(of(config).cuda(), tokens, loss=lambda output: output.logits.float().square().mean())


def gpt2(_: bool) -> Iterator[None]:
    from transformers import GPT2Config, GPT2LMHeadModel

    return _language_model(GPT2Config(n_layer=6, vocab_size=1000), GPT2LMHeadModel)


def bert(_: bool) -> Iterator[None]:
    from transformers import BertConfig, BertForMaskedLM

    return _language_model(BertConfig(num_hidden_layers=6, vocab_size=1000), BertForMaskedLM)


_COMPILE = ("compile", "compile-reduce-overhead", "compile-max-autotune")
PROGRAMS = {
    "anomaly_mode": Program(anomaly_mode, ("no-anomaly-mode",)),
    "deterministic_mode": Program(deterministic_mode, ("no-deterministic-mode",)),
    "synchronized_parts": Program(synchronized_parts, ("no-synchronize",)),
    "logged_values": Program(logged_values, ("thin-logging",)),
    "emptied_cache": Program(emptied_cache, ("keep-cache",)),
    "loading_in_process": Program(loading_in_process, ("workers",)),
    "pageable_batches": Program(pageable_batches, ("pin-memory", "non-blocking")),
    "float32_matmuls": Program(float32_matmuls, ("tf32", "bf16")),
    "looping_optimizer": Program(looping_optimizer, ("fused-optimizer", "foreach-optimizer")),
    "written_elementwise": Program(written_elementwise, _COMPILE),
    "many_launches": Program(many_launches, _COMPILE),
    "contiguous_images": Program(contiguous_images, ("channels-last",)),
    "math_attention": Program(math_attention, ("fused-attention",)),
    "collected_garbage": Program(collected_garbage, ("gc-frozen",)),
    "slow_items_mlp": Program(slow_items_mlp, ("workers",), on_cpu=True),
    "slow_items_conv": Program(slow_items_conv, ("workers",), on_cpu=True),
    "slow_items_encoder": Program(slow_items_encoder, ("workers",), on_cpu=True),
    "slow_items_wide": Program(slow_items_wide, ("workers",), on_cpu=True),
    "anomaly_mode_mlp_cpu": Program(anomaly_mode_mlp_cpu, ("no-anomaly-mode",), on_cpu=True),
    "anomaly_mode_encoder_cpu": Program(anomaly_mode_encoder_cpu, ("no-anomaly-mode",), on_cpu=True),
    "anomaly_mode_conv_cpu": Program(anomaly_mode_conv_cpu, ("no-anomaly-mode",), on_cpu=True),
    "resnet50": Program(resnet50),
    "vit": Program(vit),
    "gpt2": Program(gpt2),
    "bert": Program(bert),
}


def run_program(name: str, variant: str) -> None:
    """Run the steps of a program: more than any trial measures."""
    steps = PROGRAMS[name].build(variant == "faulty")
    for _ in range(400):
        next(steps)


def run_all(options: argparse.Namespace) -> int:
    """Try the programs of a part, one after the other, until the time is over."""
    from torchprof_try.answers import build_tried
    from torchprof_try.trials import TrialRequest, Trials
    from torchprof_tui.answers.record import as_fields

    part, parts = map(int, options.part.split("/"))
    until = time.monotonic() + options.seconds
    os.makedirs(options.folder, exist_ok=True)
    listed = [name for name, program in PROGRAMS.items() if program.on_cpu is options.cpu]
    jobs = [
        (name, variant)
        for name in (options.names.split(",") if options.names else listed)
        for variant in options.variants.split(",")
        if variant == "faulty" or PROGRAMS[name].right
    ]
    for name, variant in jobs[part::parts]:
        if time.monotonic() > until:
            print(f"{name} {variant}: not reached", flush=True)
            continue
        began = time.monotonic()
        command = ("-m", MODULE, "program", name, variant)
        trials = Trials(TrialRequest(command, steps=STEPS, warmup=WARMUP, limit=30, repeat=options.repeat))
        problem = ""
        try:
            for _ in trials.run():
                pass
        except ValueError as error:
            problem = str(error)
        finally:
            trials.close()
        answer = {"name": name, "variant": variant, "problem": problem, **as_fields(build_tried(trials))}
        answer["seconds"] = time.monotonic() - began
        Path(options.folder, f"{name}.{variant}.json").write_text(json.dumps(answer), encoding="utf-8")
        best = [f"{each['name']} {each['saved_share']:.0%}" for each in answer["remedies"] if each["won"]]
        print(f"{name} {variant}: {answer['seconds']:.0f} s, {problem or best[:4]}", flush=True)
    return 0


def report(folder: str) -> str:
    """Format what came back: a row for each program, then the calibration by remedy."""
    answers = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).glob("*.*.json"))]
    lines = [
        "| program | variant | best row | saved | predicted | right | rows that claim a win |",
        "|---|---|---|---|---|---|---|",
        *map(_format_row, answers),
    ]
    judged = [answer for answer in answers if answer["variant"] == "faulty" and PROGRAMS[answer["name"]].right]
    twins = [answer for answer in answers if answer["variant"] == "mended"]
    right = sum(_is_right(answer) for answer in judged)
    claims = sum(any(each["name"] in PROGRAMS[answer["name"]].right for each in _list_won(answer)) for answer in twins)
    head = (
        f"Best row right in {right} of {len(judged)} faulty programs; {claims} of {len(twins)} twins claim a win by "
        "the remedy.\n"
    )
    return "\n".join([head, *lines, *_format_measured(answers), *_format_calibration(answers)]) + "\n"


def _list_won(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in answer["remedies"] if each["won"] and not each["parts"]]


def _is_right(answer: dict[str, Any]) -> bool:
    won = _list_won(answer)
    return bool(won) and won[0]["name"] in PROGRAMS[answer["name"]].right


def _format_row(answer: dict[str, Any]) -> str:
    won = _list_won(answer)
    best = won[0] if won else {"name": "-", "saved_share": None, "predicted_share": None}
    saved, forecast = ("" if best[key] is None else f"{best[key]:.0%}" for key in ("saved_share", "predicted_share"))
    is_judged = answer["variant"] == "faulty" and PROGRAMS[answer["name"]].right
    verdict = ("yes" if _is_right(answer) else "no") if is_judged else ""
    names = ", ".join(each["name"] for each in won)
    cells = (answer["name"], answer["variant"], best["name"], saved or answer["problem"], forecast, verdict, names)
    return f"| {' | '.join(cells)} |"


def _format_measured(answers: list[dict[str, Any]]) -> Iterator[str]:
    """Format the table that `tools.forecast_errors` reads: the best forecast of each program against what it saved."""
    yield f"\n{TRIED_HEAD} 95 % interval | loss | on |\n|---|---|---|---|---|---|---|---|"
    for answer in answers:
        known = [
            each
            for each in answer["remedies"]
            if None not in (each["predicted_share"], each["saved_share"], each["saved_low_share"])
        ]
        best: dict[str, dict[str, Any]] = {}
        for each in known:  # of the remedies against one finding the one that saved most: the forecast is a limit
            before = best.get(each["predicted_by"])
            if before is None or each["saved_share"] > before["saved_share"]:
                best[each["predicted_by"]] = each
        for finding, each in sorted(best.items()):
            interval = f"{each['saved_low_share']:.0%} to {each['saved_high_share']:.0%}"
            shares = f"{each['predicted_share']:.0%} | {each['saved_share']:.1%} | {interval}"
            name = f"{answer['name']}, {answer['variant']}"
            yield f"| {name} | {finding} | {each['name']} | {shares} | {each['loss']} | {answer['device']} |"


def _format_calibration(answers: list[dict[str, Any]]) -> Iterator[str]:
    errors: dict[str, list[float]] = {}
    for each in (remedy for answer in answers for remedy in answer["remedies"]):
        if each["predicted_share"] is not None and each["saved_share"] is not None:
            errors.setdefault(each["name"], []).append(each["predicted_share"] - each["saved_share"])
    yield "\n| remedy | programs | median of predicted − measured | largest |\n|---|---|---|---|"
    for name, known in sorted(errors.items()):
        median = sorted(known)[len(known) // 2]
        yield f"| {name} | {len(known)} | {median * 100:+.0f} points | {max(known, key=abs) * 100:+.0f} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    program = commands.add_parser("program")
    program.add_argument("name", choices=PROGRAMS)
    program.add_argument("variant", choices=("faulty", "mended"))
    runner = commands.add_parser("run")
    runner.add_argument("folder")
    runner.add_argument("--part", default="0/1")
    runner.add_argument("--variants", default="faulty,mended")
    runner.add_argument("--names")
    runner.add_argument("--seconds", type=float, default=1e9)
    runner.add_argument("--repeat", type=int, default=0)
    runner.add_argument("--cpu", action="store_true")
    commands.add_parser("report").add_argument("folder")
    options = parser.parse_args()
    if options.command == "program":
        run_program(options.name, options.variant)
    elif options.command == "run":
        return run_all(options)
    else:
        print(report(options.folder), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
