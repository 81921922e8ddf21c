"""Reference numbers from PyTorch and transformers, in real float64 or in float32.

transformers casts to float32 inside norms, rotary tables and softmax whatever the model's type is, so `model.double()`
alone is not a float64 model. `Float64Everywhere` turns those casts into float64, and `RefuseFloat32` proves that no
float32 tensor came out of any operator, forward or backward, of a float64 pass.
"""

import contextlib
import dataclasses
import json
import pathlib
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

IGNORED = -1
DECAY_MIN_DIMS = 2


class Float64Everywhere(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        widen = lambda value: torch.float64 if value is torch.float32 else value
        return func(*tree_map(widen, args), **tree_map(widen, kwargs or {}))


class RefuseFloat32(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.float32, torch.bfloat16, torch.float16):
                raise AssertionError(f"{func} made a {leaf.dtype} tensor inside a float64 reference")
        return result


@contextlib.contextmanager
def arithmetic(dtype):
    if dtype is not torch.float64:
        yield
        return
    with Float64Everywhere(), RefuseFloat32():
        yield


def build(model_class, config, dtype, weights):
    """The model in `dtype` with the given f32 weights (a dict by state-dict name, tied copies left out)."""
    torch.set_default_dtype(dtype)
    try:
        with Float64Everywhere() if dtype is torch.float64 else contextlib.nullcontext():
            model = model_class._from_config(config, attn_implementation="eager", dtype=dtype)
    finally:
        torch.set_default_dtype(torch.float32)
    parameters = dict(model.named_parameters())
    assert parameters.keys() == weights.keys(), sorted(parameters.keys() ^ weights.keys())
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])
    for name, buffer in model.named_buffers():
        assert not buffer.is_floating_point() or buffer.dtype == dtype, name
    return model.eval()


def written_config(model_class, config, weights):
    """config.json as transformers writes it, and the check that it would store exactly these tensors under these names."""
    model = build(model_class, config, torch.float32, weights)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        stored = load_file(pathlib.Path(folder) / "model.safetensors")
        written = json.loads((pathlib.Path(folder) / "config.json").read_text())
    assert stored.keys() == weights.keys(), sorted(stored.keys() ^ weights.keys())
    for name, tensor in stored.items():
        assert torch.equal(tensor, weights[name]), name
    return written


def block_diagonal_mask(segments, dtype):
    """[B, 1, T, T], to be added to the scores: 0 within a document and not ahead, the lowest number elsewhere."""
    length = segments.shape[-1]
    seen = (segments[:, :, None] == segments[:, None, :]) & torch.ones(length, length, dtype=torch.bool).tril()
    return torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)[:, None]


def forward(model, batch):
    """Logits and the loss (mean over positions whose label is not ignored). batch: one micro-batch, no leading dim."""
    inputs = {name: batch[name].long() for name in ("input_ids", "position_ids", "token_type_ids", "attention_mask") if name in batch}
    if "segment_ids" in batch:
        inputs["attention_mask"] = block_diagonal_mask(batch["segment_ids"], model.dtype)
    if not model.config.is_encoder_decoder and model.config.model_type != "bert":
        inputs["use_cache"] = False
    logits = model(**inputs).logits
    loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten().long(), ignore_index=IGNORED)
    return logits, loss


def pick(batches, step):
    count = batches["input_ids"].shape[0]
    return {name: tensor[step % count] for name, tensor in batches.items()}


def gradients(model, batch):
    with arithmetic(model.dtype):
        logits, loss = forward(model, batch)
        loss.backward()
    found = {name: parameter.grad.detach().clone() for name, parameter in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return logits.detach(), loss.detach(), found


@dataclasses.dataclass
class Optimizer:
    lr: float
    betas: tuple = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0
    warmup: int = 0

    def rate(self, step):
        """Step counts from 0; the first of `warmup` steps already moves."""
        return self.lr * min(1.0, (step + 1) / self.warmup) if self.warmup else self.lr

    def make(self, model):
        parameters = list(model.parameters())
        groups = [
            {"params": [p for p in parameters if p.dim() >= DECAY_MIN_DIMS], "weight_decay": self.weight_decay},
            {"params": [p for p in parameters if p.dim() < DECAY_MIN_DIMS], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.lr, betas=self.betas, eps=self.eps, foreach=False, fused=False)


def train(model, batches, settings, steps):
    """Losses before each update, and the gradient norms before clipping."""
    optimizer = settings.make(model)
    losses, norms = [], []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = settings.rate(step)
        with arithmetic(model.dtype):
            _, loss = forward(model, pick(batches, step))
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip, foreach=False)
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        norms.append(norm.item())
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)
