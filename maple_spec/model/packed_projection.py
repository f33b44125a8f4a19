"""A ternary projection whose weight stays packed: what serves a large model, slowly, where no kernel was built."""

from __future__ import annotations

from torch import Tensor, nn

from maple_spec import kernels


class PackedProjection(nn.Module):
    """x W^T for ternary W of two bits a weight, unpacked anew for every product."""

    def __init__(self, words: Tensor, row_scale: Tensor) -> None:
        """words: uint32 [out, in / 16] as in the official layout; row_scale: float32 [out]."""
        super().__init__()
        self.register_buffer("words", words, persistent=False)
        self.register_buffer("row_scale", row_scale, persistent=False)
        self.words: Tensor
        self.row_scale: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """[T, in] -> [T, out]; an expert that no token chose is not unpacked."""
        if x.shape[0] == 0:
            return x.new_empty(0, self.words.shape[0])
        return kernels.ternary_matmul(x, self.words, self.row_scale)
