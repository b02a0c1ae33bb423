// Faults found during a launch: short lines of text, each reported once.
#pragma once
#include <stdint.h>

#include <string>

#include "runtime.h"

namespace cudaemu {

// "block 3, thread 17", or with three coordinates each where there are more dimensions.
std::string describe_position(const uint3 &block, const uint3 &thread);
std::string describe_site(Site site);

// A fault found by the running thread; its place and position are added. The launch ends early.
void diagnose(Site site, const std::string &what);
// A fault with its own place; lines with the same `key` are reported once.
void diagnose_line(const std::string &key, const std::string &line);

// A line that explains a wrong result and is no fault by itself; kept until it is taken.
void note(const std::string &line);

void clear_diagnostics();
bool any_diagnostics();
unsigned count_diagnostics();
const std::string &diagnostics_text();  // only between launches

}  // namespace cudaemu
