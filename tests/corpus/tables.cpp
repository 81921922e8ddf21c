#include "corpus/tables.h"

namespace plimsoll::corpus {

namespace {

constexpr Row kLayouts[] = {
    {"single"},
    {"data2", "strategy.data=2"},
    {"zero1", "strategy.data=2 strategy.zero=1"},
    {"zero2", "strategy.data=2 strategy.zero=2"},
    {"zero3", "strategy.data=2 strategy.zero=3"},
    {"tensor2", "strategy.tensor=2"},
    {"sequence2", "strategy.tensor=2 strategy.sequence_parallel=true"},
    {"pipe2", "strategy.pipe=2"},
    {"3d", "strategy.data=2 strategy.tensor=2 strategy.pipe=2 strategy.zero=1"},
    {"2bw", "strategy.pipe=2 strategy.schedule=2bw strategy.flush_every=2 optimizer.clip=0"},
    {"stages", R"(model.tied=false strategy.stages=[{"blocks":3,"data":2,"tensor":1},{"blocks":1,"data":1,"tensor":2}])"},
    // From here on: kLayoutsWithAllMemory.
    {"data4", "strategy.data=4"},
    {"data2-main", "strategy.data=2 strategy.reduce=main"},
    {"data2-buckets", "strategy.data=2 strategy.bucket=20000"},
    {"data3-uneven", "strategy.data=3 strategy.zero=1 batch.global=6"},
    {"zero1-main", "strategy.data=2 strategy.zero=1 strategy.reduce=main"},
    {"zero1-groups", "strategy.data=4 strategy.zero=1 strategy.zero_group=2"},
    {"zero2-each", "strategy.data=2 strategy.zero=2 strategy.keep_grads=false"},
    {"zero2-groups", "strategy.data=4 strategy.zero=2 strategy.zero_group=2"},
    {"zero3-each", "strategy.data=2 strategy.zero=3 strategy.keep_grads=false"},
    {"zero3-keep", "strategy.data=2 strategy.zero=3 strategy.keep_params=true"},
    {"zero3-at-once", "strategy.data=2 strategy.zero=3 strategy.prefetch=0"},
    {"zero3-groups", "strategy.data=4 strategy.zero=3 strategy.zero_group=2"},
    {"zero3-groups-of-3", "strategy.data=4 strategy.zero=3 strategy.zero_group=3"},
    {"tensor3", "strategy.tensor=3"},
    {"tensor4", "strategy.tensor=4"},
    {"tensor2-split", "strategy.tensor=2 strategy.split_activations=true"},
    {"tensor2-data2", "strategy.tensor=2 strategy.data=2"},
    {"tensor2-zero2", "strategy.tensor=2 strategy.data=2 strategy.zero=2"},
    {"tensor2-zero3", "strategy.tensor=2 strategy.data=2 strategy.zero=3"},
    {"sequence4", "strategy.tensor=4 strategy.sequence_parallel=true"},
    {"sequence2-zero3", "strategy.tensor=2 strategy.sequence_parallel=true strategy.data=2 strategy.zero=3"},
    {"pipe4", "strategy.pipe=4"},
    {"pipe2-cost", "strategy.pipe=2 strategy.stages=cost"},
    {"pipe2-listed", "strategy.stages=[1,3]"},
    {"pipe2-zero1", "strategy.pipe=2 strategy.data=2 strategy.zero=1"},
    {"pipe2-zero2", "strategy.pipe=2 strategy.data=2 strategy.zero=2"},
    {"pipe2-zero3", "strategy.pipe=2 strategy.data=2 strategy.zero=3"},
    {"pipe2-tensor2", "strategy.pipe=2 strategy.tensor=2"},
    {"pipe2-tensor2-whole", "strategy.pipe=2 strategy.tensor=2 strategy.scatter_boundaries=false"},
    {"pipe2-sequence2", "strategy.pipe=2 strategy.tensor=2 strategy.sequence_parallel=true"},
    {"gpipe", "strategy.pipe=2 strategy.schedule=gpipe"},
    {"gpipe-3d", "strategy.pipe=2 strategy.data=2 strategy.tensor=2 strategy.zero=3 strategy.schedule=gpipe"},
    {"interleaved", "strategy.pipe=2 strategy.chunks=2 strategy.schedule=interleaved"},
    {"interleaved-3d", "strategy.pipe=2 strategy.chunks=2 strategy.schedule=interleaved strategy.data=2 strategy.tensor=2 strategy.zero=2"},
    {"varuna", "strategy.pipe=2 strategy.schedule=varuna"},
    {"varuna-full", "strategy.pipe=4 strategy.schedule=varuna strategy.recompute=full"},
    {"zb-h1", "strategy.pipe=2 strategy.schedule=zb-h1"},
    {"zb-h1-3d", "strategy.pipe=2 strategy.schedule=zb-h1 strategy.data=2 strategy.tensor=2 strategy.zero=1"},
    {"zb-h2", "strategy.pipe=2 strategy.schedule=zb-h2 optimizer.clip=0"},
    {"zb-h2-flush2", "strategy.pipe=2 strategy.schedule=zb-h2 strategy.flush_every=2 optimizer.clip=0"},
    {"naive", "strategy.pipe=2 strategy.schedule=naive"},
    {"pipedream", "strategy.pipe=2 strategy.schedule=pipedream optimizer.clip=0 model.tied=false"},
    {"pipedream-flush4", "strategy.pipe=2 strategy.schedule=pipedream strategy.flush_every=4 optimizer.clip=0 model.tied=false"},
    {"pipedream-vsync", "strategy.pipe=2 strategy.schedule=pipedream-vsync strategy.flush_every=2 optimizer.clip=0"},
    {"2bw-zero1", "strategy.pipe=2 strategy.schedule=2bw strategy.flush_every=2 strategy.data=2 strategy.zero=1 optimizer.clip=0"},
    {"dualpipe", "strategy.pipe=2 strategy.schedule=dualpipe"},
    {"stages-zero1",
     R"(model.tied=false strategy.zero=1 strategy.stages=[{"blocks":2,"data":2,"tensor":1},{"blocks":2,"data":1,"tensor":2}])"},
    {"stages-zero3",
     R"(model.tied=false strategy.zero=3 strategy.stages=[{"blocks":2,"data":1,"tensor":2},{"blocks":2,"data":2,"tensor":1}])"},
    {"stages-gpipe",
     R"(model.tied=false strategy.schedule=gpipe strategy.stages=[{"blocks":1,"data":1,"tensor":1},{"blocks":3,"data":2,"tensor":2}])"},
};

constexpr Row kMemory[] = {
    {"kept"},
    {"full", "strategy.recompute=full"},
    {"optimizer-host", "strategy.offload.optimizer=host"},
    {"activations-host", "strategy.offload.activations=host"},
    // From here on: kMemoryWithAllLayouts.
    {"full-every2", "strategy.recompute=full strategy.recompute_every=2"},
    {"selective", "strategy.recompute=selective"},
    {"optimal-half", "strategy.recompute=optimal strategy.recompute_memory=0.5"},
    {"optimal-limit", "strategy.recompute=optimal"},
    {"optimal-activations-host", "strategy.recompute=optimal strategy.recompute_memory=0.6 strategy.offload.activations=host"},
    {"full-activations-host", "strategy.recompute=full strategy.offload.activations=host"},
    {"activations-disk", "strategy.offload.activations=disk"},
    {"activations-half", R"(strategy.offload.activations={"host":0.5})"},
    {"optimizer-disk", "strategy.offload.optimizer=disk"},
    {"optimizer-half", R"(strategy.offload.optimizer={"host":0.5})"},
    {"optimizer-shares", R"(strategy.offload.optimizer={"host":0.5,"disk":0.25})"},
    {"gradients-host", "strategy.offload.optimizer=host strategy.offload.gradients=host strategy.keep_grads=false"},
    {"gradients-disk", "strategy.offload.optimizer=disk strategy.offload.gradients=disk strategy.keep_grads=false"},
    {"gradients-alone", "strategy.offload.gradients=host"},
    {"params-host", "strategy.offload.optimizer=host strategy.offload.params=host"},
    {"params-disk", "strategy.offload.optimizer=disk strategy.offload.params=disk"},
    {"all-host",
     "strategy.keep_grads=false strategy.offload.optimizer=host strategy.offload.gradients=host strategy.offload.params=host "
     "strategy.offload.activations=host"},
    {"all-disk",
     "strategy.keep_grads=false strategy.offload.optimizer=disk strategy.offload.gradients=disk strategy.offload.params=disk "
     "strategy.offload.activations=disk "
     "strategy.recompute=full"},
    {"delayed", "strategy.offload.optimizer=host strategy.delayed_update=true"},
    {"carried", "strategy.offload.optimizer=host strategy.carry_update=always"},
    {"never-carried", "strategy.offload.optimizer=host strategy.carry_update=never"},
    {"tiles", "strategy.tile=8000"},
    {"tiles-host", "strategy.tile=8000 strategy.offload.optimizer=host strategy.offload.params=host"},
    {"tiles-disk",
     "strategy.keep_grads=false strategy.tile=8000 strategy.offload.optimizer=disk strategy.offload.params=disk "
     "strategy.offload.gradients=host"},
    {"rows", "model.tied=false strategy.embedding_rows=disk"},
    {"rows-host", "model.tied=false strategy.embedding_rows=disk strategy.offload.optimizer=host strategy.offload.params=host"},
};

constexpr Row kModels[] = {
    {"gpt2"},
    {"gpt2-dropout", "model.dropout=0.1"},
    {"gpt2-odd", "model.ffn=104 model.vocab=101 model.tied=false"},
    {"llama", "model.family=llama model.kv_heads=2"},
    {"llama-tied", "model.family=llama model.kv_heads=1 model.tied=true model.pad_token=0"},
    {"llama-rope", R"(model.family=llama model.rope={"scaling":"llama3","factor":8,"original_context":16})"},
    {"qwen2", "model.family=llama model.kv_heads=2 model.qkv_bias=true model.tied=true"},
    {"qwen3", "model.family=llama model.kv_heads=2 model.qk_norm=true model.head_dim=32"},
    {"mistral", "model.family=llama model.kv_heads=2 model.sliding_window=5"},
    {"bert", "model.family=bert"},
    {"bert-dropout", "model.family=bert model.dropout=0.1 model.pad_token=0"},
};

constexpr Row kNumbers[] = {
    {"f32"},
    {"f32-sgd", "optimizer.type=sgd"},
    {"f32-momentum", "optimizer.type=momentum optimizer.clip=0"},
    {"f32-adam", "optimizer.type=adam optimizer.clip=0"},
    {"f32-frozen", R"(freeze=["blocks.0.*"])"},
    {"bf16", "precision=bf16"},
    {"bf16-unclipped", "precision=bf16 optimizer.clip=0"},
    {"bf16-sgd", "precision=bf16 optimizer.type=sgd optimizer.master=none"},
    {"bf16-momentum", "precision=bf16 optimizer.type=momentum optimizer.moments=bf16"},
    {"bf16-split", "precision=bf16 optimizer.master=split"},
    {"bf16-split-bf16", "precision=bf16 optimizer.master=split optimizer.moments=bf16 optimizer.clip=0"},
    {"bf16-none-bf16", "precision=bf16 optimizer.type=adam optimizer.master=none optimizer.moments=bf16"},
    {"bf16-frozen", R"(precision=bf16 freeze=["blocks.*.attention.*"])"},
    {"fp16", "precision=fp16"},
    {"fp16-adam", "precision=fp16 optimizer.type=adam optimizer.clip=0"},
    {"fp8", "precision=fp8"},
    {"fp8-history", "precision=fp8 fp8.history=4 optimizer.clip=0"},
};

constexpr Row kBatches[] = {
    {"micro1", "batch.micro=1"},
    {"micro2", "batch.micro=2"},
    {"documents", "batch.micro=1 data.mask_documents=true data.document_end=0"},
};

constexpr Row kTargets[] = {{"cpu"}, {"described"}, {"outline"}};

constexpr LargeRow kLargeRuns[] = {
    {"gpt2-xl-zero3", "dgx-a100-80g:2", false,
     "model=gpt2-xl batch.global=64 batch.micro=2 batch.sequence=1024 strategy.data=16 strategy.zero=3 precision=bf16"},
    {"gpt2-xl-infinity", "dgx-h100", false,
     "model=gpt2-xl batch.global=8 batch.micro=1 batch.sequence=1024 strategy.data=8 strategy.zero=3 precision=bf16 "
     "strategy.recompute=full "
     "strategy.offload.optimizer=disk strategy.offload.params=host strategy.offload.activations=host"},
    {"llama-8b-3d", "dgx-h100:4", false,
     "model=llama-8b batch.global=32 batch.micro=1 batch.sequence=4096 strategy.data=4 strategy.tensor=4 strategy.pipe=2 strategy.zero=1 "
     "strategy.sequence_parallel=true precision=bf16"},
    {"llama-8b-optimal", "dgx-a100-80g", false,
     "model=llama-8b batch.global=8 batch.micro=1 batch.sequence=4096 strategy.data=8 strategy.zero=3 strategy.recompute=optimal "
     "precision=bf16"},
    {"llama-8b-optimal-host", "dgx-a100-80g", false,
     "model=llama-8b batch.global=8 batch.micro=1 batch.sequence=4096 strategy.data=8 strategy.zero=3 strategy.recompute=optimal "
     "strategy.recompute_memory=0.3 strategy.offload.activations=host precision=bf16"},
    {"llama-70b-outline", "dgx-h100:64", true,
     "model=llama-70b batch.global=512 batch.micro=1 batch.sequence=4096 strategy.data=8 strategy.tensor=8 strategy.pipe=8 "
     "strategy.zero=1 strategy.sequence_parallel=true strategy.recompute=selective precision=bf16"},
    {"llama-70b-interleaved", "dgx-h100:64", true,
     "model=llama-70b batch.global=512 batch.micro=1 batch.sequence=4096 strategy.data=16 strategy.tensor=8 strategy.pipe=4 "
     "strategy.chunks=5 strategy.schedule=interleaved strategy.zero=1 strategy.recompute=full precision=bf16"},
    {"llama-70b-zb", "dgx-h100:64", true,
     "model=llama-70b batch.global=512 batch.micro=1 batch.sequence=4096 strategy.data=8 strategy.tensor=8 strategy.pipe=8 "
     "strategy.schedule=zb-h1 precision=fp8"},
    {"llama-70b-optimal", "dgx-a100-80g:64", true,
     "model=llama-70b batch.global=256 batch.micro=1 batch.sequence=4096 strategy.data=4 strategy.tensor=4 strategy.pipe=32 "
     "strategy.zero=1 strategy.recompute=optimal strategy.recompute_memory=0.6 precision=bf16"},
    {"bert-large-data", "dgx-a100-80g:16", true,
     "model=bert-large batch.global=4096 batch.micro=32 batch.sequence=512 strategy.data=128 strategy.zero=2 precision=fp16"},
};

}  // namespace

std::span<const Row> layouts() { return kLayouts; }
std::span<const Row> memory() { return kMemory; }
std::span<const Row> models() { return kModels; }
std::span<const Row> numbers() { return kNumbers; }
std::span<const Row> batches() { return kBatches; }
std::span<const Row> targets() { return kTargets; }
std::span<const LargeRow> large_runs() { return kLargeRuns; }

}  // namespace plimsoll::corpus
