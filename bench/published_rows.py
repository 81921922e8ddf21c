"""Runs that others published: models, devices, layouts and how fast they were, by source. `published.py` simulates them.

A row states what its source states; where a source leaves a setting open, the row takes what the source's own scripts set. Figures are
tokens a second of one device. Sources that give operations a second are converted by the formula that they count by.
"""

# With kernels of 2023 and later: attention tile by tile. (The preset has the runs of 2021, which wrote all scores to memory.)
A100 = ("dgx-a100-80g", {"device": {"attention": "tiled"}})
NVLINK = {"name": "nvlink", "joins": "inside", "bandwidth": 300e9, "share": 0.8, "latency": 2e-6}


def network(bandwidth):
    """Four links of a node that its eight devices share."""
    return {"name": "network", "joins": "across", "bandwidth": bandwidth, "share": 0.9, "latency": 5e-6, "per_node": 4}


A100_2022 = ("dgx-a100-80g", {})
# Twelve nodes with four network links each, and devices with the slower memory of 40 GB.
A100_NEOX = ("dgx-a100-80g", {"device": {"memory": "40GiB", "bandwidth": 1.555e12},
                              "links": [NVLINK, network(25e9)]})
# Jean Zay: four links of 100 Gb/s for a node.
A100_OPA = ("dgx-a100-80g", {"links": [NVLINK, network(12.5e9)]})
V100 = ("dgx2-v100-32g", {})
H100 = ("dgx-h100", {})
H200 = ("hgx-h200", {})
# Slower memory, and 500 W instead of 700: a clock at 0.87 of the other, as power goes with its third power above what is drawn at rest.
H100_500W = ("dgx-h100", {"device": {"memory": "96GiB", "bandwidth": 2.4e12, "sustained_share": 0.59}})


def gpt(layers, width, heads, vocab=51200, context=2048):
    return {"family": "gpt2", "layers": layers, "width": width, "heads": heads, "context": context, "vocab": vocab}


def llama(layers, width, heads, kv_heads, ffn, vocab, context):
    return {"family": "llama", "layers": layers, "width": width, "heads": heads, "kv_heads": kv_heads, "ffn": ffn, "vocab": vocab,
            "context": context}


def llama3(size, context=8192):
    shape = {"8B": (32, 4096, 32, 8, 14336), "70B": (80, 8192, 64, 8, 28672), "405B": (126, 16384, 128, 8, 53248)}[size]
    return llama(*shape, 128256, context)


def llama2(size, context=4096):
    shape = {"7B": (32, 4096, 32, 32, 11008), "13B": (40, 5120, 40, 40, 13824), "70B": (80, 8192, 64, 8, 28672)}[size]
    return llama(*shape, 32000, context)


