// docs/run-file.md is the table of fields, printed. PLIMSOLL_UPDATE=1 rewrites the page.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "config/config.h"
#include "config/fields.h"

namespace plimsoll::config {
namespace {

TEST(Reference, ThePageIsUpToDate) {
  const std::string path = PLIMSOLL_SOURCE_DIR "/docs/run-file.md";
  if (std::getenv("PLIMSOLL_UPDATE") != nullptr) std::ofstream(path) << reference_page();
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text, reference_page()) << "run this test with PLIMSOLL_UPDATE=1 to rewrite docs/run-file.md";
}

TEST(Reference, TheDeepSpeedPageIsUpToDate) {
  const std::string path = PLIMSOLL_SOURCE_DIR "/docs/deepspeed.md";
  if (std::getenv("PLIMSOLL_UPDATE") != nullptr) std::ofstream(path) << deepspeed_page();
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text, deepspeed_page()) << "run this test with PLIMSOLL_UPDATE=1 to rewrite docs/deepspeed.md";
}

TEST(Reference, EveryFieldIsDescribed) {
  for (const Field& field : fields()) {
    EXPECT_FALSE(field.about.empty()) << field.key;
    EXPECT_TRUE(field.about.ends_with('.')) << field.key;
    EXPECT_FALSE(field.expects.empty()) << field.key;
    EXPECT_EQ(field.expects.find('|'), std::string::npos) << field.key;
  }
}

}  // namespace
}  // namespace plimsoll::config
