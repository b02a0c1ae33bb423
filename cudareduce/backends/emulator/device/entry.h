// CUDAEMU_ENTRY(name, ...) exports a __global__ function from the library; further arguments are those
// of its __launch_bounds__. translation.py adds one such line per kernel at the end of the file.
#pragma once
#include "traits.h"

namespace cudaemu {

template <class... A, size_t... index>
inline void invoke_with(void (*kernel)(A...), void **arguments, Indices<index...>) {
  kernel(*static_cast<typename Plain<A>::type *>(arguments[index])...);
}

template <class... A>
inline void invoke_with(void (*kernel)(A...), void **arguments) {
  invoke_with(kernel, arguments, IndicesUpTo<sizeof...(A)>());
}

template <class... A>
constexpr unsigned parameter_count(void (*)(A...)) {
  return sizeof...(A);
}

// The number of threads per block that __launch_bounds__ allows.
template <class... Others>
constexpr unsigned first_of(unsigned first = 1024, Others...) {
  return first;
}

// Marks the end of all __shared__ variables: without alignment, in a section that the linker puts last.
static thread_local char shared_segment_marker[BEHIND_SHARED]
    __attribute__((aligned(1), section(".tbss.end")));
inline void *shared_segment() { return shared_segment_marker; }

}  // namespace cudaemu

// Inserted into the body of a branch or loop that contains a barrier: see BarrierScope in runtime.h.
#ifdef CUDAEMU_WATCHED
#define CUDAEMU_BARRIER_SCOPE(line, loop) \
  const cudaemu::BarrierScope cudaemu_barrier_scope(line, loop);
#else
#define CUDAEMU_BARRIER_SCOPE(line, loop)
#endif

// Functions that a header adds to the start of every thread.
#define CUDAEMU_THREAD_BEGINS

// Exports a kernel of an external program. Its C++ name may contain commas.
#define CUDAEMU_KERNEL(symbol, bound, ...)                                                   \
  extern "C" __attribute__((visibility("default")))                                          \
  const cudaemu::Entry cudaemu_entry_##symbol = {                                            \
      #__VA_ARGS__,                                                                          \
      [](void **arguments) {                                                                 \
        CUDAEMU_THREAD_BEGINS                                                                \
        cudaemu::invoke_with(&__VA_ARGS__, arguments);                                       \
      },                                                                                     \
      cudaemu::parameter_count(&__VA_ARGS__),                                                \
      &cudaemu::shared_segment,                                                              \
  };                                                                                         \
  extern "C" __attribute__((visibility("default"))) const unsigned cudaemu_bounds_##symbol = \
      bound;

// Exports address and size of a variable of an external program.
#define CUDAEMU_VARIABLE(symbol, name)                                                         \
  extern "C" __attribute__((visibility("default"))) const void *const cudaemu_address_##symbol = \
      &name;                                                                                   \
  extern "C" __attribute__((visibility("default"))) const unsigned long cudaemu_size_##symbol =  \
      sizeof name;

#define CUDAEMU_ENTRY(kernel, ...)                                                           \
  extern "C" __attribute__((visibility("default")))                                          \
  const cudaemu::Entry cudaemu_entry_##kernel = {                                            \
      #kernel,                                                                               \
      [](void **arguments) {                                                                 \
        CUDAEMU_THREAD_BEGINS                                                                \
        cudaemu::invoke_with(&kernel, arguments);                                            \
      },                                                                                     \
      cudaemu::parameter_count(&kernel),                                                     \
      &cudaemu::shared_segment,                                                              \
  };                                                                                         \
  extern "C" __attribute__((visibility("default"))) const unsigned cudaemu_bounds_##kernel = \
      cudaemu::first_of(__VA_ARGS__);
