// Stores the output of printf in kernels until the host reads it.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <map>
#include <mutex>
#include <string>

#include "block.h"

namespace cudaemu {
namespace {

constexpr unsigned SHOWN_LINES = 20;  // per kernel

std::mutex printing;
std::string printed;                           // a line each: kernel's name, what it has printed
std::map<std::string, unsigned> printed_lines;  // by kernel, with those that are not shown
std::string handed_over;

}  // namespace
}  // namespace cudaemu

using namespace cudaemu;

extern "C" {
#pragma GCC visibility push(default)

int cudaemu_printf(const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const std::string kernel = running_block->launch().entry->name;
  std::lock_guard<std::mutex> lock(printing);
  for (const char *line = text; *line != 0;) {
    const size_t end = strcspn(line, "\n");
    if (printed_lines[kernel]++ < SHOWN_LINES) {
      printed += kernel + " printf: " + std::string(line, end) + "\n";
    }
    line += end + (line[end] == '\n');
  }
  return length;
}

// The lines that kernels have printed since the last call; valid until the next call.
const char *cudaemu_printed() {
  handed_over.swap(printed);
  for (const auto &[kernel, lines] : printed_lines) {
    if (lines <= SHOWN_LINES) continue;
    const std::string dropped = std::to_string(lines - SHOWN_LINES);
    handed_over += kernel + " printf: " + dropped + " more lines are not shown\n";
  }
  printed.clear();
  printed_lines.clear();
  return handed_over.c_str();
}

#pragma GCC visibility pop
}
