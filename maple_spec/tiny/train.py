"""Train maple-tiny from nothing: `python -m maple_spec.tiny.train --out runs/maple-tiny`.

Every document is drawn from a seed, so a run can be killed at any moment and started again by the same command: it goes on
from its last saved state. Two processes of one thread each share every step. With the defaults it takes two to three hours on
two cores that multiply bfloat16, five to six on others. `--start FOLDER` begins with the weights of a checkpoint in place of
random ones.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from maple_spec.checkpoints.weights import TERNARY
from maple_spec.tiny.batches import Batch, batches
from maple_spec.tiny.export import export, restore
from maple_spec.tiny.fused import fused
from maple_spec.tiny.muon import Muon
from maple_spec.tiny.network import Network, Shape
from maple_spec.tiny.tokenizer import load_or_learn


@dataclass(frozen=True)
class Plan:
    """The settings of a run."""

    out: Path
    steps: int = 3800
    tokens: int = 4096  # a step and process
    processes: int = 2
    seed: int = 0
    lr: float = 0.02  # Muon, ternary matrices
    lr_rest: float = 0.003  # AdamW, everything else
    constant: float = 0.4  # share of the steps before the rate begins its way to 0
    warm_up: int = 40
    first_pools: int = 4  # pools of short copy and arithmetic documents, before the whole mixture
    aside: float = 0.1  # weight of prompt tokens in the loss
    save_every: int = 50
    start: Path | None = None  # folder of a checkpoint to begin with
    stop_after: int | None = None  # end the process at this step; the same command goes on from there


@fused
def _loss(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    return (F.cross_entropy(logits.float(), targets, reduction="none") * weights).sum()


class Run:
    """One process of a run."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan, self.rank = plan, rank
        shape = Shape()
        self.tokenizer = load_or_learn(plan.out / "tokenizer.json", shape.vocab_size)
        torch.manual_seed(plan.seed)
        self.network = Network(shape)
        named = dict(self.network.named_parameters())
        matrices = [p for name, p in named.items() if name.split(".")[-1] in TERNARY]
        self.rest = [p for name, p in named.items() if name.split(".")[-1] not in TERNARY]
        self.optimizers: list[torch.optim.Optimizer] = [
            Muon(matrices, lr=plan.lr),
            torch.optim.AdamW(self.rest, lr=plan.lr_rest, betas=(0.9, 0.95), weight_decay=0.0, foreach=True),
        ]
        self.base = [plan.lr, plan.lr_rest]
        self.step, self.place, self.seconds = 0, (0, 0), 0.0
        if self.state_path.exists():
            self._load()
        elif plan.start is not None:
            restore(self.network, plan.start)

    @property
    def state_path(self) -> Path:
        """Where the state lies, written whole or not at all."""
        return self.plan.out / "state.pt"

    def _load(self) -> None:
        state = torch.load(self.state_path, weights_only=True)
        self.network.load_state_dict(state["network"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.place, self.seconds = state["step"], tuple(state["place"]), state["seconds"]

    def save(self) -> None:
        """Keep the state and the weights as they would ship."""
        state: dict[str, Any] = {
            "network": self.network.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers],
            "step": self.step,
            "place": self.place,
            "seconds": self.seconds,
        }
        torch.save(state, self.state_path.with_suffix(".tmp"))
        os.replace(self.state_path.with_suffix(".tmp"), self.state_path)
        export(self.network, self.tokenizer, self.plan.out / "checkpoint")

    def rate(self) -> float:
        """The learning rate as a share of its height."""
        done, flat = self.step / self.plan.steps, self.plan.constant
        return min(1.0, (self.step + 1) / self.plan.warm_up, max(0.01, (1 - done) / (1 - flat)))

    def learn(self, batch: Batch) -> tuple[float, float]:
        """One step over this process's batch; returns the loss summed over the tokens to be said, and their number."""
        made = self.network.rounded()
        leaves = {name: weight.detach().requires_grad_() for name, weight in made.items()}
        logits, balance = self.network(batch.inputs, leaves)
        targets, weights = batch.targets.view(-1), batch.weights.view(-1)
        total = weights.sum()
        loss = _loss(logits, targets, weights)
        (loss / total + 0.01 * balance).backward()
        torch.autograd.backward(list(made.values()), [leaf.grad for leaf in leaves.values()])
        self._share_gradients()
        torch.nn.utils.clip_grad_norm_(self.rest, 1.0)
        for optimizer, base in zip(self.optimizers, self.base, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = base * self.rate()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.place = (batch.pool, batch.place + 1)
        return float(loss.detach()), float(total)

    def _share_gradients(self) -> None:
        if not dist.is_initialized():
            return
        grads = [p.grad for p in self.network.parameters() if p.grad is not None]
        flat = torch.cat([g.view(-1) for g in grads]).to(torch.bfloat16)
        dist.all_reduce(flat)
        start = 0
        for grad in grads:
            grad.copy_(flat[start : start + grad.numel()].view_as(grad)).div_(dist.get_world_size())
            start += grad.numel()


def _work(rank: int, plan: Plan) -> None:
    """The whole of one process."""
    torch.set_num_threads(1)
    if plan.processes > 1:
        rendezvous = f"file://{plan.out.resolve()}/rendezvous"
        dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=plan.processes)
    run = Run(plan, rank)
    stream = batches(
        run.tokenizer,
        f"{plan.seed}:{rank}",
        first_pools=plan.first_pools if plan.start is None else 0,
        tokens=plan.tokens,
        aside=plan.aside,
        start=run.place,
    )
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
    )
    began, mean = time.monotonic() - run.seconds, 0.0
    with Progress(*columns, disable=rank > 0) as progress:
        bar = progress.add_task("maple-tiny", total=plan.steps, completed=run.step)
        last = plan.steps if plan.stop_after is None else min(plan.stop_after, plan.steps)
        while run.step < last:
            loss, total = run.learn(next(stream))
            mean = loss / total if mean == 0 else 0.97 * mean + 0.03 * loss / total
            run.seconds = time.monotonic() - began
            progress.update(bar, completed=run.step, description=f"loss {mean:.3f}")
            if rank == 0 and run.step % 50 == 0:
                progress.console.log(f"step {run.step} loss {mean:.4f} rate {run.rate():.3f} minutes {run.seconds / 60:.1f}")
            if rank == 0 and (run.step % plan.save_every == 0 or run.step == last):
                run.save()
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description="Train maple-tiny from nothing, or go on with a run that was stopped.")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/maple-tiny"), help="folder of the run: state, tokenizer, checkpoint/"
    )
    parser.add_argument("--start", type=Path, help="folder of a checkpoint whose weights and tokenizer to begin with")
    numbers = {"steps": int, "processes": int, "tokens": int, "seed": int, "lr": float, "lr_rest": float, "constant": float}
    for name, kind in numbers.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=getattr(Plan, name))
    parser.add_argument("--stop-after", type=int, help="stop at this step; the same command goes on from there")
    plan = Plan(**vars(parser.parse_args()))
    plan.out.mkdir(parents=True, exist_ok=True)
    (plan.out / "rendezvous").unlink(missing_ok=True)
    tokenizer = plan.out / "tokenizer.json"
    if plan.start is not None and not tokenizer.exists():
        shutil.copy(plan.start / "tokenizer.json", tokenizer)
    load_or_learn(tokenizer, Shape().vocab_size)
    if plan.processes == 1:
        _work(0, plan)
    else:
        spawn(_work, args=(plan,), nprocs=plan.processes)  # type: ignore[no-untyped-call]  # torch leaves it untyped


if __name__ == "__main__":
    main()
