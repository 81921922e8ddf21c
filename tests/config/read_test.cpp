// Good and bad run files of every kind.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "config/config.h"
#include "config/fields.h"
#include "config/message.h"
#include "config/other_names.h"

namespace plimsoll::config {
namespace {

config::Run run_of(std::string_view text) { return parse_run(text, "run.json"); }
std::string error_of(std::string_view text) {
  return message_of([&] { run_of(text); });
}

// The example of the documentation, with every key.
constexpr std::string_view kFull = R"({
  "model": "gpt2",
  "data": {"train": "corpus.txt", "valid": "valid.txt", "tokenizer": "bytes", "shuffle": true},
  "batch": {"global": 32, "micro": 4, "sequence": 256},
  "optimizer": {"type": "adamw", "lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0},
  "lr_schedule": {"type": "cosine", "warmup": 100, "min_ratio": 0.1},
  "precision": "f32",
  "device": "auto",
  "strategy": {"data": 2, "tensor": 1, "pipe": 2, "chunks": 1, "zero": 1, "schedule": "1f1b",
               "sequence_parallel": false,
               "recompute": "none",  // none | full | selective | optimal
               "offload": {"optimizer": "none", "gradients": "host", "params": "disk", "activations": {"host": 0.6, "disk": 0.1}},
               "bucket": "25MB", "prefetch": 2, "keep_params": false, "keep_grads": true, "delayed_update": false, "reduce": "ring",
               "stages": "equal"},
  "limits": {"device": "8GiB", "host": "16GiB", "disk": "50GiB", "disk_path": "scratch/"},
  "steps": 1000, "seed": 1, "threads": 0, "deterministic": true, "transport": "auto", "freeze": ["wte*"],
  "eval": {"every": 100, "batches": 20}, "out": "runs/first", "checkpoint": {"every": 100, "keep": 2}
})";

TEST(ReadRun, TheFullExample) {
  const config::Run run = run_of(kFull);
  EXPECT_EQ(run.model, *families::preset("gpt2"));
  EXPECT_EQ(run.data.train, std::vector<std::string>{"corpus.txt"});
  EXPECT_EQ(run.batch.micro, 4);
  EXPECT_EQ(run.batch.sequence, 256);
  EXPECT_EQ(run.optimizer.number("beta2"), 0.95);
  EXPECT_EQ(run.lr_schedule.type, LrScheduleType::cosine);
  EXPECT_EQ(run.strategy.pipe, 2);
  EXPECT_EQ(run.strategy.offload.gradients, (strategy::TierShare{.host = 1.0, .disk = 0.0}));
  EXPECT_EQ(run.strategy.offload.params, (strategy::TierShare{.host = 0.0, .disk = 1.0}));
  EXPECT_EQ(run.strategy.offload.activations, (strategy::TierShare{.host = 0.6, .disk = 0.1}));
  EXPECT_EQ(run.strategy.bucket.count, 25'000'000);
  EXPECT_EQ(run.limits.device.count, std::int64_t{8} << 30);
  EXPECT_EQ(run.freeze, std::vector<std::string>{"wte*"});
  EXPECT_EQ(run.out, "runs/first");
}

TEST(ReadRun, AnEmptyObjectIsARun) {
  const config::Run run = parse_run("{}", "some/first.json");
  EXPECT_EQ(run.model, *families::preset("gpt2"));
  EXPECT_EQ(run.batch.micro, run.batch.global);
  EXPECT_EQ(run.batch.sequence, 1024);
  EXPECT_EQ(run.out, "runs/first");
  EXPECT_FALSE(run.strategy_auto);
}

TEST(ReadRun, ModelForms) {
  EXPECT_EQ(run_of(R"({"model": "llama-1b"})").model, *families::preset("llama-1b"));
  EXPECT_EQ(run_of(R"({"model": {"preset": "gpt2", "layers": 2}})").model.layers, 2);
  const config::Run path = run_of(R"({"model": {"path": "hf"}})");
  EXPECT_EQ(path.model_path, "hf");
  EXPECT_EQ(path.batch.sequence, 0);  // not known before the directory is read
  EXPECT_EQ(run_of(R"({"model": {"layers": 3}})").model.family, families::gpt2());
  EXPECT_EQ(run_of(R"({"model": {"layers": 3, "family": "bert"}})").model.vocab, 30522);
}

TEST(ReadRun, ModelSizesAreDerived) {
  const model::Model gpt2 = run_of(R"({"model": {"family": "gpt2", "width": 256, "heads": 8}})").model;
  EXPECT_EQ(gpt2.head_dim, 32);
  EXPECT_EQ(gpt2.kv_heads, 8);
  EXPECT_EQ(gpt2.ffn, 1024);
  const model::Model llama = run_of(R"({"model": {"family": "llama", "width": 512, "heads": 8, "kv_heads": 2}})").model;
  EXPECT_EQ(llama.kv_heads, 2);
  EXPECT_EQ(llama.ffn, 1536);  // 8/3 x 512 = 1365.3, up to a multiple of 256
  const model::Model wide = run_of(R"({"model": {"family": "llama", "width": 512, "heads": 8, "head_dim": 128, "ffn": 100}})").model;
  EXPECT_EQ(wide.head_dim, 128);
  EXPECT_EQ(wide.ffn, 100);
  const model::Model grouped = run_of(R"({"model": {"preset": "llama-1b", "heads": 16}})").model;
  EXPECT_EQ(grouped.kv_heads, 8);
  EXPECT_EQ(grouped.head_dim, 128);
}

TEST(ReadRun, DropoutSetsAllRatesOfTheFamily) {
  const model::Model all = run_of(R"({"model": {"preset": "gpt2", "dropout": 0.1}})").model;
  EXPECT_EQ(all.attention_dropout, 0.1);
  EXPECT_EQ(all.embedding_dropout, 0.1);
  const model::Model own = run_of(R"({"model": {"preset": "gpt2", "attention_dropout": 0, "dropout": 0.1}})").model;
  EXPECT_EQ(own.attention_dropout, 0.0);
  EXPECT_EQ(own.embedding_dropout, 0.1);
  EXPECT_EQ(run_of(R"({"model": {"family": "llama", "dropout": 0.0}})").model.dropout, 0.0);
  EXPECT_EQ(error_of(R"({"model": {"family": "llama", "dropout": 0.1}})"),
            "run.json:1:42: found 0.1 for \"model.dropout\", expected 0.0: a model of the llama family has no such part");
  EXPECT_NE(error_of(R"({"model": {"family": "gpt2", "rope": {"theta": 5}}})"), "no error");
  EXPECT_NE(error_of(R"({"mlm": {"mask": 0.5}})"), "no error");
  EXPECT_EQ(run_of(R"({"model": "bert-base", "mlm": {"mask": 0.5}})").mlm.mask, 0.5);
}

TEST(ReadRun, AModelPathIsResolvedLater) {
  config::Run run = run_of(R"({"model": {"path": "hf", "dropout": 0.2}, "batch": {"sequence": 512}})");
  model::Model loaded = *families::preset("gpt2-tiny");
  loaded.attention_dropout = 0.3;
  resolve_model(run, loaded);
  EXPECT_EQ(run.model.layers, loaded.layers);
  EXPECT_EQ(run.model.dropout, 0.2);
  EXPECT_EQ(run.model.attention_dropout, 0.2);
  EXPECT_EQ(run.origin("model.layers").text, "path hf");
  EXPECT_EQ(run.origin("model.dropout").text, "run.json:1:37");
  config::Run other = run_of(R"({"model": {"path": "hf"}})");
  resolve_model(other, loaded);
  EXPECT_EQ(other.batch.sequence, loaded.context);
  EXPECT_EQ(other.model, loaded);
  config::Run late = run_of(R"({"model": {"path": "hf"}, "batch": {"sequence": 5000}})");
  EXPECT_EQ(message_of([&] { resolve_model(late, loaded); }),
            "run.json:1:49: found 5000 for \"batch.sequence\", expected at most 1024, which is \"model.context\"");
  EXPECT_EQ(error_of(R"({"model": {"path": "hf", "layers": 2}})"),
            "run.json:1:36: found 2 for \"model.layers\", expected no such key: the directory \"hf\" says it");
}

TEST(ReadRun, BadModels) {
  EXPECT_EQ(error_of(R"({"model": "gpt3"})").substr(0, 65), "run.json:1:11: found \"gpt3\" for \"model.preset\", expected one of g");
  EXPECT_NE(error_of(R"({"model": "gpt3"})").find("did you mean \"gpt2\"?"), std::string::npos);
  EXPECT_EQ(error_of(R"({"model": 12})"), "run.json:1:11: found 12 for \"model\", expected a preset's name or an object");
  EXPECT_EQ(error_of(R"({"model": {"preset": "gpt2", "path": "x"}})"),
            "run.json:1:11: found an object for \"model\", expected only one of the keys \"preset\", \"path\" and \"family\"");
  EXPECT_EQ(error_of(R"({"model": {"width": 768, "heads": 7}})"),
            "run.json:1:35: found 7 heads for a width of 768, which is not a multiple of it; expected 6 or 8 heads, or a \"head_dim\"");
  EXPECT_EQ(error_of(R"({"model": {"family": "llama", "heads": 12, "kv_heads": 5}})"),
            "run.json:1:11: the model cannot be built: \"heads\" is 12 and \"kv_heads\" 5; expected heads to be a multiple of kv_heads");
  EXPECT_EQ(error_of(R"({"model": {"layers": 0}})"), "run.json:1:22: found 0 for \"model.layers\", expected an integer >= 1");
  EXPECT_EQ(error_of(R"({"model": {"dropout": 1}})"), "run.json:1:23: found 1 for \"model.dropout\", expected a number >= 0 and < 1");
  EXPECT_NE(error_of(R"({"model": {"path": ""}})"), "no error");
  EXPECT_NE(error_of(R"({"model": {"path": "a\u0000b"}})"), "no error");
}

TEST(ReadRun, CodecsAreNamesOrObjectsWithSettings) {
  const auto sent = [](std::string_view gradients) {
    const config::Run run = run_of(fmt::format(R"({{"communication": {{"gradients": {}}}}})", gradients));
    return base::write_json(find_field("communication.gradients")->write(run));
  };
  EXPECT_EQ(sent(R"("none")"), R"("none")");
  EXPECT_EQ(sent(R"("int8")"), R"("int8")");
  EXPECT_EQ(sent(R"({"codec": "int8", "error_feedback": true})"), R"("int8")");
  EXPECT_EQ(base::parse_json(sent(R"({"codec": "int8", "error_feedback": false})"), "written"),
            base::parse_json(R"({"codec": "int8", "error_feedback": false})", "expected"));
  EXPECT_NE(error_of(R"({"communication": {"gradients": "int7"}})").find("expected one of none, bf16, fp8, int8, int4"), std::string::npos);
  EXPECT_NE(error_of(R"({"communication": {"gradients": {"codec": "bf16", "error_feedback": true}}})")
                .find("found the setting \"error_feedback\" of the codec \"bf16\""),
            std::string::npos);
  EXPECT_NE(error_of(R"({"communication": {"weights": {"codec": "int8", "error_feedback": true}}})").find("it is for gradients alone"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"communication": {"gradients": {"codec": "int8", "error_feedback": 1}}})").find("expected true or false"),
            std::string::npos);
}

