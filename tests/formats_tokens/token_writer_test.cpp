// Token files that are written come back through the readers; what fails leaves nothing behind.
#include "formats/token_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "formats_tokens/token_bytes.h"
#include "support/io/faulty_file_system.h"
#include "support/io/recording_file_system.h"

namespace plimsoll::formats {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Written {
  std::vector<WrittenShard> shards;
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> starts;
};

Written write_random(io::FileSystem& disk, const TokenWriterOptions& options, std::uint32_t seed, int documents = 40) {
  std::mt19937 random(seed);
  TokenWriter writer(disk, options);
  Written written;
  for (int document = 0; document < documents; ++document) {
    written.starts.push_back(std::ssize(written.ids));
    for (std::size_t part = random() % 3 + 1; part > 0; --part) {
      const std::vector<std::int32_t> ids = random_ids(random, random() % 40 + 1, static_cast<std::int32_t>(options.vocab));
      writer.write(ids);
      written.ids.insert(written.ids.end(), ids.begin(), ids.end());
    }
    writer.end_document();
  }
  EXPECT_EQ(writer.documents(), documents);
  EXPECT_EQ(writer.tokens(), std::ssize(written.ids));
  written.shards = writer.finish();
  return written;
}

std::vector<std::string> names_in(TokenFolder& folder) {
  std::vector<std::string> names;
  for (const io::Entry& entry : folder.disk.list(folder.path())) names.push_back(entry.name);
  return names;
}

TEST(TokenWriter, EveryFormatAndWidthComesBack) {
  TokenFolder folder;
  std::uint32_t seed = 1;
  for (const ShardFormat format : {ShardFormat::llmc, ShardFormat::headerless, ShardFormat::megatron}) {
    for (const std::int64_t vocab : {300, 65536, 65537, 200'000}) {
      const TokenWriterOptions options{.out = folder.path() / "t.v1", .format = format, .vocab = vocab, .overwrite = true};
      const Written written = write_random(folder.disk, options, seed++);
      ASSERT_THAT(written.shards, SizeIs(1));
      const TokenFileOptions reading{.token_bytes = vocab > 65536 ? 4 : 2};
      const auto source = open_token_file(folder.disk, written.shards[0].path, reading);
      EXPECT_EQ(all_of(*source), written.ids);
      if (format == ShardFormat::megatron) {
        EXPECT_EQ(std::vector<std::int64_t>(source->document_starts().begin(), source->document_starts().end()), written.starts);
      }
    }
  }
  for (const std::string& name : names_in(folder)) EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
}

TEST(TokenWriter, ShardsHoldWholeDocumentsWhereTheyFit) {
  TokenFolder folder;
  for (const ShardFormat format : {ShardFormat::llmc, ShardFormat::megatron}) {
    const TokenWriterOptions options{.out = folder.path() / "s", .format = format, .vocab = 1000, .shard_tokens = 150, .overwrite = true};
    const Written written = write_random(folder.disk, options, 7);
    ASSERT_GT(written.shards.size(), 5u);
    std::int64_t tokens = 0;
    for (const WrittenShard& shard : written.shards) {
      EXPECT_LE(shard.tokens, 150);
      EXPECT_GT(shard.tokens, 0);
      tokens += shard.tokens;
    }
    EXPECT_EQ(tokens, std::ssize(written.ids));
    const auto never = [](io::FileSystem&, const io::Path&) -> std::unique_ptr<TokenSource> { return nullptr; };
    const auto all = open_tokens(folder.disk, {(folder.path() / "s_*.bin").string()}, {}, never);
    EXPECT_EQ(all_of(*all), written.ids);
  }
}

TEST(TokenWriter, ADocumentLongerThanAShardIsTorn) {
  TokenFolder folder;
  TokenWriter writer(folder.disk, {.out = folder.path() / "s", .format = ShardFormat::megatron, .vocab = 10, .shard_tokens = 4});
  writer.write(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  writer.end_document();
  const auto shards = writer.finish();
  ASSERT_THAT(shards, SizeIs(3));
  EXPECT_EQ(all_of(*open_token_file(folder.disk, shards[1].path)), (std::vector<std::int32_t>{5, 6, 7, 8}));
}

TEST(TokenWriter, NothingIsReplacedUnasked) {
  TokenFolder folder;
  const TokenWriterOptions options{.out = folder.path() / "t", .format = ShardFormat::llmc, .vocab = 10};
  write_random(folder.disk, options, 1);
  EXPECT_THAT(refusal([&] { TokenWriter(folder.disk, options); }), HasSubstr("--force"));
  EXPECT_THAT(refusal([&] { TokenWriter(folder.disk, {.out = folder.path() / "e", .vocab = 10}).finish(); }), HasSubstr("no text"));
  EXPECT_EQ(names_in(folder), std::vector<std::string>{"t.bin"});
}

TEST(TokenWriter, StaleShardsAndIndicesGoWithWhatIsReplaced) {
  TokenFolder folder;
  TokenWriterOptions options{
      .out = folder.path() / "t", .format = ShardFormat::megatron, .vocab = 10, .shard_tokens = 100, .overwrite = true};
  ASSERT_GT(write_random(folder.disk, options, 1).shards.size(), 4u);
  options.format = ShardFormat::llmc;
  const Written fewer = write_random(folder.disk, options, 2, 3);
  EXPECT_THAT(names_in(folder), SizeIs(fewer.shards.size()));
}

TEST(TokenWriter, AnyFailureLeavesNothingHalfWritten) {
  for (const io::FaultKind kind : {io::FaultKind::io_error, io::FaultKind::no_space, io::FaultKind::short_write}) {
    for (std::int64_t k = 1;; ++k) {
      TokenFolder folder;
      io::FaultyFileSystem faulty(folder.disk, {.at = k, .kind = kind});
      const TokenWriterOptions options{.out = folder.path() / "t", .format = ShardFormat::megatron, .vocab = 10, .shard_tokens = 400};
      bool done = true;
      try {
        write_random(faulty, options, 3, 10);
      } catch (const base::Error&) {
        done = false;
      }
      if (done) {
        for (const std::string& name : names_in(folder)) EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
      } else {
        // A failed removal of what was to be cleaned up is the one thing that can leave a file, and that is never a finished one.
        for (const std::string& name : names_in(folder)) EXPECT_NE(name.find(".tmp"), std::string::npos) << k << " " << name;
      }
      if (!faulty.reached()) break;
    }
  }
}

// What a reader of the shards finds: their ids, or nothing where there are none or they are refused.
std::optional<std::vector<std::int32_t>> found_in(io::FileSystem& disk, const io::Path& folder) {
  const auto never = [](io::FileSystem&, const io::Path&) -> std::unique_ptr<TokenSource> { return nullptr; };
  try {
    return all_of(*open_tokens(disk, {(folder / "s_*.bin").string()}, {}, never));
  } catch (const base::Error& error) {
    EXPECT_EQ(error.kind(), base::ErrorKind::bad_input) << error.what();
    return std::nullopt;
  }
}

// Killed, or power lost, after any operation: the shards of before, all the new ones, or a refusal; and once more works.
void crash_everywhere(ShardFormat format, bool replacing) {
  TokenFolder folder;
  const io::Path out = folder.path() / "out";
  folder.disk.make_directory(out);
  TokenWriterOptions options{.out = out / "s", .format = format, .vocab = 1000, .shard_tokens = 150, .overwrite = replacing};
  std::optional<std::vector<std::int32_t>> before;
  if (replacing) before = write_random(folder.disk, options, 1, 10).ids;
  io::RecordingFileSystem recording(folder.disk, out);
  const std::vector<std::int32_t> written = write_random(recording, options, 2, 6).ids;
  int old_ones = 0;
  int refused = 0;
  for (std::int64_t after = 0; after <= recording.operations(); ++after) {
    for (const io::CrashKind kind : {io::CrashKind::killed, io::CrashKind::unsynced_lost, io::CrashKind::torn, io::CrashKind::reordered}) {
      const bool one_outcome = kind == io::CrashKind::killed || kind == io::CrashKind::unsynced_lost;
      for (std::uint64_t seed = 0; seed < (one_outcome ? 1u : 4u); ++seed) {
        const io::Path crashed = folder.path() / "crashed";
        recording.replay({after, kind, seed}, folder.disk, crashed);
        const auto found = found_in(folder.disk, crashed);
        EXPECT_TRUE(!found || found == before || found == written) << after << " " << static_cast<int>(kind) << " " << seed;
        EXPECT_TRUE(found == written || after < recording.operations());
        old_ones += found && found == before ? 1 : 0;
        refused += !found ? 1 : 0;
        if (seed == 0) {
          TokenWriterOptions again = options;
          again.out = crashed / "s";
          again.overwrite = true;
          EXPECT_EQ(write_random(folder.disk, again, 2, 6).ids, written);
          EXPECT_EQ(found_in(folder.disk, crashed), written) << after;
        }
        io::remove_tree(folder.disk, crashed);
      }
    }
  }
  EXPECT_GT(refused, 10);
  EXPECT_EQ(old_ones > 10, replacing);
}

TEST(TokenWriter, ACrashLeavesOldNewOrARefusal) {
  for (const ShardFormat format : {ShardFormat::llmc, ShardFormat::megatron}) {
    crash_everywhere(format, false);
    crash_everywhere(format, true);
  }
}

TEST(TokenWriter, AFailureWhileReplacingLeavesOldNewOrARefusal) {
  for (const io::FaultKind kind : {io::FaultKind::io_error, io::FaultKind::no_space}) {
    for (std::int64_t k = 1;; ++k) {
      TokenFolder folder;
      const TokenWriterOptions options{
          .out = folder.path() / "s", .format = ShardFormat::megatron, .vocab = 10, .shard_tokens = 150, .overwrite = true};
      const auto before = write_random(folder.disk, options, 1, 10).ids;
      io::FaultyFileSystem faulty(folder.disk, {.at = k, .kind = kind});
      try {
        write_random(faulty, options, 3, 6);
      } catch (const base::Error&) {
        const auto found = found_in(folder.disk, folder.path());
        EXPECT_TRUE(!found || found == before) << k;
      }
      if (!faulty.reached()) break;
    }
  }
}

TEST(TokenWriter, TheMarkOfAFileIsThatOfItsShards) {
  EXPECT_EQ(unfinished_mark("a/s_000012.bin"), "a/s.unfinished");
  EXPECT_EQ(unfinished_mark("a/s.idx"), "a/s.unfinished");
  EXPECT_EQ(unfinished_mark("a/s_12.bin"), "a/s_12.unfinished");
  EXPECT_EQ(unfinished_mark("_000000.bin"), ".unfinished");
  EXPECT_EQ(unfinished_mark("s"), "s.unfinished");
}

}  // namespace
}  // namespace plimsoll::formats
