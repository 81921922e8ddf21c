// A drive that fails at one operation after another: whatever it is, the step stops with a name or ends with the right bits, and nothing is
// left behind.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <initializer_list>

#include "base/error.h"
#include "io/posix_file_system.h"
#include "ranks/compare.h"
#include "ranks/layouts.h"
#include "support/io/faulty_file_system.h"

namespace plimsoll::ranks {

inline constexpr std::initializer_list<io::FaultKind> kDriveFaults{io::FaultKind::io_error,     io::FaultKind::no_space,
                                                                   io::FaultKind::short_write,  io::FaultKind::short_read,
                                                                   io::FaultKind::flipped_read, io::FaultKind::lost_write};

// Every operation at first, then one in `stride` of the many alike.
inline void expect_no_silent_fault(const Task& task, const Layout& layout, std::int64_t stride,
                                   std::initializer_list<io::FaultKind> kinds = kDriveFaults) {
  const Outcome good = train(task, layout);
  io::PosixFileSystem files;
  for (const io::FaultKind kind : kinds) {
    int stopped = 0;
    for (std::int64_t at = 1;; at += at < 6 ? 1 : stride) {
      io::FaultyFileSystem faulty(files, {.at = at, .kind = kind});
      Task hurt = task;
      hurt.file_system = &faulty;
      try {
        expect_same_bits(train(hurt, layout), good);
      } catch (const base::Error& error) {
        ++stopped;
        EXPECT_NE(std::string(error.what()).find("'"), std::string::npos) << error.what();
      }
      EXPECT_TRUE(std::filesystem::is_empty(layout.disk_folder));
      if (!faulty.reached()) break;
    }
    EXPECT_GE(stopped, 1) << "fault " << static_cast<int>(kind);
  }
}

}  // namespace plimsoll::ranks
