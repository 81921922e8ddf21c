"""The peer of our training step: GPT-2 in PyTorch, AdamW, on the CPU.

    python bench/peers/torch_train.py --steps 5
    python bench/peers/torch_train.py --precision bf16 --compile --dropout 0.1 --interactive
    ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI python bench/peers/torch_train.py --precision bf16    # a CPU without bf16

The model is written the way a careful PyTorch user would: fused attention (`scaled_dot_product_attention`), tied head,
pre-norm blocks, the fused AdamW where this build has one, no gradient kept longer than needed. `--model transformers`
times GPT2LMHeadModel instead. One step is forward, backward, optional clipping, update and reading the loss.
"""

import argparse
import math
import os
import socket
import subprocess
import sys

import protocol

SIZES = {"gpt2": (12, 768, 12), "gpt2-medium": (24, 1024, 16), "gpt2-tiny": (4, 128, 4)}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    protocol.add_arguments(parser)
    parser.add_argument("--size", choices=SIZES, default="gpt2")
    parser.add_argument("--model", choices=["module", "transformers"], default="module")
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="bf16: autocast over f32 weights")
    parser.add_argument("--compile", action="store_true", help="torch.compile the forward and the loss")
    parser.add_argument("--ranks", type=int, default=1, help="data parallel over so many processes (gloo); --batch is that of all")
    parser.add_argument("--shard", action="store_true", help="FSDP2 instead of DDP")
    parser.add_argument("--clip", type=float, default=0.0, help="global gradient norm; 0 = off")
    return parser.parse_args()


arguments = parse()
protocol.limit_threads(arguments.threads)

import torch  # noqa: E402  (after the thread limits)
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        return self.projection(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        drop = lambda t: F.dropout(t, self.dropout, self.training) if self.dropout > 0 else t
        x = x + drop(self.attend(self.norm_1(x)))
        return x + drop(self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh")))


class Gpt2(nn.Module):
    def __init__(self, layers, width, heads, vocab, context, dropout):
        super().__init__()
        self.dropout = dropout
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.apply(self.initialise)
        for block in self.blocks:
            for linear in (block.projection, block.down):
                nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * layers))

    @staticmethod
    def initialise(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        if self.dropout > 0:
            x = F.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class FromTransformers(nn.Module):
    def __init__(self, layers, width, heads, vocab, context, dropout):
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        self.inner = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=width, n_head=heads, vocab_size=vocab, n_positions=context,
                                                resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
                                                bos_token_id=None, eos_token_id=None, use_cache=False))

    def forward(self, ids, labels):
        logits = self.inner(input_ids=ids, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def make_optimizer(model):
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    settings = dict(lr=3e-4, betas=(0.9, 0.95), eps=1e-8)
    try:
        return torch.optim.AdamW(groups, fused=True, **settings), "fused"
    except RuntimeError:
        return torch.optim.AdamW(groups, **settings), "default"


def join_ranks():
    """This process becomes one of `ranks`; the first starts the others, which do as it says until it ends."""
    if "RANK" not in os.environ:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        os.environ.update(RANK="0", WORLD_SIZE=str(arguments.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        for rank in range(1, arguments.ranks):
            subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(rank)}, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL)
    torch.distributed.init_process_group("gloo")
    return torch.distributed.get_rank()


def spread(model):
    if not arguments.shard:
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (arguments.ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    rank = join_ranks() if arguments.ranks > 1 else 0
    kind = Gpt2 if arguments.model == "module" else FromTransformers
    model = kind(*SIZES[arguments.size], arguments.vocab, arguments.context, arguments.dropout).train()
    parameters = sum(p.numel() for p in model.parameters())
    wrapped = spread(model) if arguments.ranks > 1 else model
    optimizer, flavour = make_optimizer(model)
    run = torch.compile(wrapped) if arguments.compile else wrapped
    stream = torch.randint(0, arguments.vocab, (arguments.batch, arguments.sequence + 1))
    share = arguments.batch // arguments.ranks
    stream = stream[rank * share:(rank + 1) * share]
    ids, labels = stream[:, :-1].contiguous(), stream[:, 1:].contiguous()
    losses = []

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.precision == "bf16"):
            loss = run(ids, labels)
        loss.backward()
        if arguments.clip > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), arguments.clip)
        optimizer.step()
        losses.append(loss.item())

    go = torch.zeros(1)
    if rank > 0:
        while torch.distributed.broadcast(go, 0) is None and go.item() > 0:
            step()
        return torch.distributed.destroy_process_group()

    def step_together():
        torch.distributed.broadcast(go.fill_(1), 0)
        step()

    def describe(best):
        return {"peer": f"torch {torch.__version__}", "model": arguments.model, "size": arguments.size,
                "parameters": parameters, "ranks": arguments.ranks, "shard": arguments.shard, "batch": arguments.batch, "sequence": arguments.sequence,
                "dropout": arguments.dropout, "precision": arguments.precision, "compile": arguments.compile, "clip": arguments.clip,
                "adamw": flavour, "cpu_capability": torch.backends.cpu.get_cpu_capability(),
                "first_loss": losses[0], "last_loss": losses[-1], "tokens_per_second": arguments.batch * arguments.sequence / best}

    protocol.serve(arguments, step if arguments.ranks == 1 else step_together, describe)
    if arguments.ranks > 1:
        torch.distributed.broadcast(go.fill_(0), 0)
        torch.distributed.destroy_process_group()


main()
