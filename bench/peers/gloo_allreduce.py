"""The peer of our all-reduce: torch.distributed with gloo, on processes of this machine.

    python bench/peers/gloo_allreduce.py --ranks 2 --bytes 67108864 --steps 10

Prints one line of JSON: the seconds of every step on rank 0, each begun after a barrier, as bench_allreduce does.
"""

import argparse
import json
import os
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
import torch  # noqa: E402  (after the thread limit)
import torch.distributed  # noqa: E402
import torch.multiprocessing  # noqa: E402


def run(rank, arguments, meeting):
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=arguments.ranks)
    data = torch.zeros(arguments.bytes // 4)
    seconds = []
    for step in range(arguments.warmup + arguments.steps):
        torch.distributed.barrier()
        start = time.perf_counter()
        torch.distributed.all_reduce(data)
        if step >= arguments.warmup:
            seconds.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps({"transport": f"gloo, torch {torch.__version__}", "ranks": arguments.ranks, "seconds": seconds}), flush=True)
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run, (arguments, os.path.join(folder, "meeting")), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
