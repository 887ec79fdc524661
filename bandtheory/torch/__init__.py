"""Clip rules as tensor operations: log-ratio and ratio bounds, and the clipped policy-gradient loss.

    from bandtheory.torch import log_bounds, policy_loss

    bounds = log_bounds(old_logp, "band:kl:0.05:10")                                # once a batch
    loss, statistics = policy_loss(logp, old_logp, advantages, mask, rule=bounds)   # every inner update

`bounds` gives the same bounds as ratios. Tensors in, tensors out, on their own device, without a host synchronisation (but for
typed generators that doubles cannot evaluate everywhere, which go through the host). Needs the extra `bandtheory[torch]`.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        "bandtheory.torch needs PyTorch: install torch, or the extra bandtheory[torch] (in a checkout: pip install '.[torch]')"
    ) from error

from bandtheory.rules import TableRule
from bandtheory.torch.bounds import TensorBounds, bounds, log_bounds
from bandtheory.torch.losses import ClipStatistics, policy_loss

__all__ = ["ClipStatistics", "TableRule", "TensorBounds", "bounds", "log_bounds", "policy_loss"]
