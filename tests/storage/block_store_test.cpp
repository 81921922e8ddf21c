// The disk tier gives back what it was given or says that it cannot: under every fault at every operation.
#include "storage/disk/block_store.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include "base/error.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"
#include "support/io/faulty_file_system.h"

namespace plimsoll::storage::disk {
namespace {

using Data = std::vector<std::byte>;

Data random_bytes(std::size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> words(size / 8 + 1);
  for (std::uint64_t& word : words) word = random();
  const auto* bytes = reinterpret_cast<const std::byte*>(words.data());
  return {bytes, bytes + size};
}

class DiskTier : public testing::Test {
 protected:
  BlockStoreOptions options(std::int64_t size, std::int32_t lanes = 3) const {
    return {.folder = folder_.path(), .size = base::Bytes{size}, .lanes = lanes};
  }
  std::size_t files() { return disk_.list(folder_.path()).size(); }

  tests::TemporaryFolder folder_;
  io::PosixFileSystem disk_;
};

TEST_F(DiskTier, GivesBackWhatItWasGiven) {
  constexpr std::int64_t kSize = 20 << 20;
  BlockStore store(disk_, options(kSize));
  // Lengths around pages and blocks.
  std::int64_t offset = 0;
  std::vector<std::pair<std::int64_t, Data>> written;
  for (const std::int64_t length : {std::int64_t{1}, BlockStore::kPage - 1, BlockStore::kPage, BlockStore::kPage + 1,
                                    BlockStore::kBlock - 1, BlockStore::kBlock, BlockStore::kBlock + 1, 3 * BlockStore::kBlock + 17}) {
    written.emplace_back(offset, random_bytes(static_cast<std::size_t>(length), static_cast<unsigned>(length)));
    offset += (length + BlockStore::kPage - 1) / BlockStore::kPage * BlockStore::kPage;
  }
  for (int round = 0; round < 2; ++round) {
    for (auto& [place, data] : written) {
      data[0] ^= std::byte{1};
      store.write(place, data);
    }
    for (const auto& [place, data] : written) {
      Data found(data.size());
      store.read(place, found);
      EXPECT_EQ(found, data);
    }
  }
  EXPECT_EQ(store.traffic().read, store.traffic().written);
  EXPECT_EQ(files(), 0u);  // the scratch file has no name
}

// What was never written is zeros; any bytes of a stretch can be read and written; a stretch across others replaces them.
TEST_F(DiskTier, PartsOfAStretch) {
  constexpr std::int64_t kLength = 2 * BlockStore::kBlock + 4321;
  BlockStore store(disk_, options(4 * BlockStore::kBlock));
  const BlockStore::Stretch stretch{BlockStore::kPage, kLength};
  Data model(static_cast<std::size_t>(kLength));
  Data found(model.size());
  store.read(stretch.offset, found);
  EXPECT_EQ(found, model);
  std::mt19937_64 random(3);
  for (unsigned round = 0; round < 40; ++round) {
    const auto first = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(kLength));
    const std::int64_t length = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(kLength - first));
    const Data data = random_bytes(static_cast<std::size_t>(length), round);
    store.write_part(stretch, first, data);
    std::copy(data.begin(), data.end(), model.begin() + first);
    Data part(data.size());
    store.read_part(stretch, first, part);
    ASSERT_EQ(part, data);
  }
  store.read(stretch.offset, found);
  EXPECT_EQ(found, model);
  const Data other = random_bytes(static_cast<std::size_t>(BlockStore::kBlock), 77);
  store.write(0, other);
  Data again(other.size());
  store.read(0, again);
  EXPECT_EQ(again, other);
}

