"""What counts as a step: an optimizer's step, or the call of a function."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.profiler_runs.conftest import Start


def test_a_function_of_the_script(start: Start) -> None:
    script = """
import torch
class Loop:
    @staticmethod
    def quick(x): return x + 1
    def step(self, depth=2):
        torch.ones(2).mul(3)
        return self.step(depth - 1) if depth else depth  # a recursive call is not a step
def main():
    loop = Loop()
    for _ in range(9): loop.step(); Loop.quick(torch.ones(1))
if __name__ == "__main__":
    try:
        def other(): pass
    finally:
        main()
"""
    steps = start(script, "--step", "__main__:Loop.step", "--active", "2")
    quick = start(script, "--step", "__main__:Loop.quick", "--active", "2")
    missing = start(script, "--step", "__main__:Loop.walk")
    named = start(script, "--step", "script:Loop.step", "--active", "2")  # as one would import it
    assert steps.wait() == 0, steps.err
    assert steps.steps() == [3, 4]
    assert steps.names().count("aten::mul") == 6
    assert named.wait() == 0, named.err
    assert named.steps() == [3, 4]
    assert quick.wait() == 0, quick.err
    assert quick.names().count("aten::mul") == 6
    assert missing.wait() == 2
    assert "does not define walk" in missing.err
    assert not (missing.folder / "runs").exists()


def test_a_function_of_another_module(start: Start, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").touch()
    (tmp_path / "lib" / "work.py").write_text(
        "import torch\ndef step(x): return x * 2\nclass Net(torch.nn.Module):\n    def forward(self, x): return x + 1\n"
    )
    script = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import torch
from lib.work import step, Net
net = Net()
for number in range(9): step(net(torch.ones(1)))
print("end")
"""
    module = start(script, "--step", "lib.work:step", "--then", "finish")
    method = start(script, "--step", "lib.work:Net.forward")
    absent = start(script, "--step", "lib.work:stop")
    never = start(script, "--step", "no.such.module:step")
    assert module.wait() == 0, module.err
    assert module.steps() == [3, 4, 5]
    assert module.out == "end\n"
    assert method.wait() == 0, method.err
    assert method.names().count("aten::add") == 3
    assert absent.wait() == 0
    assert "has no function stop" in absent.err
    assert never.wait() == 0
    assert "nothing was recorded: no.such.module:step was never called" in never.err


def test_a_coroutine_function(start: Start) -> None:
    script = """
import asyncio, torch
async def step():
    torch.ones(1).exp()
    await asyncio.sleep(0)
async def main():
    for _ in range(9): await step()
asyncio.run(main())
"""
    run = start(script, "--step", "__main__:step", "--then", "finish")
    assert run.wait() == 0, run.err
    assert run.names().count("aten::exp") == 3


@pytest.mark.long
def test_code_that_is_compiled(start: Start) -> None:
    """Counting never breaks a graph, which fullgraph=True would report. Such calls do not count, which is logged."""
    script = """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def forward(x): return model(x).sum()
@torch.compile(backend="eager", fullgraph=True)
def whole(x): return forward(x)
@torch.compile(backend="eager")
def update(): optimizer.step()
for _ in range(9): whole(torch.ones(1, 2)).backward(); update()
print("end")
"""
    inner = start(script, "--step", "__main__:forward")
    outer = start(script, "--step", "__main__:whole", "--then", "finish")
    optimizer = start(script, "--step", "optimizer", "--then", "finish")
    for run in (inner, outer, optimizer):
        assert run.wait() == 0, run.err
        assert run.out == "end\n"
    assert "__main__:forward was never called (calls from compiled code" in inner.err
    assert outer.steps() == [3, 4, 5]
    # torch.compile does not compile an optimizer's step, and skips the counting functions.
    assert optimizer.steps() == [3, 4, 5]
    assert "Dynamo does not know" not in optimizer.err


def test_several_optimizers_make_one_step_a_loop(start: Start) -> None:
    script = """
import torch
class Both(torch.optim.SGD):
    def step(self, closure=None): return super().step(closure)
def make(kind): return kind(torch.nn.Linear(2, 2).parameters(), lr=0.1)
first, second = make(torch.optim.SGD), make(Both)
for _ in range(9):
    torch.ones(1).exp(); first.step(); second.step()
third = make(torch.optim.Adam)
for _ in range(20): torch.ones(1).log(); third.step()
"""
    run = start(script, "--wait", "8", "--active", "3")
    assert run.wait() == 0, run.err
    # Step 8 warms up; 9, 10, 11 are recorded: the replacement is counted from its third step on.
    assert run.steps() == [9, 10, 11]
    assert run.names().count("aten::log") >= 3
