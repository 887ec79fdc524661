"""Fixtures of the tensor tests."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from bandtheory.torch import policy_loss


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Short tensor operations split over threads take longer, by orders of magnitude on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def random_batch() -> Callable[..., dict[str, Tensor]]:
    """Random arguments of `policy_loss`: probabilities over four decades, ratios on both sides of any bound, one empty row."""

    def make(seed: int, *, shape: tuple[int, ...] = (5, 7), dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        old_logp = -9.2 * torch.rand(shape, generator=generator, dtype=torch.float64)
        logp = (old_logp + 0.7 * torch.randn(shape, generator=generator, dtype=torch.float64)).clamp(max=-1e-3)
        advantages = torch.randn(shape, generator=generator, dtype=torch.float64)
        mask = torch.rand(shape, generator=generator) < 0.7
        mask[..., 1, :] = False
        return {"logp": logp.to(dtype), "old_logp": old_logp.to(dtype), "advantages": advantages.to(dtype), "mask": mask}

    return make


@pytest.fixture(scope="session")
def loss_and_gradient() -> Callable[..., tuple[Tensor, Tensor]]:
    """`policy_loss` and its gradient with respect to `logp`."""

    def compute(batch: dict[str, Tensor], **options: object) -> tuple[Tensor, Tensor]:
        logp = batch["logp"].detach().clone().requires_grad_()
        loss, _ = policy_loss(**{**batch, "logp": logp}, **options)
        loss.backward()
        return loss.detach(), logp.grad

    return compute