TEST_F(DiskTier, ManyThreadsUseItAtOnce) {
  constexpr int kThreads = 6;
  constexpr std::int64_t kStretch = 2 * BlockStore::kBlock + BlockStore::kPage;
  BlockStore store(disk_, options(kThreads * kStretch, 2));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (unsigned round = 0; round < 3; ++round) {
        const Data data = random_bytes(static_cast<std::size_t>(kStretch), static_cast<unsigned>(thread) * 10 + round);
        store.write(thread * kStretch, data);
        Data found(data.size());
        store.read(thread * kStretch, found);
        if (found != data) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Records are read and written one by one in any order, changed in part, and are zeros before that; what lies beside them is not touched.
TEST_F(DiskTier, Records) {
  constexpr std::int64_t kCount = 50;
  const Records records{.offset = BlockStore::kBlock, .count = kCount, .bytes = 3 * BlockStore::kPage};
  BlockStoreOptions with = options(records.end() + BlockStore::kBlock);
  with.records = {records};
  BlockStore store(disk_, with);
  const Data beside = random_bytes(static_cast<std::size_t>(BlockStore::kBlock), 5);
  store.write(0, beside);
  store.write(records.end(), beside);
  std::vector<Data> model(kCount, Data(static_cast<std::size_t>(records.bytes)));
  std::mt19937_64 random(11);
  for (unsigned round = 0; round < 20; ++round) {
    std::vector<std::int64_t> which;
    for (std::int64_t record = 0; record < kCount; ++record) {
      if (random() % 4 == 0) which.push_back(record);
    }
    std::shuffle(which.begin(), which.end(), random);
    const auto fresh = [&](std::size_t index) {
      return random_bytes(static_cast<std::size_t>(records.bytes), round * 1000 + static_cast<unsigned>(index));
    };
    if (round % 2 == 0) {
      store.write_records(records, which, [&](std::size_t index, std::span<std::byte> record) {
        const Data data = fresh(index);
        std::copy(data.begin(), data.end(), record.begin());
      });
      for (std::size_t index = 0; index < which.size(); ++index) model[static_cast<std::size_t>(which[index])] = fresh(index);
    } else {
      store.change_records(records, which, [&](std::size_t index, std::span<std::byte> record) { record[index] ^= std::byte{0x55}; });
      for (std::size_t index = 0; index < which.size(); ++index) model[static_cast<std::size_t>(which[index])][index] ^= std::byte{0x55};
    }
    std::vector<std::int64_t> all(kCount);
    std::iota(all.begin(), all.end(), 0);
    std::vector<Data> found(kCount);
    store.read_records(records, all,
                       [&](std::size_t index, std::span<const std::byte> record) { found[index] = {record.begin(), record.end()}; });
    ASSERT_EQ(found, model) << "round " << round;
  }
  for (const std::int64_t offset : {std::int64_t{0}, records.end()}) {
    Data found(beside.size());
    store.read(offset, found);
    EXPECT_EQ(found, beside);
  }
}

TEST_F(DiskTier, NoFaultOfARecordIsSilent) {
  using io::FaultKind;
  const Records records{.offset = 0, .count = 6, .bytes = 2 * BlockStore::kPage};
  const std::vector<std::int64_t> which{4, 1, 5};
  for (const FaultKind kind : {FaultKind::io_error, FaultKind::no_space, FaultKind::short_write, FaultKind::short_read,
                               FaultKind::flipped_read, FaultKind::lost_write}) {
    int stopped = 0;
    for (std::int64_t at = 1;; ++at) {
      io::FaultyFileSystem faulty(disk_, {.at = at, .kind = kind});
      bool named = false;
      try {
        BlockStoreOptions with = options(records.end());
        with.records = {records};
        BlockStore store(faulty, with);
        for (unsigned round = 0; round < 3; ++round) {
          const auto content = [&](std::size_t index) {
            return random_bytes(static_cast<std::size_t>(records.bytes), round * 10 + static_cast<unsigned>(index));
          };
          store.write_records(records, which, [&](std::size_t index, std::span<std::byte> record) {
            const Data data = content(index);
            std::copy(data.begin(), data.end(), record.begin());
          });
          store.read_records(records, which, [&](std::size_t index, std::span<const std::byte> record) {
            const Data expected = content(index);
            EXPECT_TRUE(std::equal(record.begin(), record.end(), expected.begin(), expected.end())) << static_cast<int>(kind) << " " << at;
          });
        }
      } catch (const base::Error& error) {
        named = true;
        EXPECT_NE(std::string(error.what()).find("'"), std::string::npos) << error.what();
      }
      EXPECT_EQ(named, faulty.fired()) << "fault " << static_cast<int>(kind) << " at operation " << at;
      stopped += named ? 1 : 0;
      if (!faulty.reached()) break;
    }
    EXPECT_GE(stopped, 3) << "fault " << static_cast<int>(kind);
  }
  EXPECT_EQ(files(), 0u);
}

// A fault at every operation: what is read afterwards is right, or somebody says that it is not.
TEST_F(DiskTier, NoFaultIsSilent) {
  using io::FaultKind;
  for (const FaultKind kind : {FaultKind::io_error, FaultKind::no_space, FaultKind::short_write, FaultKind::short_read,
                               FaultKind::flipped_read, FaultKind::lost_write}) {
    int stopped = 0;
    for (std::int64_t at = 1;; ++at) {
      io::FaultyFileSystem faulty(disk_, {.at = at, .kind = kind});
      bool named = false;
      try {
        check_folder(faulty, folder_.path(), base::Bytes{1 << 20});
        BlockStore store(faulty, options(4 * BlockStore::kBlock, 1));
        for (unsigned round = 0; round < 3; ++round) {
          const Data data = random_bytes(static_cast<std::size_t>(BlockStore::kBlock + 5), round);
          store.write(0, data);
          Data found(data.size());
          store.read(0, found);
          ASSERT_EQ(found, data) << "fault " << static_cast<int>(kind) << " at operation " << at;
        }
      } catch (const base::Error& error) {
        named = true;
        EXPECT_NE(std::string(error.what()).find("'"), std::string::npos) << error.what();
      }
      EXPECT_EQ(named, faulty.fired()) << "fault " << static_cast<int>(kind) << " at operation " << at;
      stopped += named ? 1 : 0;
      if (!faulty.reached()) break;
    }
    EXPECT_GE(stopped, 3) << "fault " << static_cast<int>(kind);
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(DiskTier, ALostWriteIsToldFromDamage) {
  const auto words = [&](io::FaultKind kind, std::int64_t at) {
    io::FaultyFileSystem faulty(disk_, {.at = at, .kind = kind});
    BlockStore store(faulty, options(BlockStore::kBlock));
    try {
      Data found(100);
      for (unsigned round = 0; round < 2; ++round) store.write(0, random_bytes(100, round));
      store.read(0, found);
    } catch (const base::Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  // Opened, unnamed, written, written, read.
  EXPECT_NE(words(io::FaultKind::lost_write, 4).find("found the content before the last write, expected what was written 2 times"),
            std::string::npos);
  EXPECT_NE(words(io::FaultKind::flipped_read, 5).find("found damaged content"), std::string::npos);
  EXPECT_EQ(words(io::FaultKind::none, 0), "nothing");
}

TEST_F(DiskTier, FoldersThatWillNotDo) {
  const auto words = [&](const io::Path& folder, std::int64_t size) {
    try {
      check_folder(disk_, folder, base::Bytes{size});
    } catch (const base::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(words("", 1).find("set \"limits.disk_path\""), std::string::npos);
  EXPECT_NE(words(folder_.path() / "missing", 1).find("does not exist"), std::string::npos);
  std::ofstream(folder_.path() / "file") << "x";
  EXPECT_NE(words(folder_.path() / "file", 1).find("is not a folder"), std::string::npos);
  EXPECT_NE(words(folder_.path(), std::int64_t{1} << 60).find("free"), std::string::npos);
  if (disk_.is_memory("/dev/shm")) {
    EXPECT_NE(words("/dev/shm", 1).find("tmpfs"), std::string::npos);
  }
  EXPECT_EQ(words(folder_.path(), 1), "");
}

// What a process left that died between making and unnaming its file goes when the next one starts; files of the living stay.
TEST_F(DiskTier, LeftoversAreRemoved) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  const auto touch = [&](const std::string& name) { std::ofstream(folder_.path() / name) << "x"; };
  touch(fmt::format("plimsoll-scratch-{}-0-0", child));
  touch(fmt::format("plimsoll-scratch-{}-0-0", getpid()));
  touch("plimsoll-scratch-notes.txt");
  check_folder(disk_, folder_.path(), base::Bytes{1});
  EXPECT_EQ(files(), 2u);
  BlockStore store(disk_, options(BlockStore::kBlock));  // takes the next number
  EXPECT_EQ(files(), 2u);
}

}  // namespace
}  // namespace plimsoll::storage::disk
