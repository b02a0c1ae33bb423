// A timer that preempts long-running threads. Without it, a thread that polls in a loop would block
// all others.
#pragma once
#include "segments.h"

namespace cudaemu {

// Preempts the code in a segment on this OS thread, from construction to destruction. An empty segment
// means no preemption.
class Ticker {
 public:
  explicit Ticker(Segment code);
  ~Ticker();
  Ticker(const Ticker &) = delete;
};

void *program_counter_of(void *signal_context);

}  // namespace cudaemu
