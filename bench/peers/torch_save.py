"""torch.save of GPT-2 124M with AdamW's state, f32: the time for which a training loop that calls it stands still.

    python bench/peers/torch_save.py --folder /tmp/x --steps 5
"""

import argparse
import os

import protocol


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    protocol.add_arguments(parser)
    parser.add_argument("--folder", default="/tmp")
    return parser.parse_args()


arguments = parse()
protocol.limit_threads(arguments.threads)

import torch  # noqa: E402  (after the thread limits)


def shapes(layers=12, width=768, vocab=50257, context=1024):
    norm = [(width,), (width,)]
    block = norm + [(width, 3 * width), (3 * width,), (width, width), (width,)] + norm + [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(vocab, width), (context, width)] + block * layers + norm


def main():
    tensors = {f"p{index}": torch.randn(shape) for index, shape in enumerate(shapes())}
    moments = {name: {"step": torch.tensor(1.0), "exp_avg": torch.randn_like(value), "exp_avg_sq": torch.randn_like(value)}
               for name, value in tensors.items()}
    path = os.path.join(arguments.folder, "torch_save.pt")
    size = 3 * sum(value.numel() * 4 for value in tensors.values())
    protocol.serve(arguments, lambda: torch.save({"model": tensors, "optimizer": moments}, path), lambda best: {"bytes": size, "bytes_per_second": size / best})
    os.remove(path)


main()
