// The interface between a kernel's translation unit and the runtime library.
//
// device.h and device/*.h implement CUDA's built-ins by calls of the functions below; the runtime
// library defines them. Kernels include no other header of the runtime, so that they compile in a few
// hundredths of a second.
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

// Initial-exec is the fastest thread-local access that works across libraries. It uses the small
// static TLS reserve of the C library, so only a few words may have this model.
#define CUDAEMU_TLS __thread __attribute__((tls_model("initial-exec")))

namespace cudaemu {

// A source location. Device functions take it as their last, defaulted argument, so the compiler
// passes the caller's location (like std::source_location, without its header).
struct Site {
  const char *file;
  int line;
  static constexpr Site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

struct Thread {
  uint3 index;
  unsigned rank;  // linear index, x fastest
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

// The widest value of a shuffle. Not a struct, since a tail call that returns a struct does not always
// compile to a jump (see fiber.h).
typedef unsigned __int128 Value __attribute__((aligned(8)));

// A lane's part in a warp-level operation. Passed in registers, like Value and Site.
struct Request {
  unsigned mask;
  int argument;
  Collective what;
  uint8_t width;  // a power of two up to 32
};

Value warp_collective(Request request, Value value, Site at);
int diagnose_width(int width, Site at);  // reports an invalid shuffle width; returns a valid one
unsigned active_mask();

// The scope of a fence or an atomic operation.
enum class Scope { Block, Device };
enum class Fence { Acquire = 1, Release = 2, Both = 3 };
void fence(Scope scope, Fence order = Fence::Both);
void yield();  // lets the other threads of the block run
void unsupported(const char *what, Site at);
void assertion_failed(const char *expression, Site at);  // does not return
void return_early();  // marks a `return` statement: skipping a later barrier is then intended

// A read-modify-write operation calls begin_atomic, which returns the current value, and then repeats
// compare_and_swap, which returns the previous value, until that succeeds. `acquires` is true for
// CUDA's own atomic functions, since published kernels read after them without a fence. It is false
// for cuda::atomic, which adds fences according to its memory order.
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
  // Returns the end of the static __shared__ variables, which are in the library's thread-local
  // segment, for this OS thread. BEHIND_SHARED bytes follow as a guard band. The call makes the C
  // library allocate the segment.
  void *(*shared_segment)();
};

// For the headers in include/; see groups.cpp.

// A relaxed atomic load or store; `acquires` as above.
uint32_t atomic_load(const uint32_t *address, bool acquires = true);
uint64_t atomic_load(const uint64_t *address, bool acquires = true);
void atomic_store(uint32_t *address, uint32_t value);
void atomic_store(uint64_t *address, uint64_t value);

void grid_barrier(Site at);  // of all blocks of a cooperative launch

// The lanes of the warp that reach this call together. If not all are `promised`, the random schedule
// returns only some of the lanes in a divergent branch, as CUDA allows.
unsigned converged_lanes(Site at, bool promised = true);

// Marks the rest of the C++ scope as a branch or loop iteration that contains a barrier. All threads
// of a block must reach a barrier in the same branches and iterations.
class BarrierScope {
 public:
  __attribute__((always_inline)) BarrierScope(int line, bool loop) { enter_scope(line, loop); }
  __attribute__((always_inline)) ~BarrierScope() { leave_scope(); }

 private:
  static void enter_scope(int line, bool loop);
  static void leave_scope();
};

// An asynchronous copy of the running thread, pending until the thread waits for it. A copy with an
// owner completes at that barrier; the others belong to batches that are committed one by one.
struct Copy {
  void *target;
  const void *source;
  size_t bytes;
  const void *owner;
};
void forget_copies();  // discards pending copies; called when a thread begins
void remember_copy(const Copy &copy);
void close_batch();
// Removes and returns the oldest copy of `owner` or, if that is null, the oldest copy in a committed
// batch other than the `newest` last ones. Returns false if there is none.
bool take_copy(Copy *copy, unsigned newest, const void *owner);

void copying(bool begins);  // accesses between the two calls belong to an asynchronous copy

long long nanoseconds();  // monotonic clock

}  // namespace cudaemu

#pragma GCC visibility pop
