"""The peers of our AdamW update: torch's fused AdamW and DeepSpeedCPUAdam, over GPT-2 124M's parameter shapes.

    python bench/peers/torch_adamw.py --peer torch --steps 10
    python bench/peers/torch_adamw.py --peer deepspeed --interactive

Parameters and gradients are f32 and all of one decay group, so that both peers do one pass over the same bytes: reads
of parameter, gradient and both moments, writes of all but the gradient (28 bytes a parameter). DeepSpeed builds its
kernel on first use with the system's compiler.
"""

import argparse
import os

import protocol


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    protocol.add_arguments(parser)
    parser.add_argument("--peer", choices=["torch", "torch-foreach", "deepspeed"], default="torch")
    parser.add_argument("--flat", action="store_true", help="one flat tensor instead of GPT-2's 148")
    return parser.parse_args()


arguments = parse()
protocol.limit_threads(arguments.threads)

import torch  # noqa: E402  (after the thread limits)

BYTES_PER_PARAMETER = 28
SETTINGS = dict(lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def gpt2_shapes(layers=12, width=768, vocab=50257, context=1024):
    norm = [(width,), (width,)]
    attention = [(width, 3 * width), (3 * width,), (width, width), (width,)]
    feed_forward = [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    block = norm + attention + norm + feed_forward
    return [(vocab, width), (context, width)] + block * layers + [(width,), (width,)]


def make_parameters():
    shapes = gpt2_shapes()
    if arguments.flat:
        shapes = [(sum(torch.Size(shape).numel() for shape in shapes),)]
    parameters = [torch.nn.Parameter(torch.empty(shape).normal_(std=0.02)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.empty_like(parameter).normal_(std=1e-3)
    return parameters


def make_optimizer(parameters):
    if arguments.peer == "torch":
        return torch.optim.AdamW(parameters, fused=True, **SETTINGS), f"torch {torch.__version__}"
    if arguments.peer == "torch-foreach":
        return torch.optim.AdamW(parameters, foreach=True, **SETTINGS), f"torch {torch.__version__}"
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("DS_IGNORE_CUDA_DETECTION", "1")
    import deepspeed
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    return DeepSpeedCPUAdam(parameters, adamw_mode=True, fp32_optimizer_states=True, **SETTINGS), f"deepspeed {deepspeed.__version__}"


def quiet_start():
    """DeepSpeed and its kernel's build write to standard output, which belongs to the protocol."""
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        parameters = make_parameters()
        return parameters, *make_optimizer(parameters)
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    parameters, optimizer, version = quiet_start()
    count = sum(p.numel() for p in parameters)

    def describe(best):
        return {"peer": version, "kind": arguments.peer, "parameters": count, "tensors": len(parameters),
                "parameters_per_second": count / best, "bytes_per_second": BYTES_PER_PARAMETER * count / best}

    protocol.serve(arguments, optimizer.step, describe)


main()