def row(name, model, devices, batch, published, tensor=1, pipe=1, chunks=1, precision="bf16", **strategy):
    """`batch` is (global, micro, sequence); published are tokens a second of one device."""
    strategy = {"data": devices // (tensor * pipe), "tensor": tensor, "pipe": pipe, **strategy}
    if chunks > 1:
        strategy.update(chunks=chunks, schedule="interleaved")
    if tensor > 1:
        strategy.setdefault("sequence_parallel", True)
    return {"name": name, "model": model, "devices": devices, "batch": batch, "published": published, "precision": precision,
            "strategy": strategy}


def by_operations(tera, model, sequence, again):
    """Tokens a second of a device that reaches `tera` 10^12 operations a second, as D. Narayanan and others count them (2021)."""
    layers, width, vocab = model["layers"], model["width"], model["vocab"]
    passes = 96 if again else 72
    return tera * 1e12 / (passes * layers * width ** 2 * (1 + sequence / (6 * width) + vocab / (16 * layers * width)))


def megatron2019(heads, layers, width, tensor, data, efficiency):
    model = gpt(layers, width, heads, 51200, 1024)
    batch = 8 if data == 1 else 512
    tokens = by_operations(39.0 * efficiency, model, 1024, False)
    return row(f"tensor {tensor}, data {data}", model, tensor * data, (batch, 8, 1024), tokens, tensor=tensor,
               precision="fp16", recompute="full", sequence_parallel=False)


def megascale(devices, batch, seconds):
    return row(f"{devices} devices, batch {batch}", gpt(96, 12288, 128, 64000), devices, (batch, 1, 2048), batch * 2048 / seconds / devices,
               8, 8, 6, zero=1)


def bigscience(layers, width, heads, data, tensor, pipe, micro, batch, seconds, balanced=False):
    stages = [layers // pipe] * pipe
    if balanced:  # embedding and head count as a layer each
        stages = [(layers + 2) // pipe] * pipe
        stages[0], stages[-1] = stages[0] - 1, stages[-1] - 1
    devices = data * tensor * pipe
    return row(f"{layers} x {width}, data {data}, tensor {tensor}, pipe {pipe}, micro-batch {micro}, batch {batch}",
               gpt(layers, width, heads, 250880), devices, (batch, micro, 2048), batch * 2048 / seconds / devices, tensor, pipe,
               precision="bf16" if balanced else "fp16", zero=1, recompute="full", sequence_parallel=False, stages=stages)


def nemotron15(devices, batch, seconds):
    model = llama(32, 6144, 48, 8, 16384, 256000, 4096)  # two thirds of the width, as here a gate is computed too
    return row(f"15B on {devices}", model, devices, (batch, batch * 8 // devices, 4096), batch * 4096 / seconds / devices, tensor=8, zero=1)


def nemotron340(devices, batch, seconds):
    model = llama(96, 18432, 96, 8, 49152, 256000, 4096)
    return row(f"340B on {devices}", model, devices, (batch, 1, 4096), batch * 4096 / seconds / devices, 8, 12, 8, zero=1)


def untied(model):
    return {**model, "tied": False}


def infinity(name, width, layers, heads, samples, tensor, tera):
    """`samples` of a tensor group; all states on the disks of the nodes."""
    model = gpt(layers, width, heads, 51200, 1024)
    data = 512 // tensor
    return row(name, model, 512, (samples * data, samples, 1024), by_operations(tera, model, 1024, True), tensor=tensor, precision="fp16",
               sequence_parallel=False, zero=3, recompute="full",
               offload={"optimizer": "disk", "gradients": "disk", "params": "disk", "activations": "host"})


def mpt(size, sequence, devices, micro, accumulation, published, again, precision="bf16"):
    shape = {"125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16), "3b": (32, 2560, 20),
             "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56), "70b": (80, 8192, 64)}[size]
    strategy = {"recompute": "full"} if again else {}
    return row(f"MPT {size}, {devices} devices, {micro} x {sequence}{', full recompute' if again else ''}", gpt(*shape, 50368, sequence),
               devices, (micro * accumulation * devices, micro, sequence), published, zero=3, precision=precision, **strategy)


def zero_bubble(size, schedule, micro_batches, samples):
    layers, heads, width, pipe, micro = {"1.5B": (22, 24, 2304, 8, 6), "6.2B": (30, 32, 4096, 8, 3), "14.6B": (46, 40, 5120, 16, 1),
                                         "28.3B": (62, 48, 6144, 32, 1)}[size]
    stages = [(layers + 2) // pipe] * pipe  # the first and the last have one less, for embedding and head
    stages[0], stages[-1] = stages[0] - 1, stages[-1] - 1
    # ZB-2p updates before all ranks have ended and goes on; the others end every step together.
    more = {"flush_every": 10} if schedule == "zb-h2" else {}
    entry = row(f"{size}, {pipe} stages, {micro_batches} micro-batches, {schedule}", untied(gpt(layers, width, heads, 50304, 1024)), pipe,
                (micro * micro_batches, micro, 1024), 1024 * samples, pipe=pipe, schedule=schedule, stages=stages, **more)
    entry["optimizer"] = {"clip": 0 if more else 1}
    return entry


SOURCES = [
    ("MosaicML's llm-foundry, benchmarks of MPT models with FSDP (2023)", A100, [
        mpt("70b", 2048, 64, 8, 4, 410, True), mpt("70b", 2048, 32, 2, 16, 373, True), mpt("30b", 8192, 8, 1, 21, 574, True),
        mpt("30b", 4096, 8, 1, 21, 814, True), mpt("30b", 2048, 8, 3, 21, 916, True), mpt("30b", 512, 8, 12, 21, 967, True),
        mpt("13b", 32768, 8, 1, 3, 1016, True), mpt("13b", 16384, 8, 3, 3, 1431, True), mpt("13b", 8192, 8, 5, 3, 1795, True),
        mpt("13b", 4096, 8, 10, 3, 2060, True), mpt("13b", 2048, 8, 2, 3, 2262, False), mpt("13b", 1024, 8, 40, 3, 2330, True),
        mpt("7b", 65536, 8, 1, 2, 1013, True), mpt("7b", 8192, 8, 8, 2, 3206, True), mpt("7b", 2048, 8, 6, 2, 4641, False),
        mpt("7b", 1024, 8, 64, 2, 4357, True), mpt("3b", 16384, 8, 1, 6, 5529, False), mpt("3b", 2048, 8, 10, 2, 10811, False),
        mpt("3b", 512, 8, 40, 6, 12127, False), mpt("1b", 2048, 8, 14, 4, 20513, False), mpt("1b", 512, 8, 56, 4, 23148, False),
        mpt("760m", 2048, 8, 24, 2, 32434, False), mpt("350m", 2048, 8, 32, 2, 58782, False),
        mpt("125m", 2048, 8, 32, 2, 141737, False)]),
    ("PyTorch's torchtitan, Llama 2 and 3 with FSDP on A100s (2024)", A100, [
        row("Llama 2 13B", llama2("13B"), 64, (128, 2, 4096), 2162, zero=3),
        row("Llama 2 70B, full recompute", llama2("70B"), 64, (128, 2, 4096), 353, zero=3, recompute="full"),
        row("Llama 3 70B, full recompute", llama3("70B"), 64, (64, 1, 8192), 331, zero=3, recompute="full")]),
    ("NVIDIA's NeMo 24.07 and Megatron Bridge 25.09, 8-bit products on H100s", H100, [
        row("GPT 5B", gpt(24, 4096, 32), 64, (2048, 4, 2048), 22521, zero=1, precision="fp8"),
        row("GPT 20B, tensor 2", gpt(44, 6144, 48), 64, (256, 2, 2048), 5851, tensor=2, zero=1, precision="fp8"),
        row("GPT 175B, tensor 4, pipe 8, 6 chunks", gpt(96, 12288, 96), 128, (256, 1, 2048), 726, 4, 8, 6, "fp8", zero=1),
        row("GPT 175B on 512", gpt(96, 12288, 96), 512, (2048, 2, 2048), 782, 4, 8, 6, "fp8", zero=1),
        row("Llama 2 7B", llama2("7B"), 8, (128, 1, 4096), 16847, zero=1, precision="fp8"),
        row("Llama 2 13B, pipe 4, 10 chunks", llama2("13B"), 16, (128, 1, 4096), 8646, 1, 4, 10, "fp8", zero=1),
        row("Llama 2 70B, tensor 4, pipe 4, 20 chunks", llama2("70B"), 64, (128, 1, 4096), 1707, 4, 4, 20, "fp8", zero=1),
        row("Llama 3 8B, FSDP", llama3("8B"), 8, (128, 1, 8192), 14079, zero=3, precision="fp8"),
        row("Llama 3 70B, tensor 4, pipe 8, 5 chunks", llama3("70B"), 64, (128, 1, 8192), 1619, 4, 8, 5, "fp8", zero=1)]),
    ("Zero Bubble Pipeline Parallelism (ICLR 2024), table 4, as remembered", A100, [
        zero_bubble(size, schedule, count, samples)
        for size, counts, throughputs in (
            ("1.5B", (24, 32, 64), {"1f1b": (11.8, 12.5, 13.6), "zb-h1": (12.9, 13.4, 14.2), "zb-h2": (14.5, 14.8, 14.9)}),
            ("6.2B", (24, 32, 64), {"1f1b": (3.50, 3.70, 4.03), "zb-h1": (3.88, 4.00, 4.20), "zb-h2": (4.32, 4.35, 4.39)}),
            ("14.6B", (48, 64, 128), {"1f1b": (1.40, 1.49, 1.64), "zb-h1": (1.61, 1.67, 1.76), "zb-h2": (1.81, 1.83, 1.85)}),
            ("28.3B", (96, 128, 256), {"1f1b": (0.76, 0.80, 0.88), "zb-h1": (0.87, 0.90, 0.96), "zb-h2": (0.99, 1.00, 1.00)}))
        for schedule, values in throughputs.items() for count, samples in zip(counts, values)]),
    ("Megatron-LM (2019), table 1, GPT-2 on DGX-2H, as remembered", V100, [
        megatron2019(*shape, tensor, data, efficiency)
        for shape, tensor, data, efficiency in (
            ((16, 40, 1536), 1, 1, 1.0), ((20, 54, 1920), 2, 1, 0.95), ((24, 64, 2304), 4, 1, 0.82), ((32, 72, 3072), 8, 1, 0.77),
            ((16, 40, 1536), 1, 64, 0.96), ((20, 54, 1920), 2, 64, 0.83), ((24, 64, 2304), 4, 64, 0.79), ((32, 72, 3072), 8, 64, 0.74))]),
    ("MegaScale (2024), table 2, Megatron-LM with 175B on A100s, as remembered", A100, [
        megascale(256, 768, 40.0), megascale(512, 768, 21.2), megascale(768, 768, 15.2), megascale(1024, 768, 11.9),
        megascale(3072, 6144, 29.02), megascale(6144, 6144, 14.78), megascale(8192, 6144, 12.24), megascale(12288, 6144, 8.57)]),
    ("Nemotron-4 (2024), tables 2, bf16 on H100s", H100, [
        nemotron15(768, 384, 0.57), nemotron15(1536, 768, 0.58), nemotron15(2304, 1152, 0.64), nemotron340(1536, 768, 10.3),
        nemotron340(3072, 1536, 10.3), nemotron340(6144, 2304, 8.0)]),
    ("NVIDIA's NeMo 24.12, Nemotron, 8-bit products on H100s", H100, [
        row("Nemotron 8B, tensor 2", untied(gpt(32, 4096, 32, 256000, 4096)), 64, (256, 4, 4096), 12507, 2, precision="fp8", zero=1),
        row("Nemotron 22B, tensor 2, pipe 4, 10 chunks", untied(gpt(40, 6144, 48, 256000, 4096)), 64, (256, 2, 4096), 4312, 2, 4, 10, "fp8",
            zero=1),
        row("Nemotron 340B, tensor 8, pipe 8, 12 chunks", llama(96, 18432, 96, 8, 49152, 256000, 4096), 128, (32, 1, 4096), 326, 8, 8, 12,
            "fp8", zero=1)]),
    ("Megatron Core's own page, 175B, bf16 on H100s", H100, [
        row("175B on 96", gpt(96, 12288, 96), 96, (1152, 1, 2048), by_operations(0.47 * 989, gpt(96, 12288, 96), 2048, False), 8, 12, 8,
            zero=1),
        row("175B on 4608", gpt(96, 12288, 96), 4608, (1152, 1, 2048), by_operations(0.42 * 989, gpt(96, 12288, 96), 2048, False), 8, 12, 8,
            zero=1)]),
]

# Where a published system leaves more behind than its layout must: how much faster the simulated one is.
SLOWER = [
    ("MosaicML's llm-foundry, first figures of H100s (2023)", H100, [
        mpt("70b", 2048, 64, 8, 4, 1039, True), mpt("30b", 2048, 32, 14, 3, 2308, True), mpt("13b", 1024, 8, 40, 3, 5502, True),
        mpt("13b", 4096, 8, 10, 3, 4717, True), mpt("7b", 2048, 8, 6, 1, 10643, False), mpt("3b", 512, 8, 40, 6, 27965, False)]),
    ("PyTorch's torchtitan on H100s of 500 W (2024); of the 8B, half of the products are made again there and all here", H100_500W, [
        row("Llama 3 8B on 8", llama3("8B"), 8, (16, 2, 8192), 6667, zero=3, recompute="full"),
        row("Llama 3 8B on 128", llama3("8B"), 128, (256, 2, 8192), 6514, zero=3, recompute="full"),
        row("Llama 3 405B, tensor 8, full recompute", llama3("405B"), 128, (32, 2, 8192), 109, tensor=8, zero=3, recompute="full")]),
    ("ZeRO-Infinity (2021), figure 5, as remembered", V100, [
        infinity("5T", 49152, 174, 256, 12, 4, 49), infinity("10T", 65536, 200, 256, 8, 4, 43),
        infinity("20T", 90112, 205, 256, 10, 8, 34)]),
    ("GPT-NeoX-20B (2022)", A100_NEOX, [
        row("GPT-NeoX 20B, tensor 2, pipe 4", gpt(44, 6144, 64, 50432), 96, (1536, 4, 2048),
            by_operations(117, gpt(44, 6144, 64, 50432), 2048, True), 2, 4, precision="fp16", zero=1, recompute="full",
            sequence_parallel=False)]),
    ("OPT-175B (2022)", A100_2022, [
        row("OPT 175B, tensor 8", gpt(96, 12288, 96, 50272), 992, (992, 8, 2048), by_operations(147, gpt(96, 12288, 96, 50272), 2048, True),
            tensor=8, precision="fp16", zero=3, recompute="full", sequence_parallel=False)]),
    ("BigScience's search for a layout of BLOOM (2022)", A100_OPA, [
        bigscience(72, 14336, 64, 8, 8, 6, 4, 2048, 114.11), bigscience(72, 14336, 64, 4, 8, 12, 4, 2048, 117.07),
        bigscience(72, 14336, 64, 4, 8, 12, 4, 1568, 92.75), bigscience(72, 14336, 64, 4, 8, 12, 2, 2048, 128.82),
        bigscience(72, 14336, 64, 6, 8, 8, 4, 2016, 113.16), bigscience(72, 14336, 64, 12, 8, 4, 2, 2016, 125.52),
        bigscience(72, 14336, 64, 12, 8, 4, 4, 2016, 114.81), bigscience(72, 14336, 64, 24, 8, 2, 1, 2016, 145.45),
        bigscience(72, 14336, 64, 8, 4, 12, 4, 2048, 111.89), bigscience(72, 14336, 64, 8, 4, 12, 2, 2048, 110.48),
        bigscience(72, 14336, 64, 16, 4, 6, 2, 2048, 111.71), bigscience(72, 14336, 64, 16, 2, 12, 2, 2048, 112.50),
        bigscience(72, 14336, 64, 8, 2, 24, 1, 2048, 119.53), bigscience(72, 14336, 64, 4, 4, 24, 1, 2048, 130.60),
        bigscience(96, 12288, 64, 8, 1, 48, 1, 2048, 142.17), bigscience(106, 12288, 64, 8, 4, 12, 2, 2048, 116.54, True),
        bigscience(82, 13312, 64, 8, 4, 12, 2, 2048, 104.45, True), bigscience(82, 13312, 64, 4, 8, 12, 4, 2048, 111.79, True),
        bigscience(70, 14336, 64, 8, 4, 12, 2, 2048, 102.03, True), bigscience(70, 14336, 64, 8, 4, 12, 4, 2048, 102.27, True),
        bigscience(70, 14336, 112, 8, 4, 12, 2, 2048, 104.50, True)]),
    ("torchtitan on H100s of 500 W (2024), 8-bit products", H100_500W, [
        row("Llama 3 8B on 8", llama3("8B"), 8, (16, 2, 8192), 8532, zero=3, recompute="selective", precision="fp8"),
        row("Llama 3 8B on 128", llama3("8B"), 128, (256, 2, 8192), 8380, zero=3, recompute="selective", precision="fp8"),
        row("Llama 3 8B, 32,768 tokens", llama3("8B", 32768), 8, (8, 1, 32768), 3890, zero=3, recompute="full", precision="fp8"),
        row("Llama 3 70B, tensor 8", llama3("70B"), 256, (512, 16, 8192), 829, tensor=8, zero=3, recompute="full", precision="fp8"),
        row("Llama 3 405B, tensor 8, pipe 8, 1f1b", llama3("405B"), 512, (256, 1, 8192), 100, tensor=8, pipe=8, zero=2, recompute="full",
            precision="fp8")]),
    ("torchtitan on H200s (2025), 8-bit products", H200, [
        row("Llama 3 8B on 32", llama3("8B"), 32, (64, 2, 8192), 10938, zero=3, recompute="selective", precision="fp8"),
        row("Llama 3 8B on 64", llama3("8B"), 64, (128, 2, 8192), 10753, zero=3, recompute="selective", precision="fp8")]),
    ("MosaicML's llm-foundry, more of H100s (2023)", H100, [
        mpt("70b", 2048, 32, 2, 16, 882, True), mpt("30b", 8192, 8, 1, 21, 1384, True), mpt("30b", 4096, 8, 1, 21, 1802, True),
        mpt("30b", 2048, 16, 10, 3, 2263, True), mpt("30b", 2048, 8, 3, 21, 2002, True), mpt("30b", 1024, 8, 6, 21, 2084, True),
        mpt("13b", 32768, 8, 1, 3, 1976, True), mpt("13b", 16384, 8, 3, 3, 2985, True), mpt("13b", 2048, 64, 2, 1, 4800, False),
        mpt("13b", 2048, 8, 2, 1, 4792, False), mpt("7b", 65536, 8, 1, 2, 1956, True), mpt("7b", 8192, 8, 8, 2, 6935, True),
        mpt("7b", 4096, 8, 16, 2, 8611, True), mpt("7b", 1024, 8, 64, 2, 10203, True), mpt("3b", 8192, 8, 3, 6, 16578, False),
        mpt("3b", 2048, 64, 6, 3, 22525, False), mpt("3b", 2048, 16, 10, 3, 24142, False), mpt("1b", 2048, 8, 14, 1, 45455, False),
        mpt("1b", 512, 8, 56, 4, 52275, False), mpt("760m", 2048, 16, 24, 1, 68551, False), mpt("760m", 512, 8, 96, 2, 83749, False),
        mpt("3b", 2048, 8, 10, 6, 30586, False, "fp8"), mpt("3b", 512, 8, 40, 6, 36527, False, "fp8"),
        mpt("1b", 512, 8, 56, 4, 70315, False, "fp8")]),
]
