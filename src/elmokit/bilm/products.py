"""Matrix products by oneDNN, with weights that can be laid out for it beforehand.

torch has no public way to these (its own compiler uses them), so they are tried once before they are trusted;
where they are not to be had, the plain products do.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["linear", "packed", "packing_works", "product", "product_and_sum"]


def packed(weight: Tensor) -> Tensor:
    """A weight (out, in) in oneDNN's own layout, which only the products here understand."""
    found: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, 32)
    return found


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (n, in) times a weight (out, in), packed or plain -> (n, out)"""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found


def product_and_sum(x: Tensor, weight: Tensor, other: Tensor) -> Tensor:
    """The same, and other (n, out) added to it."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, other, weight, None, "add")
    return found


@functools.cache
def packing_works() -> bool:
    """Whether these products can be had here, and are right."""
    if not torch.backends.mkldnn.is_available():
        return False
    rng = torch.Generator().manual_seed(0)
    x, weight, other = (torch.randn(size, generator=rng) for size in ((9, 5), (12, 5), (9, 12)))
    wanted = x @ weight.t()
    try:
        laid_out = packed(weight)
        found = [product(x, laid_out), product(x, weight), product_and_sum(x, laid_out, other) - other]
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    return all(torch.allclose(each, wanted, rtol=1e-4, atol=1e-5) for each in found)


def linear(x: Tensor, layer: torch.nn.Linear) -> Tensor:
    """``layer(x)``; where nothing is to be learnt, by the faster product."""
    if torch.is_inference_mode_enabled() and len(x) and packing_works():
        return product(x, layer.weight, layer.bias)
    return F.linear(x, layer.weight, layer.bias)
