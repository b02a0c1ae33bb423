// A clock that interrupts a thread which runs for long, so that one that waits for another in a loop
// lets it run.
#pragma once
#include "segments.h"

namespace cudaemu {

// While one exists, this code is interrupted on this OS thread; none if it is empty.
class Ticker {
 public:
  explicit Ticker(Segment code);
  ~Ticker();
  Ticker(const Ticker &) = delete;
};

void *program_counter_of(void *signal_context);

}  // namespace cudaemu
