"""The peer of our start: imports, a model folder loaded by transformers, AdamW made, the first batch ready to be trained on.

    python bench/peers/torch_start.py MODEL_FOLDER TOKENS.bin

Prints the time of day when the first training step would begin.
"""

import sys
import time

import torch
import transformers


def main():
    folder, tokens = sys.argv[1:3]
    torch.set_num_threads(2)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.train()
    torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    data = torch.from_file(tokens, dtype=torch.uint16, size=4 * 64 + 1).to(torch.int64)
    data[:-1].reshape(4, 64), data[1:].reshape(4, 64)
    print(time.time())


main()
