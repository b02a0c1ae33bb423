// Where a kernel's library lies in memory.
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
  Segment behind_shared;  // the part of it at its end that nobody may write to
  Segment code;
  std::vector<Segment> variables;  // that can be written: __device__ at file scope, static locals
};

Segments segments_of(const Entry &entry);

}  // namespace cudaemu
