// Launches: a few OS threads run the blocks of a grid, in increasing order.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "diagnostics.h"
#include "races.h"
#include "memory.h"
#include "traffic.h"
#include "worker.h"

namespace cudaemu {

unsigned char unset_byte;

namespace {

// The pool of OS threads that run launches. The calling thread is always one of them.
class Pool {
 public:
  // Returns false if the time limit ended the launch.
  bool run(const Launch &launch, unsigned workers);

 private:
  void help(unsigned number);

  std::vector<std::unique_ptr<Worker>> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable finished_;
  uint64_t generation_ = 0;
  unsigned wanted_ = 0;   // workers of this generation
  unsigned running_ = 0;  // helpers still at work
  const Launch *launch_ = nullptr;
  Handout handout_;
};

bool Pool::run(const Launch &launch, unsigned workers) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    while (workers_.size() < workers) {
      const unsigned number = static_cast<unsigned>(workers_.size());
      workers_.push_back(std::make_unique<Worker>());
      if (number > 0) std::thread([this, number] { help(number); }).detach();
    }
    launch_ = &launch;
    handout_.next = launch.first;
    handout_.cut = false;
    wanted_ = workers;
    running_ = workers - 1;
    generation_++;
  }
  wake_.notify_all();
  workers_[0]->run(launch, handout_, workers);
  std::unique_lock<std::mutex> lock(mutex_);
  finished_.wait(lock, [this] { return running_ == 0; });
  return !handout_.cut;
}

void Pool::help(unsigned number) {
  uint64_t seen = 0;
  for (;;) {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [&] { return generation_ != seen && number < wanted_ && running_ > 0; });
    seen = generation_;
    Worker &worker = *workers_[number];
    const Launch &launch = *launch_;
    const unsigned workers = wanted_;
    lock.unlock();
    worker.run(launch, handout_, workers);
    lock.lock();
    if (--running_ == 0) finished_.notify_one();
  }
}

// Never destroyed, since its threads run until the process ends. A forked child has none of its
// parent's threads, so it creates a new pool.
Pool &pool() {
  static Pool *instance = nullptr;
  static pid_t owner = 0;
  if (owner != getpid()) {
    instance = new Pool;
    owner = getpid();
  }
  return *instance;
}

const char *refusal(const Launch &launch) {
  const uint64_t threads = static_cast<uint64_t>(launch.shape.x) * launch.shape.y * launch.shape.z;
  if (launch.blocks() == 0 || threads == 0) return "the grid or the block is empty";
  if (threads > MAX_THREADS) return "a block has at most 1024 threads";
  if (launch.grid.y > 65535 || launch.grid.z > 65535) return "the grid is too large";
  if (launch.grid.x > 0x7fffffff) return "the grid is too large";
  if (launch.dynamic_shared > MAX_DYNAMIC_SHARED) return "too much dynamic shared memory";
  return nullptr;
}

// Restores the kernel's variables on destruction, since a block that runs alone leaves values that no
// complete launch leaves.
class VariablesGuard {
 public:
  explicit VariablesGuard(const std::vector<Segment> &variables) : variables_(variables) {
    for (const Segment &segment : variables_) {
      contents_.emplace_back(segment.start, segment.start + segment.bytes);
    }
  }
  ~VariablesGuard() {
    for (size_t i = 0; i < variables_.size(); i++) put_back(variables_[i], contents_[i].data());
  }
  VariablesGuard(const VariablesGuard &) = delete;

 private:
  // Write only pages that differ, since some pages are read-only.
  static void put_back(const Segment &segment, const char *contents) {
    for (size_t at = 0, bytes; at < segment.bytes; at += bytes) {
      char *place = segment.start + at;
      bytes = std::min(segment.bytes - at, PAGE - reinterpret_cast<size_t>(place) % PAGE);
      if (memcmp(place, contents + at, bytes) != 0) memcpy(place, contents + at, bytes);
    }
  }

  std::vector<Segment> variables_;
  std::vector<std::vector<char>> contents_;
};

}  // namespace
}  // namespace cudaemu

using namespace cudaemu;

extern "C" {
#pragma GCC visibility push(default)

// The fields and their order are the same in program.py.
struct cudaemu_request {
  const Entry *entry;
  void **arguments;
  uint32_t grid[3];
  uint32_t block[3];
  uint64_t dynamic_shared;
  uint64_t seed;
  uint32_t order;
  uint32_t os_threads;
  uint32_t watched;
  uint32_t alone;    // 1 to run only the block `only`
  uint64_t only;
  uint64_t most_ns;  // time limit of that block, on the clock of its OS thread
  uint32_t cut;      // result: 1 if the time limit was reached
  uint32_t counted;  // 1 to count memory traffic (traffic.h)
};

// Runs one launch to its end and returns the number of faults. One launch at a time.
unsigned cudaemu_launch(cudaemu_request *request) {
  const uint32_t *grid = request->grid, *block = request->block;
  const bool alone = request->alone != 0;
  const uint64_t blocks = static_cast<uint64_t>(grid[0]) * grid[1] * grid[2];
  GridBarrier barrier;
  const Launch launch = {
      request->entry,
      request->arguments,
      dim3(grid[0], grid[1], grid[2]),
      dim3(block[0], block[1], block[2]),
      request->dynamic_shared,
      static_cast<Order>(request->order),
      request->seed,
      request->watched != 0,
      request->counted != 0,
      alone ? request->only : 0,
      alone ? request->only + 1 : blocks,
      alone ? thread_ns() + request->most_ns : 0,
      barrier,
  };
  clear_diagnostics();
  if (const char *reason = refusal(launch)) {
    diagnose_line(reason, std::string("launch refused: ") + reason);
    return count_diagnostics();
  }
  fill_margins(launch);
  unset_byte = unset_filler(launch);
  if (launch.watched) races::launch_begins(launch, segments_of(*launch.entry));
  if (launch.counted) traffic::launch_begins(launch, segments_of(*launch.entry));
  const uint64_t useful = launch.watched || launch.counted || alone ? 1 : request->os_threads;
  const VariablesGuard keeper(alone ? segments_of(*launch.entry).variables : std::vector<Segment>());
  const unsigned workers = static_cast<unsigned>(std::clamp<uint64_t>(useful, 1, blocks));
  request->cut = pool().run(launch, workers) ? 0 : 1;
  if (launch.watched) races::launch_ends();
  if (launch.counted) traffic::launch_ends();
  check_margins(launch);
  return count_diagnostics();
}

// Bytes of static __shared__ variables of all kernels in the library of this kernel.
uint64_t cudaemu_shared_bytes(const Entry *entry) { return segments_of(*entry).shared.bytes; }

// The faults of the last launch, one per line; valid until the next launch. A code address is written
// as {library+offset}, for addr2line.
const char *cudaemu_diagnostics() { return diagnostics_text().c_str(); }

// Sets a __constant__ variable and returns its size in bytes; if that is not `bytes`, sets nothing.
size_t cudaemu_set_symbol(void *address, const void *data, size_t bytes) {
  Dl_info library = {};
  ElfW(Sym) *symbol = nullptr;
  if (dladdr1(address, &library, reinterpret_cast<void **>(&symbol), RTLD_DL_SYMENT) == 0) return 0;
  if (symbol == nullptr) return 0;
  if (symbol->st_size == bytes) memcpy(address, data, bytes);
  return symbol->st_size;
}

#pragma GCC visibility pop
}