TEST(ReadRun, UnknownKeysNameTheNearest) {
  EXPECT_EQ(
      error_of("{\n  \"optimiser\": {}\n}"),
      "run.json:2:3: found the unknown key \"optimiser\", did you mean \"optimizer\"? expected one of model, data, mlm, batch, optimizer, "
      "lr_schedule, fp8, loss_scale, strategy, limits, communication, precision, device, steps, seed, threads, deterministic, transport, "
      "freeze, "
      "freeze_as, out, "
      "eval, "
      "checkpoint");
  EXPECT_EQ(error_of(R"({"batch": {"globl": 4}})"),
            "run.json:1:12: found the unknown key \"batch.globl\", did you mean \"batch.global\"? expected one of global, micro, sequence");
  EXPECT_NE(error_of(R"({"lr": 4})").find("did you mean \"optimizer.lr\"?"), std::string::npos);
  EXPECT_NE(error_of(R"({"warmup": 4})").find("did you mean \"lr_schedule.warmup\"?"), std::string::npos);
  EXPECT_NE(error_of(R"({"": 4})").find("found the unknown key \"\""), std::string::npos);
  EXPECT_NE(error_of(R"({"batch.global": 4})"), "run.json:1:2: found");
  EXPECT_NE(error_of(R"({"steps": {"a": 1}})").find("expected an integer"), std::string::npos);
}

