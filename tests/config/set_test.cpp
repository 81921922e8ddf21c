// --set of every field. The table below also freezes the keys: a new setting must be added here, an old one cannot vanish.
#include <map>

#include <gtest/gtest.h>

#include "config/config.h"
#include "config/fields.h"
#include "config/message.h"

namespace plimsoll::config {
namespace {

struct Sample {
  std::string_view key;
  std::string_view value;
  std::string_view model = "gpt2";  // a preset of a family that has the setting
  std::string_view json = {};       // the value as to_json writes it, where it differs
};

constexpr Sample kSamples[] = {
    {"model.preset", "gpt2-tiny"},
    {"model.path", "some/dir"},
    {"model.family", "gpt2"},
    {"model.layers", "3"},
    {"model.width", "384"},
    {"model.heads", "6"},
    {"model.kv_heads", "4", "llama-1b"},
    {"model.head_dim", "32"},
    {"model.ffn", "100"},
    {"model.context", "77"},
    {"model.vocab", "257"},
    {"model.tied", "false"},
    {"model.dropout", "0.25"},
    {"model.attention_dropout", "0.25"},
    {"model.embedding_dropout", "0.25"},
    {"model.norm_eps", "1e-6"},
    {"model.activation", "relu"},
    {"model.init_std", "0.01"},
    {"model.qkv_bias", "true", "llama-1b"},
    {"model.out_bias", "true", "llama-1b"},
    {"model.pad_token", "5", "bert-base"},
    {"model.qk_norm", "true", "llama-1b"},
    {"model.sliding_window", "128", "llama-1b"},
    {"model.token_types", "3", "bert-base"},
    {"model.rope.theta", "1e6", "llama-1b", "1000000.0"},
    {"model.rope.scaling", "linear", "llama-1b"},
    {"model.rope.factor", "4.5", "llama-1b"},
    {"model.rope.low_frequency_factor", "2.5", "llama-1b"},
    {"model.rope.high_frequency_factor", "5.5", "llama-1b"},
    {"model.rope.original_context", "4096", "llama-1b"},
    {"data.train", "123"},  // a text, though it looks like a number
    {"data.valid", "a=b.txt"},
    {"data.tokenizer", "tokenizer.json"},
    {"data.shuffle", "false"},
    {"data.token_bytes", "4"},
    {"data.mask_documents", "true"},
    {"data.document_end", "50256"},
    {"mlm.probability", "0.2", "bert-base"},
    {"mlm.mask", "0.7", "bert-base"},
    {"mlm.random", "0.2", "bert-base"},
    {"mlm.mask_token", "7", "bert-base"},
    {"batch.global", "64"},
    {"batch.micro", "2"},
    {"batch.sequence", "128"},
    {"optimizer.type", "momentum"},
    {"optimizer.lr", "0.001"},
    {"optimizer.betas", "[0.8, 0.9]", "gpt2", "[0.8,0.9]"},
    {"optimizer.eps", "0.001"},
    {"optimizer.alpha", "0.95"},
    {"optimizer.max_coeff", "5.5"},
    {"optimizer.min_coeff", "0.1"},
    {"optimizer.match_rms", "0.5"},
    {"optimizer.ns_steps", "6"},
    {"optimizer.groups", "[{\"match\":[\"*.bias\"],\"lr\":2.0}]"},
    {"optimizer.weight_decay", "0.01"},
    {"optimizer.momentum", "0.8"},
    {"optimizer.clip", "0", "gpt2", "0.0"},
    {"optimizer.master", "split"},
    {"optimizer.moments", "bf16"},
    {"lr_schedule.type", "linear"},
    {"lr_schedule.warmup", "10"},
    {"lr_schedule.warmup_shape", "log"},
    {"lr_schedule.warmup_from", "0.25"},
    {"lr_schedule.min_ratio", "0.5"},
    {"lr_schedule.end", "50"},
    {"lr_schedule.points", "[[0,0.5],[10,1.0]]"},
    {"lr_schedule.decay", "10"},
    {"loss_scale.initial", "1024", "gpt2", "1024.0"},
    {"loss_scale.window", "0"},
    {"loss_scale.min", "0.5"},
    {"loss_scale.hysteresis", "1"},
    {"strategy.data", "4"},
    {"strategy.tensor", "2"},
    {"strategy.pipe", "3"},
    {"strategy.chunks", "2"},
    {"strategy.zero", "3"},
    {"strategy.zero_group", "2"},
    {"strategy.schedule", "zb-h1"},
    {"strategy.flush_every", "4"},
    {"strategy.sequence_parallel", "true"},
    {"strategy.scatter_boundaries", "false"},
    {"strategy.recompute", "full"},
    {"strategy.recompute_every", "3"},
    {"strategy.recompute_memory", "0.5"},
    {"strategy.split_activations", "true"},
    {"strategy.offload.optimizer", "host"},
    {"strategy.offload.gradients", "disk"},
    {"strategy.offload.params", "{\"host\": 0.25}", "gpt2", "{\"host\":0.25,\"disk\":0.0}"},
    {"strategy.offload.activations", "host"},
    {"strategy.tile", "48MiB"},
    {"strategy.bucket", "10MB"},
    {"strategy.prefetch", "5"},
    {"strategy.keep_params", "true"},
    {"strategy.keep_grads", "false"},
    {"strategy.delayed_update", "true"},
    {"strategy.carry_update", "never"},
    {"strategy.embedding_rows", "disk"},
    {"strategy.reduce", "main"},
    {"strategy.stages", "[4, 8]", "gpt2", "[4,8]"},
    {"limits.device", "4GiB"},
    {"limits.host", "1000001"},
    {"limits.disk", "5GB"},
    {"limits.disk_path", "/scratch"},
    {"limits.silence", "2.5"},
    {"limits.wait", "30.5"},
    {"limits.not_finite", "3"},
    {"precision", "bf16"},
    {"fp8.history", "16"},
    {"device", "cpu"},
    {"steps", "5"},
    {"seed", "9"},
    {"threads", "2"},
    {"deterministic", "false"},
    {"transport", "mpi"},
    {"communication.gradients", "bf16"},
    {"communication.weights", "int8"},
    {"communication.activations", "fp8"},
    {"communication.sums", "canonical"},
    {"freeze", "[\"h.0.*\"]"},
    {"freeze_as", "int8"},
    {"eval.every", "7"},
    {"eval.batches", "7"},
    {"out", "runs/x"},
    {"checkpoint.every", "7"},
    {"checkpoint.keep", "7"},
    {"checkpoint.async", "false"},
    {"checkpoint.on_full_disk", "retry"},
    {"checkpoint.retry_seconds", "0.5"},
};

TEST(SetOverrides, EveryFieldCanBeSet) {
  std::map<std::string, Sample, std::less<>> samples;
  for (const Sample& sample : kSamples) ASSERT_TRUE(samples.emplace(sample.key, sample).second) << sample.key;
  EXPECT_EQ(samples.size(), fields().size());
  for (const Field& field : fields()) {
    const auto found = samples.find(field.key);
    ASSERT_NE(found, samples.end()) << "no sample for " << field.key;
    const Sample& sample = found->second;
    const bool chooses_model = sample.key == "model.path" || sample.key == "model.family" || sample.key == "model.preset";
    const std::string file = chooses_model ? "{}" : fmt::format("{{\"model\": \"{}\"}}", sample.model);
    const std::string argument = fmt::format("{}={}", sample.key, sample.value);
    const config::Run run = parse_run(file, "run.json", {argument});
    const base::Json value = field.write(run);
    const std::string shown = value.is_string() ? value.as_string() : base::write_json(value);
    EXPECT_EQ(shown, sample.json.empty() ? sample.value : sample.json) << sample.key;
    EXPECT_EQ(run.origin(sample.key).text, "--set " + argument);
    EXPECT_TRUE(run.given(sample.key));
    EXPECT_EQ(run == parse_run(file, "run.json"), sample.key == "model.family") << sample.key;  // gpt2 is the default family
    EXPECT_EQ(parse_run(base::write_json(to_json(run)), "run.json"), run) << sample.key;
  }
}

TEST(SetOverrides, WinOverTheFileAndTheLastOneWins) {
  const config::Run run = parse_run(R"({"steps": 1, "strategy": {"data": 2}})", "run.json", {"steps=2", "steps=3", "strategy.data=4"});
  EXPECT_EQ(run.steps, 3);
  EXPECT_EQ(run.strategy.data, 4);
}

TEST(SetOverrides, WholeGroups) {
  EXPECT_TRUE(parse_run("{}", "run.json", {"strategy=auto"}).strategy_auto);
  EXPECT_EQ(parse_run("{}", "run.json", {"model=llama-1b"}).preset, "llama-1b");
  EXPECT_EQ(parse_run(R"({"model": "gpt2"})", "run.json", {"model.layers=2"}).model.layers, 2);
  EXPECT_EQ(parse_run(R"({"strategy": "auto"})", "run.json", {"strategy={\"data\": 2}", "strategy.zero=1"}).strategy.data, 2);
}

TEST(SetOverrides, BadOnes) {
  const auto error_of = [](std::string argument, std::string_view file = "{}") {
    return message_of([&] { parse_run(file, "run.json", {std::move(argument)}); });
  };
  EXPECT_EQ(error_of("steps"), "--set steps: found no \"=\" after a key, expected KEY=VALUE");
  EXPECT_EQ(error_of("=3"), "--set =3: found no \"=\" after a key, expected KEY=VALUE");
  EXPECT_EQ(error_of("steps=x"), "--set steps=x: found \"x\" for \"steps\", expected an integer >= 0");
  EXPECT_EQ(error_of("steps="), "--set steps=: found \"\" for \"steps\", expected an integer >= 0");
  EXPECT_NE(error_of("optimzer.lr=1").find("--set optimzer.lr=1: found the unknown key \"optimzer.lr\", did you mean \"optimizer.lr\"?"),
            std::string::npos);
  EXPECT_EQ(error_of("batch.globals=1"),
            "--set batch.globals=1: found the unknown key \"batch.globals\", did you mean \"batch.global\"? expected one of global, micro, "
            "sequence");
  EXPECT_EQ(error_of("optimizer.betas=[0.9, 0.95"), "--set optimizer.betas=[0.9, 0.95: found the end of the text, expected ',' or ']'");
  EXPECT_EQ(error_of("strategy.data=2", R"({"strategy": "auto"})"),
            "--set strategy.data=2: found \"auto\" for \"strategy\" (run.json:1:14), expected an object to set a key of; give the whole "
            "strategy, "
            "such as --set 'strategy={\"data\": 2}'");
  EXPECT_NE(error_of("optimizer.lr=2", R"({"optimizer": 3})").find("found 3 for \"optimizer\" (run.json:1:15)"), std::string::npos);
  EXPECT_NE(error_of("data.train=\xFF").find("not valid UTF-8"), std::string::npos);
  EXPECT_NE(error_of("batch.micro=3").find("--set batch.micro=3: found batch.global = 8"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::config
