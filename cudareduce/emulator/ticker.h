// A timer that preempts long-running threads, so that a thread that polls in a loop lets others run.
#pragma once
#include "segments.h"

namespace cudaemu {

// While it exists, this code is preempted on this OS thread; none if the segment is empty.
class Ticker {
 public:
  explicit Ticker(Segment code);
  ~Ticker();
  Ticker(const Ticker &) = delete;
};

void *program_counter_of(void *signal_context);

}  // namespace cudaemu
