// The faults found during a launch: one line of text each, without repetition.
#pragma once
#include <stdint.h>

#include <string>

#include "runtime.h"

namespace cudaemu {

// For example "block 3, thread 17"; with three coordinates if the grid or block has more dimensions.
std::string describe_position(const uint3 &block, const uint3 &thread);
std::string describe_site(Site site);

// Reports a fault of the running thread, with its source line, block and thread. The launch ends
// early.
void diagnose(Site site, const std::string &what);
// Reports a complete line; of lines with the same `key` only the first.
void diagnose_line(const std::string &key, const std::string &line);

// Records a possible cause of a wrong result that is not a fault itself, until the host reads it.
void note(const std::string &line);

void clear_diagnostics();
bool any_diagnostics();
unsigned count_diagnostics();
const std::string &diagnostics_text();  // only between launches

}  // namespace cudaemu
