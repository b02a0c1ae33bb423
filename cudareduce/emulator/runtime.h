// The interface between a kernel's translation unit and the runtime library.
//
// The kernel side (device.h and device/*.h) turns CUDA's built-ins into calls of the functions
// below; the runtime library implements them. Both sides include this file and nothing else of
// each other, so a kernel compiles in a few hundredths of a second.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Kernels are compiled with hidden visibility; the runtime's names must stay importable.
#pragma GCC visibility push(default)

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// Initial-exec is the fastest access that works across libraries. It draws on the small static
// TLS reserve that the C library keeps for libraries loaded late, so only a few words live there.
#define CUDAEMU_TLS __thread __attribute__((tls_model("initial-exec")))

namespace cudaemu {

// A place in the source. Device functions take one as their last, defaulted argument, which the
// compiler fills in with the caller's position (as std::source_location does, without its header).
struct Site {
  const char *file;
  int line;
  static constexpr Site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

struct Thread {
  uint3 index;
  unsigned rank;  // the index made linear: x fastest
};

struct BlockPosition {
  uint3 index;
  dim3 shape;
  dim3 grid;
  void *dynamic_shared;
};

extern CUDAEMU_TLS const Thread *this_thread;  // the CUDA thread that this OS thread runs now
extern CUDAEMU_TLS BlockPosition this_block;   // and its block

// The byte that fills variables declared without a value in this launch.
extern unsigned char unset_byte;

template <typename T>
inline void unset(T &variable) {
  if constexpr (__is_trivial(T)) __builtin_memset((void *)&variable, unset_byte, sizeof variable);
}

// __syncthreads() and the variants that also count a predicate.
enum class Vote { Any, All, Count };
void block_barrier(Site at);
int block_barrier(Vote vote, bool predicate, Site at);

// Warp-level operations.
enum class Collective : uint8_t {
  SyncWarp,
  ShuffleIndex,
  ShuffleUp,
  ShuffleDown,
  ShuffleXor,
  Ballot,
  ReduceAdd,
  ReduceMinSigned,
  ReduceMaxSigned,
  ReduceMinUnsigned,
  ReduceMaxUnsigned,
  ReduceAnd,
  ReduceOr,
  ReduceXor,
};

// The widest value of a shuffle. Not a struct, since a last call that returns one does not always
// become a jump (see fiber.h).
typedef unsigned __int128 Value __attribute__((aligned(8)));

// A lane's part in a warp-level operation. Passed in registers, like Value and Site.
struct Request {
  unsigned mask;
  int argument;
  Collective what;
  uint8_t width;  // a power of two up to 32
};

Value warp_collective(Request request, Value value, Site at);
int diagnose_width(int width, Site at);  // returns one to go on with
unsigned active_mask();

// Threads that a fence or an atomic operation synchronises with: the block's, or the device's.
enum class Scope { Block, Device };
enum class Fence { Acquire = 1, Release = 2, Both = 3 };
void fence(Scope scope, Fence order = Fence::Both);
void yield();  // let the other threads of the block move on
void unsupported(const char *what, Site at);
void assertion_failed(const char *expression, Site at);  // does not return
void return_early();  // a `return` statement: the thread skips the rest on purpose

// A read-modify-write operation is begin_atomic (which returns the current value) and then
// compare_and_swap (which returns the value it found) until that succeeds. `acquires` is true for
// CUDA's own atomic functions, after which published kernels read without a fence, and false for
// cuda::atomic, whose memory order says whether a fence follows.
#define CUDAEMU_WORDS(each) each(uint8_t) each(uint16_t) each(uint32_t) each(uint64_t)
#define CUDAEMU_ATOMICS(Word)                       \
  Word begin_atomic(Word *address, Scope scope, bool acquires = true); \
  Word compare_and_swap(Word *address, Word expected, Word desired);
CUDAEMU_WORDS(CUDAEMU_ATOMICS)
#undef CUDAEMU_ATOMICS

constexpr unsigned BEHIND_SHARED = 1024;

// One __global__ function, as the loader finds it in the kernel's library.
struct Entry {
  const char *name;
  void (*invoke)(void **arguments);  // each argument by address
  unsigned parameters;
  // The end of the static __shared__ variables in this OS thread's copy of the library's thread-local
  // segment; BEHIND_SHARED bytes follow that nobody may write to. Asking for it makes the C library
  // allocate the copy.
  void *(*shared_segment)();
};

// For the headers in include/; see groups.cpp.

// A relaxed atomic load or store; `acquires` as above.
uint32_t atomic_load(const uint32_t *address, bool acquires = true);
uint64_t atomic_load(const uint64_t *address, bool acquires = true);
void atomic_store(uint32_t *address, uint32_t value);
void atomic_store(uint64_t *address, uint64_t value);

void grid_barrier(Site at);  // of all blocks of a cooperative launch

// The lanes of the warp that reach this call together. Unless all are promised, the random schedule
// gives a part of those in a divergent branch, as CUDA allows.
unsigned converged_lanes(Site at, bool promised = true);

// A branch or an iteration of a loop that contains a barrier, from here to the end of the scope. All
// threads of a block must reach a barrier in the same branches and iterations.
class BarrierScope {
 public:
  __attribute__((always_inline)) BarrierScope(int line, bool loop) { enter_scope(line, loop); }
  __attribute__((always_inline)) ~BarrierScope() { leave_scope(); }

 private:
  static void enter_scope(int line, bool loop);
  static void leave_scope();
};

// Asynchronous copies of the running thread, pending until it waits for them: those of an owner (a
// barrier) in any order, others in batches that are closed one by one.
struct Copy {
  void *target;
  const void *source;
  size_t bytes;
  const void *owner;
};
void forget_copies();  // when the thread begins
void remember_copy(const Copy &copy);
void close_batch();
// The oldest copy of `owner`; without one, the oldest that is in a batch that was closed before
// the `newest` last ones. False where there is none.
bool take_copy(Copy *copy, unsigned newest, const void *owner);

void copying(bool begins);  // the accesses in between belong to an asynchronous copy

long long nanoseconds();  // of a clock that only goes forward

}  // namespace cudaemu

#pragma GCC visibility pop
