"""The peer of our generation: transformers' greedy search with its cache on the CPU, GPT-2 124M with random weights.

    python bench/peers/torch_generate.py --steps 3
    python bench/peers/torch_generate.py --interactive

A step is so many tokens behind a prompt, the prompt's own pass included, as in bench/generate.
"""

import argparse
import os

import protocol


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    protocol.add_arguments(parser)
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=32)
    return parser.parse_args()


arguments = parse()
protocol.limit_threads(arguments.threads)
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch  # noqa: E402  (after the thread limits)
import transformers  # noqa: E402


def main():
    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[arguments.precision]
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(eos_token_id=None)).to(dtype).eval()
    ids = torch.tensor([[100 * (place + 1) for place in range(arguments.prompt)]])
    options = dict(attention_mask=torch.ones_like(ids), do_sample=False, use_cache=True, max_new_tokens=arguments.tokens,
                   min_new_tokens=arguments.tokens, pad_token_id=0)

    def step():
        with torch.inference_mode():
            model.generate(ids, **options)

    def describe(best):
        return {"peer": f"transformers {transformers.__version__}, torch {torch.__version__}", "precision": arguments.precision,
                "tokens": arguments.tokens, "tokens_per_second": arguments.tokens / best}

    protocol.serve(arguments, step, describe)


main()
