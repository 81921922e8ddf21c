"""The peer of our training step on a GPU: GPT-2 in PyTorch, bf16 autocast, fused AdamW, clipping.

    python bench/peers/torch_gpu.py --size gpt2 --batch 32 --mode compile
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {"gpt2": (12, 768, 12), "gpt2-xl": (48, 1600, 25)}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm_1(x)).split(width, dim=2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, width, heads, vocab, context):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(F.linear(self.norm(x), self.tokens.weight).flatten(0, 1).float(), labels.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="gpt2")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    vocab = 50304  # padded, as PyTorch users do
    model = Gpt2(*SIZES[arguments.size], vocab, arguments.sequence).cuda()
    run = torch.compile(model) if arguments.mode == "compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    data = torch.randint(50257, (arguments.batch, arguments.sequence + 1), device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(data[:, :-1], data[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    times = []
    for _ in range(arguments.steps + 5):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    kept = times[5:]
    print(f"{1e3 * statistics.median(kept):.2f} ms (best {1e3 * min(kept):.2f}), {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


main()
