// The handshake: every field that differs is named, with the ranks and what each has.
#include "collectives/agree.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "collectives/local/threads.h"

namespace plimsoll::collectives {
namespace {

std::vector<Field> fields_of_run() {
  return {{"build", "0.1.0 abc"}, {"run file", std::string(5000, 'x')}, {"data", "sha 12"}, {"layout", "data 2, tensor 2"}};
}

std::string refusal(const std::function<void(int, std::vector<Field>&)>& change) {
  std::vector<std::string> messages(4);
  try {
    local::run_threads(4, [&](Transport& transport) {
      const auto world = transport.make_world("handshake");
      std::vector<Field> fields = fields_of_run();
      change(transport.rank(), fields);
      try {
        agree(*world, fields);
      } catch (const base::Error& error) {
        EXPECT_EQ(error.kind(), base::ErrorKind::bad_input);
        messages[static_cast<std::size_t>(transport.rank())] = error.what();
        throw;
      }
    });
  } catch (const base::Error&) {
  }
  for (const std::string& message : messages) EXPECT_EQ(message, messages[0]);
  return messages[0];
}

TEST(Agree, EqualFieldsPass) {
  EXPECT_EQ(refusal([](int, auto&) {}), "");
}

TEST(Agree, EachFieldChangedOnEachRankIsNamed) {
  for (int rank = 0; rank < 4; ++rank) {
    for (std::size_t field = 0; field < fields_of_run().size(); ++field) {
      const std::string message = refusal([&](int own, auto& fields) {
        if (own == rank) fields[field].value.back() = '!';
      });
      EXPECT_NE(message.find(fields_of_run()[field].name + ": "), std::string::npos) << message;
      EXPECT_NE(message.find("on rank " + std::to_string(rank)), std::string::npos) << message;
      EXPECT_NE(message.find('!'), std::string::npos) << message;  // long values are shown where they differ
      EXPECT_LT(message.size(), 400u);
    }
  }
}

TEST(Agree, AFieldThatOneRankLacksIsNamed) {
  const std::string message = refusal([](int rank, auto& fields) {
    if (rank == 3) fields.erase(fields.begin());
  });
  EXPECT_NE(message.find("build: \"(not given)\" on rank 3; \"0.1.0 abc\" on ranks 0, 1, 2"), std::string::npos) << message;
}

}  // namespace
}  // namespace plimsoll::collectives
