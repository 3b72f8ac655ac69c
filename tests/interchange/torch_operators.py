"""PyTorch's operators as functions of one tensor of shape (batch, 4, 6, 6)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def _write(write: Callable[[Tensor], object]) -> Callable[[Tensor], Tensor]:
    """A tensor after a write, and a view of it that was taken before."""

    def function(x: Tensor) -> Tensor:
        y = x * 2
        before = y[:, 1:, :2].mT
        write(y)
        return y.flatten(1).sum(1) + before.prod(1).flatten(1)[:, 1] * y[:, 1, 1, 1]

    return function


WRITES: list[Callable[[Tensor], Tensor]] = [_write(w) for w in (
    lambda y: y.add_(1), lambda y: y[:, 1:].mul_(3), lambda y: y[:, 0].fill_(2.5),
    lambda y: y[:, :, ::2, -1].zero_(), lambda y: y.view(-1)[5:].relu_(),
    lambda y: y.transpose(1, 3)[..., 2].copy_(y[:, 0].flatten(1)[:, :1, None]),
    lambda y: y.flatten(1).unsqueeze(1).permute(1, 2, 0)[0, 7].sub_(4),
    lambda y: y.split([1, 3], 1)[1].unbind(2)[1].clamp_(-0.5, 0.5),
    lambda y: y.masked_fill_(y > 1, 0.3), lambda y: y[:, 1].add_(y[:, 2]).mul_(y[:, 3]),
    lambda y: y.__setitem__((slice(None), 1, torch.tensor([0, 2])), y[:, 2, :2]),
    lambda y: y[:, 1].__setitem__((slice(None), torch.tensor([0, 1]), torch.tensor([1, 1])), 0.25),
    lambda y: F.dropout(y[:, 1], training=False, inplace=True).exp_(),
    lambda y: y.__setitem__(y < 0, 0.0), lambda y: y.mul_((y > 0).int()))]


def _reshaped(x: Tensor) -> Tensor:  # copies what has no view in that shape, as a transposed tensor
    y = x * 2
    copy, view = y.mT.reshape(y.shape[0], -1), y[:, 1:].reshape(y.shape[0], -1)
    view.clamp_(-0.5, 0.5)
    return torch.cat([copy, view, y.flatten(1)], 1)


_CLASSES = torch.tensor([0.5, 1.0, 2.0, 0.3])
_TABLE = torch.arange(30.0).reshape(10, 3).sin()


def _rows(x: Tensor) -> Tensor:
    return (x[:, 0, 0].abs() * 2).long()


def _pairs(x: Tensor) -> Tensor:
    return torch.view_as_real(x.resolve_conj())


FUNCTIONS: list[Callable[[Tensor], Tensor]] = [
    # -- each element by itself
    torch.abs, torch.neg, F.relu, torch.sigmoid, torch.tanh, torch.exp, torch.sin, torch.cos,
    torch.atan, torch.asinh, torch.erf, torch.floor, torch.round, torch.sign, torch.reciprocal,
    F.hardswish, F.mish, F.selu, torch.square, F.silu, F.gelu, F.elu, F.celu, F.leaky_relu,
    F.hardsigmoid, F.softplus, F.logsigmoid, F.hardtanh, F.relu6, torch.expm1, torch.exp2,
    lambda x: F.gelu(x, approximate="tanh"), lambda x: F.softplus(x, beta=2.0),
    lambda x: x.clamp(-0.3, 0.4), lambda x: x.clamp(min=0.1), lambda x: x.clamp_max(0.2),
    lambda x: torch.isnan(x).float(), lambda x: (x > 0.2).to(torch.int32),
    lambda x: (x.abs() + 1).rsqrt() + (x.abs() + 1).log2() + (x.abs() + 1).log10(),
    lambda x: x.abs().sqrt() + x.abs().log1p(),
    lambda x: F.prelu(x, torch.tensor([0.1, 0.2, 0.3, 0.4])),
    lambda x: F.dropout(x, training=False), lambda x: x.contiguous().clone().detach(),
    # -- of two tensors, and of numbers
    lambda x: 2 - x, lambda x: torch.add(x, x, alpha=2.5),
    lambda x: torch.sub(x, x * x, alpha=0.5),
    lambda x: x / 3, lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    lambda x: torch.div(x, 0.3, rounding_mode="trunc"), lambda x: x // 0.3, lambda x: x % 0.3,
    lambda x: torch.fmod(x, 0.3), lambda x: x**2, lambda x: (x.abs() + 0.1) ** x, lambda x: 2**x,
    lambda x: torch.maximum(x, x * x) + torch.minimum(x, x * x),
    lambda x: ((x == x.round()) | (x > 0) & (x < 0.5) | (x != x) | ~(x >= 0.1) ^ (x <= 0.3)).float(),
    lambda x: torch.logical_and(x, x > 0).float() + torch.logical_not(x > 0)
    + torch.logical_xor(x > 0, x < 0.5),
    lambda x: torch.where(x > 0, x, x * x), lambda x: torch.where(x > 0, x, 0.5),
    lambda x: x.masked_fill(x > 0, -1.0), lambda x: (x * 8).int() // 3, lambda x: (x * 8).int() % 3,
    lambda x: (x * 8).int() & 3, lambda x: (x * 8).int() / 3, lambda x: ~(x * 8).int(),
    lambda x: x + x.shape[0],
    lambda x: torch.max(x, x * x) + torch.min(x, x * x), lambda x: x.lerp(x * x, 0.3),
    lambda x: torch.addcmul(x, x, x, value=0.5) + torch.addcdiv(x, x, x.abs() + 1),
    lambda x: torch.atan2(x, x.flip(3)) + torch.atan2((x * 3).int(), (x * 2).int()),
    lambda x: x.round(decimals=2) + (x * 90).round(decimals=-1), lambda x: (x * 8).int() << 2,
    lambda x: (x * 8).int() >> 1, lambda x: torch.bitwise_left_shift(3, (x * 4).abs().long()),
    lambda x: torch.bitwise_right_shift((x * 64).int(), (x * 3).abs().int()),
    lambda x: torch.logaddexp(x, x * x), lambda x: F.threshold(x, 0.1, 0.7),
    lambda x: F.softshrink(x) + F.hardshrink(x) + F.tanhshrink(x), lambda x: F.glu(x, 1),
    lambda x: x.trunc() + x.frac() + torch.erfc(x), lambda x: x.isfinite().float(),
    lambda x: (x / (x > 0)).nan_to_num(7.0, 8.0, -9.0), lambda x: x.clip(-0.1, 0.2),
    # -- shapes, order and parts
    lambda x: x.flatten(1), lambda x: x.flatten(1, 2), lambda x: x.unflatten(2, (2, 3)),
    lambda x: x.unflatten(-1, (2, -1)), lambda x: x[:, :1].squeeze(1),
    lambda x: x.unsqueeze(-1).expand(-1, -1, -1, -1, 3), lambda x: x.repeat(1, 2, 1, 3),
    lambda x: x.permute(0, 3, 1, 2), lambda x: x.transpose(-1, 1), lambda x: x.mT,
    lambda x: x.flip([1, 3]), lambda x: x.roll((2, -1, 9), (2, 3, 1)), lambda x: x[:, 1:3, ::2, -2:],
    lambda x: x[:, -1], lambda x: torch.cat(list(x.unbind(1)), -1),
    lambda x: torch.cat(x.split(3, 2), 1), lambda x: torch.stack(x.chunk(2, 3)[::-1], 1),
    lambda x: torch.stack([x.long(), x], 1), lambda x: x.flatten(1).roll(-200, 1)[:, :12] + torch.arange(12).roll(-30),
    lambda x: torch.cat(x.split([1, 5], 2)[::-1], 2), lambda x: x.narrow(2, 1, 3),
    lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"),
    lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"), lambda x: F.pad(x, (-1, 1)),
    lambda x: F.pixel_shuffle(x, 2), lambda x: x.tril(), lambda x: x.triu(1),
    lambda x: x[:, 0].reshape_as(x[:, 1].mT), lambda x: x[:, :1].broadcast_to(x.shape),
    lambda x: x.movedim(1, -1), lambda x: x.movedim((1, 2), (3, 1)), lambda x: x.tile(2, 1, 3),
    lambda x: x[:, :, :4] + sum(torch.meshgrid(torch.arange(6), torch.arange(4) * 9, indexing="xy")),
    lambda x: x.repeat_interleave(3, 1), lambda x: x.repeat_interleave(2, 3),
    lambda x: F.pixel_unshuffle(x, 2), lambda x: F.channel_shuffle(x, 2),
    # -- written in place: other tensors are in the same memory
    *WRITES, _reshaped,
    # -- by position, and from shapes
    lambda x: x.index_select(2, torch.tensor([2, 0, 5])), lambda x: x.gather(3, (x > 0).long()),
    lambda x: x[:, torch.tensor([1, 0])], lambda x: x[:, :, torch.tensor([True, False] * 3)],
    lambda x: x[:, torch.tensor([0, 1]), torch.tensor([3, 4])],
    lambda x: x.diagonal(0, 2, 3), lambda x: x.diagonal(-1, 3, 1),
    lambda x: F.one_hot((x > 0).long(), 3),
    lambda x: F.embedding((x > 0).long(), torch.arange(6.0).reshape(2, 3)),
    lambda x: x.new_zeros(x.shape[0], 3) + x.new_ones(x.shape[0], 1) + x[:, 0, :3, 0],
    lambda x: torch.ones_like(x) * torch.full_like(x, 3.0) + x + torch.zeros_like(x),
    lambda x: x * torch.linspace(-1, 2, 6), lambda x: x + torch.arange(6) + torch.arange(1, 7) + torch.arange(0, 3, 0.5),
    # -- reductions
    lambda x: x.sum(3), lambda x: x.sum((1, 2), keepdim=True), lambda x: x.mean((2, 3)),
    lambda x: x.amax(1) + x.amin(1), lambda x: x.max(2)[0] + x.max(2)[1],
    lambda x: x.min(3, keepdim=True)[0], lambda x: x.min(3)[1], lambda x: x.prod(3),
    lambda x: torch.logsumexp(x, (2, 3)), lambda x: x.argmax(2),
    lambda x: x.argmin(-1, keepdim=True), lambda x: (x > 0).any(2).float() + (x > -1).all(2),
    lambda x: x.var(3), lambda x: x.std((2, 3), keepdim=True), lambda x: x.var(1, unbiased=False),
    lambda x: torch.var_mean(x, 3)[0] + torch.var_mean(x, 3)[1], lambda x: x.norm(dim=2),
    lambda x: torch.linalg.vector_norm(x, 1, dim=(2, 3)), lambda x: x.cumsum(2),
    lambda x: x.topk(3, dim=3)[0], lambda x: x.topk(2, dim=2, largest=False)[1],
    lambda x: torch.logcumsumexp(x * 60, 1) + (x * 60).logcumsumexp(-1),
    lambda x: torch.bucketize(x.round(), torch.tensor([-1.0, 0.0, 1.0])),
    lambda x: torch.bucketize(x.round(), torch.tensor([-1.0, 0.0, 1.0]), right=True),
    lambda x: (x > 0).sum(3), lambda x: x.cumprod(1), lambda x: x.sort(2)[0] + x.sort(3)[1],
    lambda x: x.argsort(1, descending=True), lambda x: x.aminmax(dim=2)[1] + x.aminmax(dim=2)[0],
    lambda x: torch.linalg.vector_norm(x, float("inf"), dim=3),
    lambda x: torch.std_mean(x, 3)[0] + torch.std_mean(x, 3)[1],
    # -- products and attention
    lambda x: x @ x.mT, lambda x: torch.bmm(x[:, 0], x[:, 1]),
    lambda x: torch.einsum("bchw,bcwk->bhk", x, x),
    lambda x: torch.cdist(x[:, 0], x[:, 1, :5]) + torch.cdist(x, x[..., :5, :], p=1)[:, 0],
    lambda x: torch.cdist(x, x[:, :, :2], p=float("inf")),
    lambda x: x.scatter_reduce(3, (x[..., :2] > 0).long(), x[..., :2], "amax"),
    lambda x: torch.baddbmm(x[:, 0], x[:, 0], x[:, 1], beta=0.5, alpha=2.0),
    lambda x: F.scaled_dot_product_attention(x, x, x),
    lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.3),
    lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=(torch.arange(6) > 1)[None]),
    lambda x: F.scaled_dot_product_attention(x[:, 0], x[:, 1], x[:, 0],
                                             attn_mask=torch.ones(6, 6).tril()),
    lambda x: x + torch.outer(torch.arange(6), torch.arange(6)),
    # -- convolutions, pooling, images of other sizes
    lambda x: F.conv2d(x, torch.ones(2, 4, 2, 2), padding="same"),
    lambda x: F.conv1d(x[:, 0], torch.ones(2, 6, 2)),
    lambda x: F.conv3d(x[:, None], torch.ones(2, 1, 2, 2, 2), stride=(1, 2, 1)),
    lambda x: F.conv_transpose2d(x, torch.ones(4, 2, 3, 3), stride=2, padding=1, output_padding=1),
    lambda x: F.conv_transpose1d(x[:, 0], torch.ones(6, 2, 3)), lambda x: F.max_pool2d(x, 2),
    lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), lambda x: F.max_pool1d(x[:, 0], 2),
    lambda x: F.avg_pool2d(x, 3, 1, 1),
    lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    lambda x: F.avg_pool1d(x[:, 0], 2), lambda x: F.adaptive_avg_pool2d(x, 1),
    lambda x: F.adaptive_avg_pool2d(x, (3, 2)), lambda x: F.adaptive_max_pool2d(x, 1),
    lambda x: F.adaptive_avg_pool1d(x[:, 0], 1), lambda x: F.interpolate(x, scale_factor=2),
    lambda x: F.interpolate(x, size=(9, 4), mode="bilinear"),
    lambda x: F.interpolate(x, size=(9, 4), mode="bilinear", align_corners=True),
    lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"),
    lambda x: F.interpolate(x, scale_factor=(1.7, 0.7), mode="bilinear", align_corners=True),
    lambda x: F.interpolate(x[:, 0], scale_factor=2, mode="linear"),
    lambda x: F.interpolate(x, size=(4, 9), mode="bilinear", antialias=True),
    lambda x: F.interpolate(x, scale_factor=0.5, mode="bicubic", antialias=True),
    lambda x: F.grid_sample(x, x[..., :2].tanh(), align_corners=False),
    lambda x: F.grid_sample(x, x[..., :2], "nearest", "border", align_corners=True),
    lambda x: F.affine_grid(x[:, 0, :2, :3], [x.shape[0], 3, 5, 4], align_corners=False),
    lambda x: F.unfold(x, (2, 3), padding=1, stride=2, dilation=(1, 2)),
    lambda x: F.fold(F.unfold(x, 2, padding=1), (6, 6), 2, padding=1),
    # -- normalizations
    lambda x: F.layer_norm(x, (6,)),
    lambda x: F.layer_norm(x, (6, 6), weight=torch.ones(6, 6) * 2), lambda x: F.rms_norm(x, (6,)),
    lambda x: F.group_norm(x, 2), lambda x: F.instance_norm(x), lambda x: F.softmax(x, 1),
    lambda x: F.cosine_similarity(x[:, 0], x[:, 1], dim=1),
    lambda x: F.conv2d(x, torch._weight_norm(torch.arange(1.0, 9).reshape(1, 4, 2, 1), torch.ones(
        1, 1, 1, 1) * 3, 0)),
    lambda x: F.log_softmax(x, -1), lambda x: F.normalize(x, dim=1),
    # -- short formulas
    lambda x: x @ torch.linalg.multi_dot([x[0, 0], x[0, 1], x[0, 2]]),
    lambda x: x * torch.vdot(torch.ones(3), torch.arange(3.0)),
    lambda x: torch.logcumsumexp(x * 30, 2),
    lambda x: F.pairwise_distance(x[:, 0], x[:, 1]), lambda x: torch.hypot(x, x * 2),
    lambda x: torch.deg2rad(x) + torch.logit(x.sigmoid(), 1e-3),
    lambda x: torch.linalg.cross(x[:, :3], x[:, 1:], dim=1), lambda x: x + torch.eye(6),
    lambda x: x.kthvalue(2, 3)[0] + x.median(3, keepdim=True)[0][..., 0],
    # -- losses, each beside numbers with a row for each of the batch
    lambda x: F.mse_loss(x, x * 2) + F.l1_loss(x, x * 2, reduction="none"),
    lambda x: F.smooth_l1_loss(x, x * 2, beta=0.5) + F.huber_loss(x, x * 2, "none", 0.5),
    lambda x: F.binary_cross_entropy(x.sigmoid(), x.tanh().abs(), x[0], reduction="none"),
    lambda x: x + F.binary_cross_entropy_with_logits(x * 9, x.tanh().abs(), pos_weight=_TABLE[2:4].flatten()),
    lambda x: x + F.kl_div(x, x.relu(), reduction="batchmean") + F.kl_div(x, x, log_target=True),
    lambda x: x + F.cross_entropy(x, (x[:, 0] > 0).long(), _CLASSES, ignore_index=1, label_smoothing=0.1),
    lambda x: F.cross_entropy(x, (x[:, 1] > 0).long(), reduction="none", label_smoothing=0.1),
    lambda x: x + F.nll_loss(x, (x[:, 0] > 0).long(), _CLASSES),
    lambda x: x[:, 0, 0, 0] + F.nll_loss(x[:, :, 0, 0], (x[:, 0, 0, 0] > 0).long(), reduction="none"),
    lambda x: x + F.cross_entropy(x, x.softmax(1), _CLASSES, label_smoothing=0.2),
    lambda x: x + F.poisson_nll_loss(x, x.abs()) + F.poisson_nll_loss(x.abs(), x, log_input=False),
    lambda x: x + F.triplet_margin_loss(x[:, 0], x[:, 1], x[:, 2], swap=True),
    lambda x: x + F.margin_ranking_loss(x, x * 2, x.roll(1, 3).sign(), 0.1),
    # -- several positions, and matrices
    lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    lambda x: torch.tensordot(x, x[0], ([2, 3], [1, 2])), lambda x: x.diff(dim=2)[:, :, 1:] + x.diff(2, 2),
    lambda x: x.diff(append=x[..., :1], n=2),
    lambda x: x.round().cummax(2)[0] + x.round().cummax(2)[1],
    lambda x: x.round().cummin(-1)[0] + x.round().cummin(1)[1],
    lambda x: x.masked_scatter(x > 0, x * 2), lambda x: x.unfold(2, 3, 2), lambda x: x[:, :1, :1, :5] + x.histc(5, -2, 1),
    lambda x: x.renorm(2, 1, 4.0), lambda x: x.quantile(0.3, 2), lambda x: x.quantile(0.7, 3, interpolation="higher"),
    lambda x: torch.where(x > 0, x, torch.nan).nanquantile(0.3, 2, keepdim=True),
    lambda x: x.scatter_reduce(3, (x[..., :2] > 0).long(), x[..., 2:], "mean"),
    lambda x: x.scatter_reduce(3, (x[..., :2] > 0).long(), x[..., 2:], "mean", include_self=False),
    lambda x: x.scatter_reduce(3, (x[..., :2] > 0).long(), x[..., 2:4], "amax", include_self=False),
    lambda x: F.adaptive_max_pool1d(x[:, 0], 3), lambda x: F.adaptive_max_pool2d(x, (3, 4)),
    lambda x: F.adaptive_max_pool3d(x[:, None], (3, 2, 2)), lambda x: F.adaptive_avg_pool2d(x, (4, 5)),
    lambda x: F.adaptive_avg_pool3d(x[:, None], (3, 2, 4)),
    # -- matrices, complex numbers and bags of rows
    lambda x: torch.linalg.inv(x + 9 * torch.eye(6)), lambda x: torch.linalg.slogdet(x)[1],
    lambda x: torch.linalg.solve(x + 9 * torch.eye(6), x[:, 1:2]),
    lambda x: torch.linalg.solve(x[:, 0] + 9 * torch.eye(6), x[:, 1, 0]),
    lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(6)), lambda x: torch.linalg.qr(x)[1].abs(),
    lambda x: _pairs(torch.fft.fft(x)), lambda x: _pairs(torch.fft.ifft(x, norm="ortho")),
    lambda x: _pairs(torch.fft.rfft(x, n=5, dim=2, norm="forward")),
    lambda x: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(x).conj(), n=7),
    lambda x: _pairs(torch.fft.ifft2(torch.fft.fftn(x, dim=(1, 3)) - x)),
    lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 2, s=(6, 6)),
    lambda x: torch.fft.fftshift(torch.fft.fft(x), dim=-1).abs() + torch.fft.ifftshift(x, dim=2),
    lambda x: _pairs(torch.polar(x.abs(), x) / torch.complex(x * x + 1, x)),
    lambda x: torch.complex(x, x + 1).angle() + torch.fft.fft(x).real - torch.fft.fft(x).imag,
    lambda x: _pairs(torch.cat([torch.fft.fft(x)[..., 1:4], torch.fft.fft(x)[..., :3]], 1).sum(2)),
    lambda x: torch.stft(x.flatten(1), 16, 4, window=torch.hann_window(16),
                         return_complex=True).abs(),
    lambda x: F.embedding_bag(_rows(x), _TABLE, mode="sum", per_sample_weights=x[:, 1, 1]),
    lambda x: F.embedding_bag(_rows(x), _TABLE, mode="mean", padding_idx=1),
    lambda x: F.embedding_bag(_rows(x), _TABLE, mode="max", padding_idx=1),
    lambda x: _pairs(torch.add(torch.fft.fft(x) - 1, 2 + torch.fft.fft(x), alpha=3)),
    lambda x: F.rrelu(x),
    lambda x: F.bilinear(x[:, 0], x[:, 1], torch.arange(72.0).reshape(2, 6, 6).cos()),
    lambda x: x + F.cosine_embedding_loss(x[:, 0, 0], x[:, 1, 0], x[:, 0, 0, 1].sign(), 0.1),
    lambda x: x + F.hinge_embedding_loss(x, x.roll(1, 3).sign()) + F.soft_margin_loss(x, x.roll(1, 3).sign()),
    torch.linalg.det,
    lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[1],
    lambda x: torch.linalg.eigh(x @ x.mT)[0] + torch.linalg.eigvalsh(x + x.mT), torch.linalg.svdvals,
    lambda x: torch.linalg.svd(x)[1], lambda x: torch.linalg.matrix_power(x, 3),
    lambda x: torch.linalg.solve_triangular((x + 9 * torch.eye(6)).triu(), x, upper=True),
    lambda x: torch.linalg.solve_triangular(x + 9 * torch.eye(6), x, upper=False, left=False, unitriangular=True),
    # -- short formulas, and functions of matrices
    lambda x: torch.istft(torch.stft(x.flatten(1), 16, 4, window=torch.hann_window(16), normalized=True,
                                     return_complex=True), 16, 4, window=torch.hann_window(16),
                          normalized=True, length=140),
    lambda x: torch.matrix_exp(x * 3) / 100, lambda x: torch.linalg.pinv(x[:, :, :4]),
    lambda x: torch.linalg.pinv(x, rtol=0.3).mT + torch.linalg.matrix_rank(x)[..., None, None],
    lambda x: x[:, :, 0, 0] + torch.linalg.matrix_norm(x[0], "nuc") + torch.linalg.cond(x[0])
    + torch.linalg.matrix_norm(x[0], 1) + torch.linalg.norm(x[0], dim=(1, 2)),
    lambda x: torch.cholesky_solve(x, torch.linalg.cholesky(x @ x.mT + torch.eye(6))),
    lambda x: torch.linalg.solve(x + 9 * torch.eye(6), x, left=False) + torch.logdet(
        x @ x.mT + torch.eye(6))[..., None, None],
    lambda x: torch.addmv(x[0, 0, 0], x[0, 0], x[0, 0, 1], beta=2, alpha=0.5) + torch.addr(
        x[0, 0], x[0, 0, 0], x[0, 0, 1]) + torch.addbmm(x[0, 0], x[:, 0], x[:, 1]) + x,
    lambda x: torch.kron(x[0], x[0, 0, :2, :3]) + x[:, 1:2, :1, :1], lambda x: torch.inner(x, x[0, 0]) + torch.linalg.vecdot(x, x * 2)[..., None],
    lambda x: x + x[0].take_along_dim((x[0] > 0).long(), 2) + torch.take(x[0, 0], (x > 0).long() * 3 - 1),
    lambda x: x.index_fill(2, torch.tensor([0, -1]), 7.5), lambda x: torch.diag_embed(x, 1, 1, -1),
    lambda x: x + torch.diag(x[0, 0, 0]) + torch.diag(x[0, 0], 0) + torch.block_diag(x[0, 0, :5, :2], x[0, 0, 0, :4]),
    lambda x: x.scatter(3, (x[..., :2] > 0).long() * 2, x[..., :2], reduce="add"),
    lambda x: x.index_add(1, torch.tensor([0, 0]), x[:, :2], alpha=2),
    lambda x: x.tensor_split([1, 4], 2)[1] + x.hsplit(2)[1][:, :, :3].repeat(1, 2, 1, 1) + x.dsplit(3)[2].sum(),
    lambda x: x.tensor_split(4, 2)[1],
    lambda x: torch.hstack([x, x]) + torch.column_stack([x, x]), lambda x: torch.dstack([x, x]).roll(3),
    lambda x: torch.rot90(x, 1, (2, 3)) + x.flipud() + torch.atleast_3d(x),
    lambda x: F.avg_pool2d(x, 2, divisor_override=3) + x.argmax() + x[0].median() + torch.dist(x, x * 2),
    lambda x: torch.copysign(x, -x) + torch.fmax(x, x * 2) + torch.heaviside(x, x) + torch.xlogy(x.round(), x.abs())
    + torch.special.xlogy(x.round(), x.abs() + 1),
    lambda x: torch.erfinv(x.tanh() * 0.9) + torch.sinc(x) + torch.i0(x) + torch.special.ndtr(x),
    lambda x: torch.log1p(x.abs() * 1e-8) * 1e8 + torch.expm1(x * 1e-8) * 1e8 + torch.erfc(x.abs() + 5) * 1e11,
    lambda x: torch.isclose(x, x.round(), 0.1).float() + torch.isin(x.round(), torch.tensor([0.0, 1.0])),
    lambda x: torch.gcd((x * 9).int(), torch.tensor(6)) + torch.lcm((x * 9).int(), torch.tensor(6)) + torch.trace(x[0, 0]),
    lambda x: torch.nextafter(x, x * 2) + torch.signbit(x) + torch.logaddexp2(x, x * 2) + torch.isposinf(x)
    + torch.isneginf(x / 0.0) + x.nanmean(2, keepdim=True),
    lambda x: x.nansum(2) + torch.trapezoid(x, dim=2) + torch.count_nonzero(x.round(), 2),
    lambda x: x + torch.kaiser_window(6) + torch.blackman_window(6) + torch.fft.fftfreq(6) + torch.logspace(0, 1, 6),
    lambda x: _pairs(torch.fft.fft(x) @ torch.fft.fft(x).exp().reciprocal() * torch.tensor(1 + 2j)),
    lambda x: _pairs(torch.where(x > 0, torch.fft.fft(x), x).cumsum(1).gather(2, (x > 0).long())),
    # -- rarer modes
    lambda x: F.grid_sample(x[:, None], torch.stack([x, x / 2, x / 5], -1), padding_mode="border", align_corners=True),
    lambda x: F.softplus(x, 2, 1), lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest-exact"),
    lambda x: torch.linalg.vector_norm(x, 3, dim=2) + F.pairwise_distance(x, x * 2, p=3),
    lambda x: F.instance_norm(x, _CLASSES, _CLASSES + 1, use_input_stats=False),
    lambda x: F.grid_sample(x, x[..., :2], "bicubic", "border", align_corners=False),
    lambda x: F.grid_sample(x, x[..., 1:3], "bicubic", "border", align_corners=True),
]

# Operators at which run_decompositions() fails.
WHOLE: list[Callable[[Tensor], Tensor]] = [
    lambda x: F.affine_grid(x[:, 0, :3, :4], [x.shape[0], 3, 5, 1, 4], align_corners=True),
]