TEST(ReadRun, MastersThatCannotBe) {
  EXPECT_EQ(error_of(R"({"precision": "bf16", "optimizer": {"master": "split", "moments": "bf16"}})"), "no error");
  EXPECT_EQ(error_of(R"({"precision": "fp8", "optimizer": {"type": "sgd", "master": "none"}})"), "no error");
  EXPECT_NE(error_of(R"({"precision": "fp16", "optimizer": {"master": "none"}})")
                .find("found \"none\" for \"optimizer.master\", expected \"f32\""),
            std::string::npos);
  EXPECT_NE(
      error_of(R"({"precision": "bf16", "optimizer": {"type": "momentum", "master": "split"}})").find("with the optimizer \"momentum\""),
      std::string::npos);
  EXPECT_NE(error_of(R"({"optimizer": {"moments": "fp8"}})").find("expected"), std::string::npos);
}

TEST(ReadRun, ValuesOfTheWrongKindOrRange) {
  EXPECT_EQ(error_of(R"({"steps": "many"})"), "run.json:1:11: found \"many\" for \"steps\", expected an integer >= 0");
  EXPECT_EQ(error_of(R"({"steps": 1.5})"), "run.json:1:11: found 1.5 for \"steps\", expected an integer >= 0");
  EXPECT_EQ(error_of(R"({"steps": 1e15})"), "run.json:1:11: found 1000000000000000.0 for \"steps\", expected at most 1000000000000");
  EXPECT_EQ(run_of(R"({"steps": 5e3})").steps, 5000);
  EXPECT_EQ(error_of(R"({"optimizer": {"lr": 1e39}})"), "run.json:1:22: found 1e+39 for \"optimizer.lr\", expected at most 1e+37");
  EXPECT_EQ(error_of(R"({"optimizer": {"eps": 1e-46}})"), "run.json:1:23: found 1e-46 for \"optimizer.eps\", expected a number >= 1e-37");
  EXPECT_NE(error_of(R"({"batch": {"global": 1000000, "micro": 2}})").find("makes 500000 micro-batches in a step, expected at most 32768"),
            std::string::npos);
  EXPECT_EQ(error_of(R"({"optimizer": {"lr": -1}})"), "run.json:1:22: found -1 for \"optimizer.lr\", expected a number >= 0");
  EXPECT_EQ(error_of(R"({"optimizer": {"betas": [0.9]}})"),
            "run.json:1:25: found an array of 1 for \"optimizer.betas\", expected two numbers >= 0 and < 1, such as [0.9, 0.95]");
  EXPECT_EQ(error_of(R"({"optimizer": {"type": "adamW"}})"),
            "run.json:1:24: found \"adamW\" for \"optimizer.type\", expected one of sgd, momentum, adam, adamw, rmsprop, lion, lamb, muon; "
            "did you "
            "mean \"adamw\"?");
  EXPECT_EQ(error_of(R"({"optimizer": 3})"), "run.json:1:15: found 3 for \"optimizer\", expected an object");
  EXPECT_EQ(error_of(R"({"deterministic": "yes"})"), "run.json:1:19: found \"yes\" for \"deterministic\", expected true or false");
  EXPECT_EQ(error_of(R"({"limits": {"device": "8 gigs"}})"),
            "run.json:1:23: found \"8 gigs\" for \"limits.device\", expected an amount such as \"8GiB\", \"25MB\" or a count of bytes");
  EXPECT_EQ(error_of(R"({"data": {"token_bytes": 3}})"), "run.json:1:26: found 3 for \"data.token_bytes\", expected 2 or 4");
  EXPECT_EQ(error_of(R"({"freeze": "wte"})"),
            "run.json:1:12: found \"wte\" for \"freeze\", expected an array of patterns, such as [\"*.embed*\"]");
  EXPECT_NE(error_of(R"({"threads": null})"), "no error");
  EXPECT_EQ(error_of("[]"), "run.json:1:1: found an array of 0, expected an object with the settings of a run");
  EXPECT_EQ(error_of("{\"steps\": 1\n\"seed\": 2}"), "run.json:2:1: found '\"', expected ',' or '}'");
}

