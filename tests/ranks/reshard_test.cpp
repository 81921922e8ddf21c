// Checkpoints of whole tensors: what any layout writes, any other layout reads, to the bit, optimizer state included. Every
// element of every tensor is a known function of tensor name and place, so nothing needs to be trained to see where it went.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/random.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"
#include "collectives/local/threads.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"
#include "ranks/layouts.h"
#include "strategy/strategy.h"
#include "support/small_model.h"
#include "train/stored/snapshot.h"
#include "train/stored/weights.h"

namespace plimsoll::ranks {
namespace {

struct Place {
  std::int64_t data;
  std::int64_t tensor;
  std::int64_t zero;
  std::int64_t pipe = 1;
  std::int64_t chunks = 1;
  std::int64_t group = 0;
  std::vector<strategy::Stage> stages = {};  // with degrees of their own
  std::int64_t tile = 0;

  strategy::Strategy strategy() const {
    strategy::Strategy strategy;
    strategy.data = data;
    strategy.tensor = tensor;
    strategy.zero = zero;
    strategy.pipe = pipe;
    strategy.chunks = chunks;
    strategy.schedule = chunks > 1 ? "interleaved" : "1f1b";
    strategy.zero_group = group;
    strategy.stages = stages;
    strategy.tile = base::Bytes{tile};
    if (!stages.empty()) strategy.partition = strategy::StagePartition::listed;
    return strategy;
  }
  std::int64_t ranks() const { return strategy().ranks(); }
};

std::string text_of(const Place& place) {
  return fmt::format("data {} tensor {} ZeRO {} pipe {} chunks {} group {}, {} stages listed, tiles of {}", place.data, place.tensor,
                     place.zero, place.pipe, place.chunks, place.group, place.stages.size(), place.tile);
}

// All layouts of up to eight ranks, a power of two on each axis, with one or two stages for each rank of a pipeline.
std::vector<Place> all_places() {
  std::vector<Place> places;
  for (std::int64_t data = 1; data <= 8; data *= 2) {
    for (std::int64_t tensor = 1; tensor * data <= 8; tensor *= 2) {
      for (std::int64_t zero = 0; zero <= 3; ++zero) {
        places.push_back({data, tensor, zero});
        for (std::int64_t pipe = 2; pipe * tensor * data <= 8 && pipe <= 4; pipe *= 2) {
          places.push_back({data, tensor, zero, pipe});
          if (pipe == 2) places.push_back({data, tensor, zero, pipe, 2});
        }
      }
    }
  }
  return places;
}

// Dims that do not divide evenly, a table that pads, small tensors that stay whole.
model::Model odd_model() {
  return tests::small_model(model::Family::gpt2, {.layers = 4, .width = 72, .heads = 9, .ffn = 101, .vocab = 149});
}

// Queries that share keys and values, so that more ranks than those have heads hold some of them alike.
model::Model grouped_model() {
  model::Model model = model::family_defaults(model::Family::llama);
  model.layers = 1;
  model.width = 72;
  model.heads = 8;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.ffn = 101;
  model.context = 16;
  model.vocab = 149;
  model.qkv_bias = model.out_bias = true;
  return model;
}

struct Subject {
  model::Model model;
  model::Precision precision = model::Precision::f32;
  std::vector<std::string> freeze = {};
  model::Optimizer optimizer = {};
  const ops::FormInfo* freeze_as = nullptr;
};

train::SessionOptions options_for(const Place& place, const Subject& subject) {
  train::SessionOptions options{.forward = train::forward_of(subject.model), .name = "odd", .training = {}};
  options.training.precision = subject.precision;
  options.training.freeze = subject.freeze;
  options.training.freeze_as = subject.freeze_as;
  options.training.optimizer = subject.optimizer;
  options.training.micro_batch = {.samples = 1, .sequence = 4};
  options.strategy = place.strategy();
  options.micro_batches = static_cast<std::int32_t>(place.pipe * options.strategy.turn());
  options.training.accumulates = place.pipe > 1;
  options.threads = 1;
  return options;
}

// What bytes [begin, begin + out.size()) of a tensor must be.
void expect_bytes(const std::string& name, std::int64_t begin, std::span<std::byte> out) {
  constexpr std::int64_t kBlock = 16;
  const auto key = base::random_key(3, base::hash_name(name));
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
  for (std::int64_t at = begin; at < end;) {
    const auto block = base::philox({static_cast<std::uint32_t>(at / kBlock), 0, 0, 0}, key);
    const std::int64_t inside = at % kBlock;
    const std::int64_t count = std::min(kBlock - inside, end - at);
    std::memcpy(out.data() + (at - begin), reinterpret_cast<const std::byte*>(block.data()) + inside, static_cast<std::size_t>(count));
    at += count;
  }
}

void for_each_rank(const Place& place, const Subject& subject, const std::function<void(train::Session&)>& body) {
  train::SessionOptions options = options_for(place, subject);
  if (place.ranks() == 1) {
    train::Session session(options);
    return body(session);
  }
  collectives::local::run_threads(static_cast<int>(place.ranks()), [&](collectives::Transport& transport) {
    train::SessionOptions own = options;
    own.transport = &transport;
    train::Session session(own);
    body(session);
  });
}

// Each rank writes its part; the parts must cover every tensor once, or commit refuses them.
void write_checkpoint(const Place& place, const Subject& subject, const io::Path& folder) {
  io::PosixFileSystem file_system;
  const checkpoint::SaveRequest request{.identity = {.run = "reshard", .config = "0"}, .step = 1};
  checkpoint::begin(file_system, folder, 1);
  std::vector<checkpoint::Part> parts(static_cast<std::size_t>(place.ranks()));
  for_each_rank(place, subject, [&](train::Session& session) {
    for (const train::HeldPiece& piece : train::held_pieces(session)) expect_bytes(piece.name, piece.begin, piece.data);
    io::PosixFileSystem own;
    parts[static_cast<std::size_t>(session.rank())] =
        checkpoint::write_part(own, folder, request, session.rank(), train::sources_of(session, train::own_pieces(session)));
  });
  checkpoint::commit(file_system, folder, request, parts);
}

// Loads the checkpoint and counts pieces that are not as they must be.
std::int64_t wrong_pieces(train::Session& session, const io::Path& folder) {
  io::PosixFileSystem file_system;
  const std::vector<train::HeldPiece> pieces = train::held_pieces(session);
  for (const train::HeldPiece& piece : pieces) std::fill(piece.data.begin(), piece.data.end(), std::byte{0xA5});
  const checkpoint::Checkpoint found = checkpoint::open(file_system, folder / "step-00000001");
  checkpoint::load(file_system, found, train::targets_of(session, pieces));
  std::int64_t wrong = 0;
  std::int64_t read = 0;
  std::vector<std::byte> expected;
  for (const train::HeldPiece& piece : pieces) {
    expected.resize(piece.data.size());
    expect_bytes(piece.name, piece.begin, expected);
    wrong += std::equal(expected.begin(), expected.end(), piece.data.begin()) ? 0 : 1;
    read += static_cast<std::int64_t>(piece.data.size());
  }
  EXPECT_GT(read, 1'000);
  return wrong;
}

// Every layout of `to` is made once and reads what each of `from` wrote.
void check_pairs(const std::vector<Place>& from, const std::vector<Place>& to, const Subject& subject) {
  const tests::TemporaryFolder folder;
  std::vector<io::Path> written;
  for (const Place& writer : from) {
    written.push_back(folder.path() / fmt::format("{}", written.size()));
    std::filesystem::create_directories(written.back().string());
    write_checkpoint(writer, subject, written.back());
  }
  for (const Place& reader : to) {
    std::mutex mutex;
    std::vector<std::int64_t> wrong(from.size());
    for_each_rank(reader, subject, [&](train::Session& session) {
      for (std::size_t index = 0; index < from.size(); ++index) {
        const std::int64_t found = wrong_pieces(session, written[index]);
        const std::lock_guard lock(mutex);
        wrong[index] += found;
      }
    });
    for (std::size_t index = 0; index < from.size(); ++index)
      EXPECT_EQ(wrong[index], 0) << "from " << text_of(from[index]) << " to " << text_of(reader);
  }
}

TEST(Reshard, ASampleOfPairs) {
  const std::vector<strategy::Stage> uneven{{.blocks = 1, .data = 2}, {.blocks = 2, .tensor = 3}, {.blocks = 1, .data = 2}};
  const std::vector<Place> some{{1, 1, 0},       {2, 1, 3},          {4, 2, 1},          {1, 8, 0},
                                {2, 4, 2},       {8, 1, 3},          {1, 1, 0, 4},       {2, 2, 3, 2},
                                {2, 1, 2, 2, 2}, {4, 1, 2, 1, 1, 2}, {4, 2, 3, 1, 1, 2}, {1, 1, 3, 3, 1, 0, uneven}};
  check_pairs(some, some, {odd_model(), model::Precision::f32});
  check_pairs({{4, 2, 3}}, some, {odd_model(), model::Precision::bf16});
  check_pairs({{1, 1, 0}, {2, 4, 3}, {1, 8, 0}, {2, 4, 3, 1, 1, 2}}, {{1, 1, 0}, {2, 4, 3}, {1, 8, 0}},
              {grouped_model(), model::Precision::f32});
}

// Tiles are parts of the tensors that checkpoints know.
TEST(Reshard, FromAndToTiles) {
  const std::vector<Place> tiled{{1, 1, 0, 1, 1, 0, {}, 5'000}, {2, 1, 3, 1, 1, 0, {}, 19'000}, {2, 1, 1, 1, 1, 0, {}, 9'000},
                                 {1, 3, 0, 1, 1, 0, {}, 6'000}, {1, 1, 0, 2, 1, 0, {}, 8'000},  {2, 2, 3, 2, 1, 0, {}, 10'000}};
  check_pairs(tiled, {{1, 1, 0}}, {odd_model(), model::Precision::f32});
  check_pairs({{2, 2, 3}}, tiled, {odd_model(), model::Precision::bf16});
  check_pairs({{1, 8, 0, 1, 1, 0, {}, 2'000}}, {{2, 4, 3, 1, 1, 0, {}, 3'000}}, {grouped_model(), model::Precision::f32});
}

// State in leaner forms is tensors as any other.
TEST(Reshard, LeanStates) {
  const std::vector<Place> some{{1, 1, 0}, {4, 2, 1}, {2, 1, 2}, {2, 2, 3, 2}, {2, 1, 3, 1, 1, 0, {}, 19'000}};
  for (const model::Master master : {model::Master::split, model::Master::none}) {
    Subject lean{odd_model(), model::Precision::bf16};
    lean.optimizer.master = master;
    lean.optimizer.moments = model::Moments::bf16;
    check_pairs(some, some, lean);
  }
}

// What is not trained is held by those who compute with it alone.
TEST(Reshard, FrozenWeights) {
  const std::vector<Place> some{{1, 2, 0}, {2, 2, 3}, {1, 2, 0, 2}};
  for (const char* pattern : {"embed.*", "blocks.0.*", "*norm*"}) check_pairs(some, some, {odd_model(), model::Precision::f32, {pattern}});
}

// The records of a stored weight are bytes of a tensor, cut where the weight is.
TEST(Reshard, StoredForms) {
  const model::Model model = tests::small_model(model::Family::gpt2, {.width = 128, .heads = 2, .ffn = 256});
  const std::vector<Place> some{{1, 1, 0}, {2, 1, 3}, {1, 2, 0}, {2, 2, 3}, {1, 1, 0, 2}};
  for (const char* form : {"int8", "int4"})
    check_pairs(some, some, {model, model::Precision::bf16, {"blocks.*"}, {}, &ops::form_named(form)});
}

// Model files fill what a rank holds, and a table larger than what is in memory at once does so in several pieces.
TEST(Reshard, ParametersAreWrittenInPieces) {
  Subject subject{odd_model(), model::Precision::bf16};
  subject.model.vocab = 190'001;
  const auto value = [](const std::string& name, std::int64_t element) {
    return static_cast<float>((element * 31 + static_cast<std::int64_t>(name.size())) % 8191);
  };
  for (const Place& place : {Place{1, 1, 0}, Place{2, 1, 3}, Place{1, 2, 0}, Place{2, 2, 1}, Place{1, 1, 0, 1, 1, 0, {}, 4'000'000}}) {
    for_each_rank(place, subject, [&](train::Session& session) {
      std::int64_t most = 0;
      train::write_parameters(session, [&](const train::ParameterInfo& info, std::int64_t row, std::span<float> rows) {
        const std::int64_t first = row * (info.shape.elements() / info.shape[0]);
        for (std::int64_t index = 0; index < std::ssize(rows); ++index)
          rows[static_cast<std::size_t>(index)] = value(info.name, first + index);
        most = std::max(most, std::ssize(rows));
      });
      EXPECT_TRUE(place.ranks() == 1 || most < subject.model.vocab * subject.model.width) << text_of(place) << ": " << most;
      for (const train::ParameterInfo& info : train::parameters_of(session)) {
        const std::vector<float> read = train::read_parameter(session, info.name);
        ASSERT_EQ(std::ssize(read), info.shape.elements());
        std::int64_t wrong = 0;
        for (std::int64_t index = 0; index < std::ssize(read); ++index)
          wrong += read[static_cast<std::size_t>(index)] == value(info.name, index) ? 0 : 1;
        EXPECT_EQ(wrong, 0) << info.name << " with " << text_of(place);
      }
    });
  }
}

// Every ordered pair: in ./dev soak.
TEST(Reshard, DISABLED_EveryPair) { check_pairs(all_places(), all_places(), {odd_model(), model::Precision::bf16}); }

}  // namespace

}  // namespace plimsoll::ranks
