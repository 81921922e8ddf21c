#include "cli/manual.h"

#include <fmt/format.h>

namespace plimsoll::cli {

namespace {

// Hyphens and leading dots mean something to troff.
std::string escaped(std::string_view text) {
  std::string result;
  for (char letter : text) {
    if (letter == '-')
      result += "\\-";
    else if (letter == '\\')
      result += "\\e";
    else
      result += letter;
  }
  return result.starts_with('.') || result.starts_with('\'') ? "\\&" + result : result;
}

void add_option(const CLI::Option& option, std::string& page) {
  const std::string defaults = option.get_default_str().empty() ? "" : fmt::format(" (default {})", option.get_default_str());
  const std::string type = option.get_type_name().empty() || option.get_items_expected_max() == 0 ? "" : " " + option.get_type_name();
  page += fmt::format(".TP\n\\fB{}\\fR{}\n{}{}\n", escaped(option.get_name(false, true)), escaped(type), escaped(option.get_description()),
                      escaped(defaults));
}

// "\\fIfrom\\fR \\fIto\\fR ", as the usage line of --help has them.
std::string arguments_of(const CLI::App& command) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name =
        fmt::format("\\fI{}\\fR{}", escaped(option->get_name(true)), option->get_items_expected_max() > 1 ? "..." : "");
    text += option->get_required() ? name + " " : fmt::format("[{}] ", name);
  }
  return text;
}

}  // namespace

std::string manual_page(const CLI::App& app) {
  std::string page = fmt::format(".TH PLIMSOLL 1\n.SH NAME\nplimsoll \\- train neural networks on the machine at hand\n.SH SYNOPSIS\n");
  for (const CLI::App* command : app.get_subcommands({}))
    page += fmt::format(".B plimsoll {}\n{}[options]\n.br\n", command->get_name(), arguments_of(*command));
  page += fmt::format(".SH DESCRIPTION\n{}\n", escaped(app.get_description()));
  for (const CLI::App* command : app.get_subcommands({})) {
    page += fmt::format(".SH PLIMSOLL {}\n{}\n", CLI::detail::to_lower(command->get_name()), escaped(command->get_description()));
    for (const CLI::Option* option : command->get_options()) {
      if (option != command->get_help_ptr()) add_option(*option, page);
    }
  }
  page += fmt::format(".SH EXIT STATUS\n{}\n", escaped(app.get_footer()));
  page += ".SH ENVIRONMENT\n.TP\n\\fBNO_COLOR\\fR\nno colours in any output\n";
  return page;
}

}  // namespace plimsoll::cli