TEST(ReadRun, NamesOfOtherToolsPointAtTheSetting) {
  for (const OtherName& other : other_names()) {
    EXPECT_NE(find_field(other.key), nullptr) << other.name;
    EXPECT_EQ(find_field(other.name), nullptr) << other.name;
    EXPECT_EQ(find_other_name(other.name), &other) << other.name << " twice";
  }
  EXPECT_EQ(error_of(R"({"learning_rate": 1e-3})"), "run.json:1:2: found the unknown key \"learning_rate\", expected \"optimizer.lr\"");
  EXPECT_EQ(error_of(R"({"optimizer": {"learning_rate": 1e-3}})"),
            "run.json:1:16: found the unknown key \"optimizer.learning_rate\", expected \"optimizer.lr\"");
  EXPECT_EQ(error_of(R"({"model": {"hidden_size": 64}})"),
            "run.json:1:12: found the unknown key \"model.hidden_size\", expected \"model.width\"");
  EXPECT_EQ(error_of(R"({"num_train_epochs": 3})"),
            "run.json:1:2: found the unknown key \"num_train_epochs\", expected \"steps\" (updates of the weights, not epochs)");
  EXPECT_EQ(message_of([] { parse_run("{}", "run.json", {"max_steps=5"}); }),
            "--set max_steps=5: found the unknown key \"max_steps\", expected \"steps\"");
}

