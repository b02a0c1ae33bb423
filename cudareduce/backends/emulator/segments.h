// The memory segments of a loaded kernel library.
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
  Segment shared;  // all static __shared__ variables, one copy per OS thread
  Segment behind_shared;  // guard band after them
  Segment code;
  std::vector<Segment> variables;  // writable data: __device__ variables, static local variables
};

Segments segments_of(const Entry &entry);

}  // namespace cudaemu
