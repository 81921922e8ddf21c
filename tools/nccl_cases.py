"""The cases of tools/nccl_test.py: small models and layouts, and the faults that ranks are put through."""

from dataclasses import dataclass, field

MODEL = {"family": "gpt2", "layers": 4, "width": 64, "heads": 4, "context": 32, "vocab": 256}


@dataclass
class Layout:
    name: str
    ranks: int
    strategy: dict
    settings: dict = field(default_factory=dict)  # others, by key with dots
    near: float = 2e-5  # of a loss, where the order of sums is not the other's


def layouts():
    two, four, eight = {"data": 2}, {"data": 2, "tensor": 2}, {"data": 2, "tensor": 2, "pipe": 2}
    untied = {"model.tied": False}
    async_run = {"optimizer.clip": 0, "eval.every": 0, "checkpoint.every": 0}

    def pipe(name, strategy, settings=None):
        return Layout(f"pipe 2, {name}", 2, {"pipe": 2, "schedule": name, **strategy}, settings or {})

    return [
        Layout("data 2", 2, two),
        Layout("data 2, ZeRO 1", 2, {**two, "zero": 1}),
        Layout("data 2, ZeRO 2", 2, {**two, "zero": 2}),
        Layout("data 2, ZeRO 3", 2, {**two, "zero": 3}),
        Layout("data 2, ZeRO 3, each micro-batch reduced", 2, {**two, "zero": 3, "keep_grads": False}, {"batch.micro": 2}),
        Layout("tensor 2", 2, {"tensor": 2}, {"batch.micro": 8}),
        Layout("tensor 2, sequence parallel", 2, {"tensor": 2, "sequence_parallel": True}, {"batch.micro": 8}),
        pipe("naive", {}),
        pipe("gpipe", {}),
        pipe("1f1b", {}),
        pipe("interleaved", {"chunks": 2}),
        pipe("varuna", {}),
        pipe("zb-h1", {}),
        pipe("zb-h2", {"flush_every": 2}, async_run),
        pipe("pipedream", {"flush_every": 2}, {**async_run, **untied}),
        pipe("pipedream-vsync", {"flush_every": 2}, async_run),
        pipe("2bw", {"flush_every": 2}, async_run),
        Layout("own degrees: 2 + 1", 3, {"stages": [{"blocks": 2, "data": 2}, 2]}, untied),
        Layout("data 2, ZeRO 2, optimizer on the host", 2, {**two, "zero": 2, "offload": {"optimizer": "host"}}),
        Layout("data 2, ZeRO 3, weights on the host", 2, {**two, "zero": 3, "offload": {"optimizer": "host", "params": "host"}}),
        Layout("data 2, activations on the host", 2, {**two, "offload": {"activations": "host"}}),
        Layout("data 2, full recompute", 2, {**two, "recompute": "full"}),
        Layout("data 2, optimal recompute", 2, {**two, "recompute": "optimal", "recompute_memory": 0.6}),
        Layout("data 2, tiles", 2, {**two, "tile": 20000}, untied),
        Layout("data 2, ZeRO 2, bf16", 2, {**two, "zero": 2}, {"precision": "bf16"}, 2e-2),
        Layout("data 2, fp8", 2, two, {"precision": "fp8", "fp8.history": 4}, 2e-2),
        Layout("tensor 2, fp8", 2, {"tensor": 2}, {"precision": "fp8", "batch.micro": 8}, 2e-2),
        Layout("data 4, ZeRO 3", 4, {"data": 4, "zero": 3}),
        Layout("data 4, ZeRO 2 in groups of 2", 4, {"data": 4, "zero": 2, "zero_group": 2}),
        Layout("data 4, ZeRO 3 in groups of 2", 4, {"data": 4, "zero": 3, "zero_group": 2}),
        Layout("data 2 x tensor 2, ZeRO 1", 4, {**four, "zero": 1}),
        Layout("data 2 x pipe 2, zb-h1, ZeRO 2", 4, {**two, "pipe": 2, "schedule": "zb-h1", "zero": 2}),
        Layout("tensor 2 x pipe 2, 1f1b", 4, {"tensor": 2, "pipe": 2, "schedule": "1f1b"}),
        Layout("pipe 4, 1f1b", 4, {"pipe": 4, "schedule": "1f1b"}),
        Layout("data 8, ZeRO 3", 8, {"data": 8, "zero": 3}, {"batch.micro": 1}),
        Layout("data 4 x pipe 2, 1f1b, ZeRO 1", 8, {"data": 4, "pipe": 2, "schedule": "1f1b", "zero": 1}),
        Layout("data 2 x tensor 2 x pipe 2, sequence parallel", 8, {**eight, "schedule": "1f1b", "sequence_parallel": True, "zero": 1}, {"batch.micro": 2}),
    ]


@dataclass
class Fault:
    name: str
    what: str  # tools/nccl_faults.py has a function of this name
    seconds: float  # that may pass until all have ended, from the moment of the fault


SILENCE = 3.0  # limits.silence of the runs that are put through faults
SLACK = 5.0  # until a process with a context on the GPU has gone

FAULTS = [
    Fault("rank 1 has no GPU (LOCAL_RANK=1)", "no_gpu", SILENCE + SLACK),
    Fault("rank 1 has a number that cannot be (LOCAL_RANK=7)", "no_number", SILENCE + SLACK),
    Fault("rank 1 fails before it meets the others", "early", SILENCE + SLACK),
    Fault("rank 1 is never started (limits.wait 4)", "absent", 4 + SLACK),
    Fault("rank 1 is killed in a collective", "killed", SILENCE + SLACK),
    Fault("rank 0 is killed in a collective", "first_killed", SILENCE + SLACK),
    Fault("rank 1 stops", "stopped", SILENCE + SLACK),
    Fault("rank 1 is of another build", "other_build", SILENCE + SLACK),
    Fault("rank 1 has another token", "other_token", 4 + SLACK),
    Fault("a stranger connects and talks", "stranger", 0),
]