// Words that mean something in one group alone, and those that many tools have.
TEST(ReadRun, WordsOfAGroupPointAtTheSetting) {
  const auto expected = [](std::string_view override) {
    const std::string said = message_of([&] { parse_run("{}", "run.json", {std::string(override)}); });
    const std::size_t at = said.find("expected \"");
    return at == std::string::npos ? said : said.substr(at + 10, said.find('"', at + 10) - at - 10);
  };
  EXPECT_EQ(expected("data.file=x"), "data.train");
  EXPECT_EQ(expected("batch.size=8"), "batch.global");
  EXPECT_EQ(expected("gpus=8"), "strategy.data");
  EXPECT_EQ(expected("strategy.gpus=8"), "strategy.data");
  EXPECT_EQ(expected("log_every=10"), "eval.every");
}

TEST(ReadRun, ASizeThatIsNotThereMeansTheNearest) {
  const auto meant = [](std::string_view preset) { return error_of(R"({"model": ")" + std::string(preset) + "\"}"); };
  EXPECT_NE(meant("llama-7b").find("did you mean \"llama-8b\"?"), std::string::npos) << meant("llama-7b");
  EXPECT_NE(meant("llama-65b").find("did you mean \"llama-70b\"?"), std::string::npos) << meant("llama-65b");
  EXPECT_NE(meant("lama-1b").find("did you mean \"llama-1b\"?"), std::string::npos) << meant("lama-1b");
  EXPECT_NE(meant("gpt2-larg").find("did you mean \"gpt2-large\"?"), std::string::npos) << meant("gpt2-larg");
}

TEST(ReadRun, ValuesOfOtherToolsPointAtOurs) {
  EXPECT_NE(error_of(R"({"precision": "bfloat16"})").find("did you mean \"bf16\"?"), std::string::npos);
  EXPECT_NE(error_of(R"({"strategy": {"offload": {"params": "cpu"}}})").find("expected"), std::string::npos);
  EXPECT_NE(error_of(R"({"lr_schedule": {"type": "constant_with_warmup"}})").find("did you mean \"constant\"?"), std::string::npos);
}

