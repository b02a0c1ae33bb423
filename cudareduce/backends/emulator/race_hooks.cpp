// Functions that g++ calls in kernels compiled with -fsanitize=thread,alignment,bounds. They replace
// the sanitizers' runtime libraries, which are not linked.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

#include <string>

#include "diagnostics.h"
#include "races.h"
#include "traffic.h"

using cudaemu::races::Kind;
using cudaemu::races::Manner;

namespace {

// The part of the compiler's data structures that is read here.
struct SourceLocation {
  const char *file;
  uint32_t line;
  uint32_t column;
};

struct AlignmentData {
  SourceLocation location;
  const void *type;
  unsigned char log2_alignment;
  unsigned char kind_of_access;
};

// The location that the compiler passes may be in a header of the emulator. The return address gives
// the line in the kernel.
void diagnose_call(const void *return_address, const std::string &what) {
  if (cudaemu::this_thread == nullptr) return;
  Dl_info library = {};
  const char *call = static_cast<const char *>(return_address) - 1;
  if (dladdr(call, &library) == 0) return;
  char place[512];
  snprintf(place, sizeof place, "{%s+0x%zx}: ", library.dli_fname,
           static_cast<size_t>(call - static_cast<char *>(library.dli_fbase)));
  const std::string position = cudaemu::describe_position(
      cudaemu::this_block.index, cudaemu::this_thread->index);
  cudaemu::diagnose_line(place + what, place + what + " (" + position + ")");
}

// Passes the accesses of kernels to the race detector or to the traffic counters.
inline void access_memory(void *address, size_t bytes, Manner manner, const void *return_address) {
  if (cudaemu::traffic::counting) {
    const bool writes = manner.kind == Kind::Write;
    cudaemu::traffic::access(address, bytes, writes, manner.strong, return_address);
  } else {
    cudaemu::races::access_memory(address, bytes, manner, return_address);
  }
}

}  // namespace

#define CUDAEMU_HOOK(name, bytes, kind, strong) \
  void name(void *address) {                    \
    access_memory(address, bytes, {kind, strong}, __builtin_return_address(0)); \
  }

#define CUDAEMU_HOOKS(bytes)                                             \
  CUDAEMU_HOOK(__tsan_read##bytes, bytes, Kind::Read, false)             \
  CUDAEMU_HOOK(__tsan_write##bytes, bytes, Kind::Write, false)           \
  CUDAEMU_HOOK(__tsan_unaligned_read##bytes, bytes, Kind::Read, false)   \
  CUDAEMU_HOOK(__tsan_unaligned_write##bytes, bytes, Kind::Write, false) \
  CUDAEMU_HOOK(__tsan_volatile_read##bytes, bytes, Kind::Read, true)     \
  CUDAEMU_HOOK(__tsan_volatile_write##bytes, bytes, Kind::Write, true)   \
  CUDAEMU_HOOK(__tsan_unaligned_volatile_read##bytes, bytes, Kind::Read, true) \
  CUDAEMU_HOOK(__tsan_unaligned_volatile_write##bytes, bytes, Kind::Write, true)

extern "C" {
#pragma GCC visibility push(default)

CUDAEMU_HOOKS(1)
CUDAEMU_HOOKS(2)
CUDAEMU_HOOKS(4)
CUDAEMU_HOOKS(8)
CUDAEMU_HOOKS(16)

void __tsan_read_range(void *address, size_t bytes) {
  access_memory(address, bytes, {Kind::Read, false}, __builtin_return_address(0));
}
void __tsan_write_range(void *address, size_t bytes) {
  access_memory(address, bytes, {Kind::Write, false}, __builtin_return_address(0));
}

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}

void __ubsan_handle_type_mismatch_v1(AlignmentData *data, uintptr_t address) {
  const size_t alignment = size_t{1} << data->log2_alignment;
  if (address == 0) return;  // the access itself will fault
  diagnose_call(__builtin_return_address(0), "misaligned access: the address must be a multiple of " +
                                  std::to_string(alignment) + " bytes");
}

void __ubsan_handle_out_of_bounds(void *, uintptr_t index) {
  diagnose_call(__builtin_return_address(0),
                "index " + std::to_string(static_cast<intptr_t>(index)) + " is outside the array");
}

#pragma GCC visibility pop
}
