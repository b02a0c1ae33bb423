// The hazard checker's view of a launch. The plain runtime is built without it, and the calls below
// then compile to nothing.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "block.h"

namespace cudaemu {
namespace hazards {

#ifdef CUDAEMU_HAZARDS

constexpr bool ENABLED = true;

void watch_buffer(const char *start, size_t bytes, unsigned cell_bytes);
void forget_buffer(const char *start);

enum class Kind { Read, Write, Atomic };
// What the hooks in the kernel's code call. The address to return to tells the place in the kernel.
void access_memory(const void *address, size_t bytes, Kind kind, const void *return_address);

void launch_begins(const Launch &launch);
void launch_ends();
void block_begins(const char *shared, size_t shared_bytes);
void barrier_released();
void warp_synchronised(unsigned warp, unsigned lanes);
void thread_fenced(Scope scope);
void atomic_accessed(const void *address, size_t bytes, const void *return_address);

#else

constexpr bool ENABLED = false;

inline void watch_buffer(const char *, size_t, unsigned) {}
inline void forget_buffer(const char *) {}

inline void launch_begins(const Launch &) {}
inline void launch_ends() {}
inline void block_begins(const char *, size_t) {}
inline void barrier_released() {}
inline void warp_synchronised(unsigned, unsigned) {}
inline void thread_fenced(Scope) {}
inline void atomic_accessed(const void *, size_t, const void *) {}

#endif

}  // namespace hazards
}  // namespace cudaemu
