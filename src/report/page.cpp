#include "report/page.h"

#include "base/error.h"
#include "report/page_assets.h"

namespace plimsoll::report {

namespace {

// JSON in a script element must not look like markup: a '<' can only be inside a string, where it has another spelling.
std::string for_script(std::string_view json) {
  std::string text;
  text.reserve(json.size());
  for (char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

std::string for_markup(std::string_view words) {
  std::string text;
  for (char c : words) {
    switch (c) {
      case '&': text += "&amp;"; break;
      case '<': text += "&lt;"; break;
      default: text += c;
    }
  }
  return text;
}

}  // namespace

std::string page_html(const Page& page) {
  const std::string_view form = page_template();
  std::string html;
  std::size_t begin = 0;
  const auto put = [&](std::string_view mark, std::string_view content) {
    const std::size_t at = form.find(mark, begin);
    PLIMSOLL_CHECK(at != std::string_view::npos, "the page's template has no {} where it is expected", mark);
    html += form.substr(begin, at - begin);
    html += content;
    begin = at + mark.size();
  };
  put("@title@", for_markup(page.plan.model));
  put("@style@", page_style());
  put("@data@", for_script(base::write_json(page_data(page))));
  put("@script@", page_script());
  html += form.substr(begin);
  return html;
}

}  // namespace plimsoll::report
