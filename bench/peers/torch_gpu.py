"""The peer of our training step on a GPU: GPT-2 in PyTorch, bf16 autocast, fused AdamW, clipping, the loss read after each step.

    python bench/peers/torch_gpu.py --size gpt2 --batch 32 --mode compile
    python bench/peers/torch_gpu.py --size gpt2-xl --batch 16 --mode compile --checkpoint

Prints one line of JSON. `--checkpoint` keeps the input of each block alone and makes the rest again; blocks are then compiled one by one,
which gives them one code for all.
"""

import argparse
import json
import math
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

SIZES = {"gpt2": (12, 768, 12), "gpt2-xl": (48, 1600, 25)}
VOCABULARY = 50257
PADDED = 50304  # as PyTorch's users do: products with odd extents are slow


class Block(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        for linear in (self.qkv, self.projection, self.up, self.down):
            last = linear in (self.projection, self.down)
            nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * layers) if last else 0.02)
            nn.init.zeros_(linear.bias)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm_1(x)).split(width, dim=2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, width, heads, context, again):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(PADDED, width), nn.Embedding(context, width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.01)
        self.blocks = nn.ModuleList(Block(width, heads, layers) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.again = again

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return F.cross_entropy(F.linear(self.norm(x), self.tokens.weight).flatten(0, 1).float(), labels.flatten())


def compiled(model):
    if not model.again:
        return torch.compile(model)
    for block in model.blocks:
        block.compile()
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="gpt2")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--checkpoint", action="store_true", help="full recompute")
    arguments = parser.parse_args()
    start = time.perf_counter()
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    with torch.device("cuda"):
        model = Gpt2(*SIZES[arguments.size], arguments.sequence, arguments.checkpoint)
    run = compiled(model) if arguments.mode == "compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    data = torch.randint(VOCABULARY, (arguments.batch, arguments.sequence + 1), device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(data[:, :-1], data[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    losses, times = [step()], []
    first = time.perf_counter() - start
    for _ in range(arguments.steps + 4):
        begin = time.perf_counter()
        losses.append(step())
        times.append(time.perf_counter() - begin)
    kept = times[4:]
    print(json.dumps({"median": statistics.median(kept), "best": min(kept), "bytes": torch.cuda.max_memory_allocated(),
                      "first_step_seconds": first, "first_loss": losses[0], "last_loss": losses[-1], "version": torch.__version__}))


main()
