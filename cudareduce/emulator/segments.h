// The parts of a kernel's library in memory.
#pragma once
#include <stddef.h>

#include <vector>

#include "runtime.h"

namespace cudaemu {

struct Segment {
  char *start = nullptr;
  size_t bytes = 0;

  bool contains(const void *address) const {
    return static_cast<size_t>(static_cast<const char *>(address) - start) < bytes;
  }
};

struct Segments {
  Segment shared;  // this OS thread's copy of all its static __shared__ variables
  Segment behind_shared;  // its end, which no kernel may write to
  Segment code;
  std::vector<Segment> variables;  // that can be written: __device__ at file scope, static locals
};

Segments segments_of(const Entry &entry);

}  // namespace cudaemu