TEST(ReadRun, DataIsOnePathOrSeveral) {
  const auto train_of = [](const std::string& value) { return parse_run(R"({"data": {"train": )" + value + "}}", "run.json").data.train; };
  EXPECT_EQ(train_of(R"("a.txt")"), std::vector<std::string>{"a.txt"});
  EXPECT_EQ(train_of(R"(["a.txt"])"), std::vector<std::string>{"a.txt"});
  EXPECT_EQ(train_of(R"(["b", "a/*.bin", "b"])"), (std::vector<std::string>{"b", "a/*.bin", "b"}));
  EXPECT_EQ(train_of(R"("")"), std::vector<std::string>{});
  EXPECT_EQ(train_of("[]"), std::vector<std::string>{});
  EXPECT_EQ(error_of(R"({"data": {"train": ["a", ""]}})"),
            "run.json:1:20: found an array of 2 for \"data.train\", expected a path or an array of paths");
  EXPECT_NE(error_of(R"({"data": {"train": [1]}})"), "no error");
  const config::Run run = parse_run(R"({"data": {"train": ["b", "a"], "valid": "c"}})", "run.json");
  EXPECT_EQ(parse_run(base::write_json(to_json(run)), "again.json").data, run.data);
}

TEST(ReadRun, WhatIsLeftOpenComesFromTheTokenizer) {
  const auto resolved = [](const std::string& text, const TokenizerFacts& facts) {
    config::Run run = parse_run(text, "run.json");
    resolve_tokenizer(run, facts);
    return run;
  };
  const TokenizerFacts facts{.name = "t.json", .vocab = 40'000, .end = 7, .pad = 3, .mask = 39'999};
  const std::string bert = R"({"model": {"family": "bert"}, "data": {"tokenizer": "t.json"}})";
  const config::Run open = resolved(bert, facts);
  EXPECT_EQ(open.model.vocab, 40'000);
  EXPECT_EQ(open.model.pad_token, 3);
  EXPECT_EQ(open.mlm.mask_token, 39'999);
  EXPECT_EQ(open.data.document_end, -1);
  EXPECT_EQ(open.origin("model.vocab").text, "tokenizer t.json");
  EXPECT_TRUE(open.notes.empty());
  // Ids are checked against the tokenizer's vocabulary, not against the default that it takes the place of.
  const config::Run late =
      resolved(R"({"model": {"family": "llama"}, "data": {"tokenizer": "t.json", "mask_documents": true, "document_end": 39000}})", facts);
  EXPECT_EQ(late.data.document_end, 39'000);
  EXPECT_EQ(late.notes.size(), 1u);
  EXPECT_EQ(resolved(R"({"data": {"tokenizer": "t.json", "mask_documents": true}})", facts).data.document_end, 7);
  EXPECT_EQ(resolved(R"({"model": "llama-1b", "data": {"tokenizer": "t.json"}})", facts).model.vocab, 40'000);
  const std::string given = R"({"model": {"family": "bert", "vocab": 50000, "pad_token": 5}, "mlm": {"mask_token": 103},
    "data": {"tokenizer": "t.json"}})";
  const config::Run kept = resolved(given, facts);
  EXPECT_EQ(kept.model.vocab, 50'000);
  EXPECT_EQ(kept.model.pad_token, 5);
  EXPECT_EQ(kept.mlm.mask_token, 103);
  EXPECT_EQ(kept.notes.size(), 3u);
  EXPECT_THROW(resolved(R"({"model": {"family": "gpt2", "vocab": 300}, "data": {"tokenizer": "t.json"}})", facts), base::Error);
  // What also ends a text is trained, so it does not pad.
  TokenizerFacts ends_and_pads = facts;
  ends_and_pads.pad = facts.end;
  EXPECT_EQ(resolved(bert, ends_and_pads).model.pad_token, -1);
}

TEST(ReadRun, AllErrorsAreShownAtOnce) {
  EXPECT_EQ(error_of("{\"steps\": -1,\n\"batch\": {\"global\": 0, \"micro\": \"x\"}}"),
            "found 3 mistakes:\n"
            "  run.json:1:11: found -1 for \"steps\", expected an integer >= 0\n"
            "  run.json:2:21: found 0 for \"batch.global\", expected an integer >= 1\n"
            "  run.json:2:33: found \"x\" for \"batch.micro\", expected an integer >= 1");
  const std::string rules = error_of(R"({"batch": {"sequence": 2048}, "loss_scale": {"initial": 0.5}, "data": {"document_end": 60000}})");
  for (std::string_view part : {"3 mistakes", "model.context", "loss_scale.min", "document_end"})
    EXPECT_NE(rules.find(part), std::string::npos) << rules;
}

TEST(ReadRun, StrategyForms) {
  EXPECT_TRUE(run_of(R"({"strategy": "auto"})").strategy_auto);
  EXPECT_EQ(error_of(R"({"strategy": "best"})"), "run.json:1:14: found \"best\" for \"strategy\", expected \"auto\" or an object");
  const config::Run counts = run_of(R"({"strategy": {"stages": [5, 7], "tensor": 2}})");
  EXPECT_EQ(counts.strategy.pipe, 2);
  EXPECT_EQ(counts.strategy.stages, (std::vector<strategy::Stage>{{5, 1, 2}, {7, 1, 2}}));
  const config::Run own = run_of(R"({"strategy": {"stages": [{"blocks": 4, "data": 2}, {"blocks": 8, "tensor": 4}]}})");
  EXPECT_EQ(own.strategy.stages, (std::vector<strategy::Stage>{{4, 2, 1}, {8, 1, 4}}));
  EXPECT_EQ(run_of(R"({"strategy": {"stages": "cost"}})").strategy.partition, strategy::StagePartition::by_cost);
  EXPECT_EQ(run_of(R"({"strategy": {"schedule": "mine.csv"}})").strategy.schedule, "mine.csv");
  EXPECT_NE(error_of(R"({"strategy": {"schedule": "1f1c"}})").find("did you mean \"1f1b\"?"), std::string::npos);
}

TEST(ReadRun, BadStrategies) {
  EXPECT_EQ(error_of(R"({"strategy": {"stages": [4, "x"]}})"),
            "run.json:1:29: found \"x\" for \"strategy.stages[1]\", expected an integer >= 0");
  EXPECT_EQ(error_of(R"({"strategy": {"stages": [{"block": 4}]}})"),
            "run.json:1:27: found the key \"block\" in \"strategy.stages[0]\", expected one of blocks, data, tensor");
  EXPECT_EQ(error_of(R"({"strategy": {"stages": [{"data": 4}]}})"),
            "run.json:1:26: found an object for \"strategy.stages[0]\", expected it to have the key \"blocks\"");
  EXPECT_EQ(error_of(R"({"strategy": {"stages": [4, 4, 4], "pipe": 2}})"),
            "run.json:1:25: found 3 stages, expected strategy.pipe x strategy.chunks = 2 x 1 = 2");
  EXPECT_NE(error_of(R"({"strategy": {"stages": []}})"), "no error");
  EXPECT_EQ(error_of(R"({"strategy": {"offload": {"params": {"host": 0.6, "disk": 0.5}}}})"),
            "run.json:1:37: found shares of 0.6 + 0.5 = 1.1 for \"strategy.offload.params\", expected at most 1 in all");
  EXPECT_EQ(error_of(R"({"strategy": {"offload": {"params": {"hosts": 0.6}}}})"),
            "run.json:1:38: found the key \"hosts\" in \"strategy.offload.params\", expected one of host, disk");
  EXPECT_EQ(error_of(R"({"strategy": {"offload": {"params": "hots"}}})"),
            "run.json:1:37: found \"hots\" for \"strategy.offload.params\", expected none, host, disk or shares such as {\"host\": 0.6, "
            "\"disk\": "
            "0.1}; did you mean \"host\"?");
  EXPECT_EQ(error_of(R"({"strategy": {"zero": 4}})"), "run.json:1:23: found 4 for \"strategy.zero\", expected an integer from 0 to 3");
}

TEST(ReadRun, TheBatchMustDivide) {
  EXPECT_EQ(
      error_of(R"({"batch": {"global": 30, "micro": 4}, "strategy": {"data": 2}})"),
      "run.json:1:22: found batch.global = 30 and batch.micro x strategy.data = 4 x 2 = 8, expected the first to be a multiple of the "
      "second; nearest \"batch.global\": 24 or 32; or \"batch.micro\": 3 or 5");
  EXPECT_EQ(error_of(R"({"batch": {"global": 7}, "strategy": {"data": 2}})"),
            "run.json:1:22: found batch.global = 7 and strategy.data = 2, expected the first to be a multiple of the second; nearest "
            "\"batch.global\": 6 or 8");
  EXPECT_EQ(
      error_of(R"({"batch": {"micro": 16}})"),
      "run.json:1:21: found batch.global = 8 and batch.micro x strategy.data = 16 x 1 = 16, expected the first to be a multiple of the "
      "second; nearest \"batch.global\": 16; or \"batch.micro\": 8");
  EXPECT_EQ(run_of(R"({"batch": {"global": 12}, "strategy": {"data": 3}})").batch.micro, 4);
  EXPECT_EQ(run_of(R"({"batch": {"global": 12, "micro": 2}, "strategy": "auto"})").batch.micro, 2);
  EXPECT_NE(error_of(R"({"batch": {"global": 999999937, "micro": 500000000}})"), "no error");  // a prime: must still be quick
}

TEST(ReadRun, RulesBetweenSettings) {
  EXPECT_EQ(error_of(R"({"batch": {"sequence": 2048}})"),
            "run.json:1:24: found 2048 for \"batch.sequence\", expected at most 1024, which is \"model.context\"");
  EXPECT_EQ(error_of(R"({"model": "bert-base", "mlm": {"random": 0.3}})"),
            "run.json:1:42: found mlm.mask + mlm.random = 0.8 + 0.3 = 1.1, expected at most 1");
  EXPECT_EQ(run_of(R"({"lr_schedule": {"type": "wsd"}, "steps": 50})").lr_schedule.decay, 5);
  EXPECT_EQ(error_of(R"({"lr_schedule": {"type": "wsd", "warmup": 30, "decay": 30}, "steps": 50})"),
            "run.json:1:56: found lr_schedule.warmup + lr_schedule.decay = 30 + 30 = 60, expected at most 50, which is \"steps\"");
  EXPECT_EQ(run_of(R"({"optimizer": {"type": "sgd"}})").optimizer.weight_decay, 0.0);
  EXPECT_NE(error_of(R"({"loss_scale": {"initial": 0.5}})"), "no error");
}

TEST(ReadRun, WhatTheGraphNeeds) {
  const model::Training training =
      run_of(R"({"batch": {"global": 12, "micro": 2, "sequence": 64}, "strategy": {"data": 2}, "precision": "bf16", "freeze": ["x"],
             "freeze_as": "int4"})")
          .training();
  EXPECT_EQ(training.micro_batch, (model::MicroBatch{.samples = 2, .sequence = 64}));
  EXPECT_TRUE(training.accumulates);  // three micro-batches on each of two ranks
  EXPECT_EQ(training.precision, model::Precision::bf16);
  EXPECT_EQ(training.freeze, std::vector<std::string>{"x"});
  EXPECT_EQ(training.freeze_as, &ops::form_named("int4"));
  EXPECT_FALSE(run_of(R"({"batch": {"global": 4}, "strategy": {"data": 2}})").training().accumulates);
}

TEST(LoadRun, ReadsAFileOrSaysWhyNot) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "plimsoll_config_read_test";
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "small.json").string();
  std::ofstream(path) << "{\"steps\": 7}\n";
  EXPECT_EQ(load_run(path, {"seed=3"}).steps, 7);
  EXPECT_EQ(load_run(path).out, "runs/small");
  const std::string missing = (folder / "none.json").string();
  EXPECT_EQ(message_of([&] { load_run(missing); }), missing + ": cannot be read (No such file or directory), expected a run file");
  EXPECT_EQ(message_of([&] { load_run(folder.string()); }), folder.string() + ": found a directory, expected a run file");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace plimsoll::config
