#include "cli/completion.h"

#include <algorithm>

#include <fmt/format.h>

namespace plimsoll::cli {

namespace {

std::string command_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) names += (names.empty() ? "" : " ") + command->get_name();
  return names;
}

std::string option_names(const CLI::App& command) {
  std::string names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names += (names.empty() ? "--" : " --") + name;
  }
  return names;
}

// The words an option takes, where they are few: their check writes them into its type as {a,b}.
std::string choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{');
  const std::size_t close = type.find('}', open);
  if (open == std::string::npos || close == std::string::npos) return "";
  std::string words = type.substr(open + 1, close - open - 1);
  std::replace(words.begin(), words.end(), ',', ' ');
  return words;
}

std::string bash_script(const CLI::App& app) {
  std::string cases;
  std::string choices;
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string& name = command->get_name();
    cases += fmt::format("    {}) words=\"{}\" ;;\n", name, option_names(*command));
    for (const CLI::Option* option : command->get_options()) {
      const std::string words = choices_of(*option);
      if (words.empty()) continue;
      // What stands behind the command itself is its first argument.
      const std::string before = option->get_positional() ? name : "--" + option->get_lnames().front();
      choices += fmt::format("    \"{} {}\") COMPREPLY=($(compgen -W \"{}\" -- \"$current\")); return ;;\n", name, before, words);
    }
  }
  return fmt::format(
      "_plimsoll() {{\n"
      "  local current=\"${{COMP_WORDS[COMP_CWORD]}}\" words\n"
      "  case \"${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD-1]}}\" in\n"
      "{}"
      "  esac\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$current\"))\n"
      "    return\n"
      "  fi\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n"
      "{}"
      "    *) words=\"\" ;;\n"
      "  esac\n"
      "  case \"$current\" in\n"
      "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n"
      "    *) COMPREPLY=($(compgen -f -- \"$current\")) ;;\n"
      "  esac\n"
      "}}\n"
      "complete -o filenames -F _plimsoll plimsoll\n",
      choices, command_names(app), cases);
}

// Between single quotes fish takes all but these two as they are.
std::string fish_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

std::string fish_script(const CLI::App& app) {
  std::string text;
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string& name = command->get_name();
    text += fmt::format("complete -c plimsoll -n __fish_use_subcommand -a {} -d {}\n", name, fish_quoted(command->get_description()));
    for (const CLI::Option* option : command->get_options()) {
      const std::string words = choices_of(*option);
      const std::string takes = words.empty() ? "" : fmt::format(" -x -a {}", fish_quoted(words));
      const std::string place = fmt::format("complete -c plimsoll -n '__fish_seen_subcommand_from {}'", name);
      if (option->get_positional() && !words.empty()) text += fmt::format("{}{}\n", place, takes);
      for (const std::string& long_name : option->get_lnames()) {
        text += fmt::format("{} -l {}{} -d {}\n", place, long_name, takes, fish_quoted(option->get_description()));
      }
    }
  }
  return text;
}

}  // namespace

std::string completion_script(const CLI::App& app, std::string_view shell) {
  if (shell == "fish") return fish_script(app);
  // zsh runs bash completions through its own compatibility layer.
  return (shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : "") + bash_script(app);
}

}  // namespace plimsoll::cli
