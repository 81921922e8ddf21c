// What the reference reader (safetensors 0.8) accepts and refuses, case by case, and the views of what is accepted.
#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include "formats_safetensors/bytes.h"
#include "io/posix_file_system.h"
#include "io/temporary_folder.h"

namespace plimsoll::formats {
namespace {

const std::string kOne = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";

TEST(Safetensors, ViewsLieWhereTheHeaderSays) {
  const Safetensors file = parse_bytes(file_bytes(
      R"({"__metadata__":{"format":"pt","x":"y"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[3,11]},"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}  )",
      std::string("\x01\x02\x03\x00\x00\x80\x3f\x00\x00\x00\xc0", 11)));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "a");  // by place, not as written
  EXPECT_EQ(to_i32(file.at("a")), (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(to_f32(file.at("b")), (std::vector<float>{1.0F, -2.0F}));
  EXPECT_EQ(file.at("b").shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(to_string(file.at("b")), "F32[2, 1]");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_THROW(file.at("c"), base::Error);
}

TEST(Safetensors, AcceptsWhatTheReferenceAccepts) {
  for (const std::string& bytes : {
           file_bytes("{}"),
           file_bytes(" {}"),
           file_bytes("{}\n\t "),
           file_bytes(R"({"__metadata__":null})"),
           file_bytes(R"({"__metadata__":{}})"),
           file_bytes(kOne, "x"),
           file_bytes(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
           file_bytes(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", "x"),
           file_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":[{}]}})", "x"),
           file_bytes(R"({"a":{"dt\u0079pe":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
           file_bytes(R"({"a\u0000":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
           file_bytes(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", "x"),
           file_bytes(R"({"a":{"dtype":"U8","shape":[0,9223372036854775807],"data_offsets":[0,0]}})"),
           file_bytes(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"F64","shape":[0,3],"data_offsets":[0,0]}})"),
           file_bytes(R"({"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xx"),
       }) {
    EXPECT_EQ(refusal(bytes), "") << bytes;
  }
}

struct Wrong {
  std::string bytes;
  std::string says;
};

TEST(Safetensors, RefusesWithAReason) {
  const std::string max = "18446744073709551615";
  for (const Wrong& wrong : std::vector<Wrong>{
           {"", "has 0 bytes"},
           {"1234567", "has 7 bytes"},
           {with_length(100'000'001, "{}", ""), "at most 100000000"},
           {with_length(~0ull, "{}", ""), "at most 100000000"},
           {with_length(3, "{}", ""), "cut short"},
           {with_length(0, "", ""), "found the end of the text"},
           {file_bytes("{"), "does not end with"},
           {file_bytes("}"), "expected a value"},
           {file_bytes("{,}"), "between two"},
           {file_bytes("{\"a\":}"), "expected a value"},
           {file_bytes("{]}"), "expected a key"},
           {file_bytes("{\"a\":{}}}"), "expected the end"},
           {file_bytes("{\"a}"), "without an end"},
           {file_bytes(kOne.substr(0, kOne.size() - 1) + ",}", "x"), "another tensor"},
           {file_bytes(kOne.substr(0, kOne.size() - 1) + ",,}", "x"), "between two"},
           {file_bytes("{\"a\":" + std::string(70'000, ' ') + "{}}"), "at most 65536"},
           {file_bytes("[]"), "expected an object"},
           {file_bytes("null"), "expected an object"},
           {file_bytes("{} x"), "does not end with"},
           {file_bytes("{\"a\xff\":1}"), "UTF-8"},
           {file_bytes("{\"a\x01\":1}"), "escape"},
           {file_bytes(kOne, ""), "cut short"},
           {file_bytes(kOne, "xx"), "too long"},
           {file_bytes("{}", "x"), "too long"},
           {file_bytes(R"({"__metadata__":{"a":1}})"), "expected a string"},
           {file_bytes(R"({"__metadata__":["a"]})"), "expected an object"},
           {file_bytes(R"({"__metadata__":{},"__metadata__":{}})"), "a second time"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
            "a second time"},
           {file_bytes(R"({"a":null})"), "expected an object"},
           {file_bytes(R"({"a":["U8",[1],[0,1]]})", "x"), "expected an object"},
           {file_bytes(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", "x"), "dtype"},
           {file_bytes(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", "x"), "shape"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[1]}})", "x"), "data_offsets"},
           {file_bytes(R"({"a":{"dtype":"u8","shape":[1],"data_offsets":[0,1]}})", "x"), "a type that safetensors defines"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", "x"), "expected an array"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", "x"), "whole number"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}})", "x"), "whole number"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}})"), "whole number"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "x"), "whole number"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", "x"), "[begin, end]"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "x"), "[begin, end]"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", "x"), "before it begins"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xx"), "no hole"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                       "xxx"),
            "overlap"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                       "xx"),
            "overlap"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", "x"), "takes 2 bytes"},
           {file_bytes(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1]}})", "x"), "takes 4 bytes"},
           {file_bytes(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", "x"), "whole bytes"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[)" + max + R"(,2,0],"data_offsets":[0,0]}})"), "whole number"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"), "no size"},
           {file_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,9223372036854775807]}})", "x"), "takes 1 bytes"},
           {file_bytes("{\"a\":" + std::string(10'000, '[') + "}"), "inside each other"},
       }) {
    const std::string message = refusal(wrong.bytes);
    EXPECT_NE(message.find(wrong.says), std::string::npos) << wrong.bytes.substr(0, 200) << "\n  " << message;
    EXPECT_NE(message.find("test"), std::string::npos) << message;
  }
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = file_bytes(
      R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[3,11]},"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "12345678901");
  ASSERT_EQ(refusal(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_NE(refusal(whole.substr(0, size)), "") << size;
}

TEST(Safetensors, OpensThroughTheSeam) {
  const tests::TemporaryFolder folder;
  io::PosixFileSystem disk;
  io::replace_file(disk, folder.path() / "x.safetensors", io::as_bytes(file_bytes(kOne, "\x07")));
  EXPECT_EQ(to_i32(Safetensors::open(disk, folder.path() / "x.safetensors").at("a")), std::vector<std::int32_t>{7});
  EXPECT_THROW(Safetensors::open(disk, folder.path() / "none"), io::IoError);
}

TEST(Safetensors, IntegersMustFit) {
  const auto one = [](std::string_view dtype, std::string data) {
    return parse_bytes(file_bytes(fmt::format(R"({{"a":{{"dtype":"{}","shape":[1],"data_offsets":[0,{}]}}}})", dtype, data.size()), data));
  };
  EXPECT_EQ(to_i32(one("I64", std::string("\xff\xff\xff\xff\xff\xff\xff\xff")).at("a")), std::vector<std::int32_t>{-1});
  EXPECT_EQ(to_i32(one("U16", "\xff\xff").at("a")), std::vector<std::int32_t>{65535});
  EXPECT_THROW(to_i32(one("U32", "\xff\xff\xff\xff").at("a")), base::Error);
  EXPECT_THROW(to_i32(one("I64", std::string("\0\0\0\0\1\0\0\0", 8)).at("a")), base::Error);
  EXPECT_THROW(to_i32(one("F32", "1234").at("a")), base::Error);
  EXPECT_THROW(to_f32(one("F8_E4M3", "1").at("a")), base::Error);
}

}  // namespace
}  // namespace plimsoll::formats
