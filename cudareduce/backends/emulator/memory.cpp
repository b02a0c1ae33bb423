// Buffers between guard pages, and the handler for accesses that hit one.
#include "memory.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "diagnostics.h"
#include "races.h"
#include "ticker.h"

namespace cudaemu {
namespace {

constexpr size_t ALIGNMENT = 16;   // alignment of the widest load
constexpr size_t GUARD = 1 << 20;  // wide, to catch an access one stride past the end
constexpr size_t FAR_GUARD = 32ull << 30;  // catches 64-bit indices that were truncated to 32 bits
constexpr size_t HUGE_PAGE = 2 << 20;

// Layout: |guard pages|poisoned margin|buffer|poisoned margin, under 16 bytes|guard pages|
struct Buffer {
  char *map;
  size_t map_bytes;
  char *start;
  size_t bytes;
  size_t guard;

  char *margin_before() const { return map + guard; }
  char *end() const { return start + bytes; }
  char *guard_after() const { return map + map_bytes - guard; }
};

// Changed only between launches, so launches and the fault handler read it without a lock.
std::vector<Buffer> buffers;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// The index of the kernel argument that points into this buffer, or -1.
int argument_number(const Launch &launch, const Buffer &buffer) {
  for (unsigned i = 0; i < launch.entry->parameters; i++) {
    const char *value;
    memcpy(&value, launch.arguments[i], sizeof value);
    if (value >= buffer.start && value <= buffer.end()) return static_cast<int>(i);
  }
  return -1;
}

std::string describe_buffer(const Launch &launch, const Buffer &buffer) {
  const int argument = argument_number(launch, buffer);
  const std::string name =
      argument < 0 ? "a buffer that is no argument" : "argument " + std::to_string(argument);
  return name + " (" + std::to_string(buffer.bytes) + (buffer.bytes == 1 ? " byte)" : " bytes)");
}

bool holds(const char *from, const char *to, unsigned char filler) {
  return std::all_of(from, to,
                     [=](char byte) { return static_cast<unsigned char>(byte) == filler; });
}

// Fills both margins of a buffer.
void fill(const Buffer &buffer, unsigned char filler) {
  memset(buffer.margin_before(), filler, buffer.start - buffer.margin_before());
  memset(buffer.end(), filler, buffer.guard_after() - buffer.end());
}

// Returns null if there is no memory. The buffer takes physical memory only where it is accessed.
char *make_buffer(size_t bytes, size_t misalign, size_t guard) {
  const size_t used = round_up(bytes + misalign, ALIGNMENT) - misalign;
  const size_t pages = round_up(used + ALIGNMENT, PAGE);
  const size_t map_bytes = pages + 2 * guard;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void *map = mmap(nullptr, map_bytes, PROT_NONE, flags, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  Buffer buffer = {static_cast<char *>(map), map_bytes, nullptr, bytes, guard};
  buffer.start = buffer.guard_after() - used;
  if (mprotect(buffer.margin_before(), pages, PROT_READ | PROT_WRITE) != 0) {
    munmap(map, map_bytes);
    return nullptr;
  }
  if (bytes >= HUGE_PAGE) madvise(buffer.margin_before(), pages, MADV_HUGEPAGE);
  fill(buffer, POISON);
  buffers.push_back(buffer);
  return buffer.start;
}

struct sigaction previous_segv, previous_bus;

// Writes the address of the interrupted instruction as library+offset.
void describe_place(void *context, char *text, size_t capacity) {
  Dl_info library = {};
  void *program_counter = program_counter_of(context);
  snprintf(text, capacity, "?+0x0");
  if (dladdr(program_counter, &library) == 0) return;
  snprintf(text, capacity, "%s+0x%zx", library.dli_fname,
           static_cast<size_t>(static_cast<char *>(program_counter) -
                               static_cast<char *>(library.dli_fbase)));
}

// Writes an earlier fault of the launch, such as an index outside an array, since that is the cause;
// without one, writes `line`. Returns false if that fails.
bool write_fault(const char *line, int length) {
  const std::string &faults = diagnostics_text();
  const std::string cause = faults.substr(0, faults.find('\n') + 1);
  if (cause.empty()) return write(STDERR_FILENO, line, static_cast<size_t>(length)) >= 0;
  return write(STDERR_FILENO, cause.data(), cause.size()) >= 0;
}

// Passes a fault outside this runtime's kernels to the previous handler. A process may have loaded two
// runtimes, one with race detection and one without.
void pass_on(int signal_number, siginfo_t *info, void *context) {
  const struct sigaction &previous = signal_number == SIGSEGV ? previous_segv : previous_bus;
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal_number, info, context);
    return;
  }
  char place[512], line[640];
  describe_place(context, place, sizeof place);
  const int length = snprintf(line, sizeof line, "%s: invalid access at %p, in no kernel\n",
                              place, info->si_addr);
  if (!write_fault(line, length)) _exit(140);
  sigaction(signal_number, &previous, nullptr);  // the instruction faults again and calls it
}

// Describes an address past the end of dynamic shared memory; returns false for other addresses.
bool describe_shared(size_t bytes, const void *address, char *text, size_t capacity) {
  const char *end = static_cast<const char *>(this_block.dynamic_shared) + bytes;
  const char *at = static_cast<const char *>(address);
  if (bytes == 0 || at < end || at >= end + GUARD) return false;
  snprintf(text, capacity, "%zu bytes past the end of its dynamic shared memory (%zu bytes)",
           static_cast<size_t>(at - end), bytes);
  return true;
}

// Formatting text in a signal handler is not safe in general, but this handler ends the process.
void on_fault(int signal_number, siginfo_t *info, void *context) {
  if (running_block == nullptr || this_thread == nullptr) {
    pass_on(signal_number, info, context);
    return;
  }
  const Launch &launch = running_block->launch();
  char where[256];
  const bool has_address = info->si_code != SI_KERNEL;
  if (!has_address) {
    snprintf(where, sizeof where, "a misaligned or impossible address");
  } else if (!describe_address(launch, info->si_addr, where, sizeof where) &&
             !describe_shared(launch.dynamic_shared, info->si_addr, where, sizeof where)) {
    const char *asked = launch.dynamic_shared == 0 ? ", or dynamic shared memory of no bytes" : "";
    snprintf(where, sizeof where, "no buffer (stack overflow or a wild pointer%s)", asked);
  }
  char place[512];
  describe_place(context, place, sizeof place);
  const uint3 &block = this_block.index, &thread = this_thread->index;
  char line[1024];
  const int length =
      snprintf(line, sizeof line,
               "{%s}: %s: invalid access at %p, %s; block (%u, %u, %u), thread (%u, %u, %u)\n", place,
               launch.entry->name, has_address ? info->si_addr : nullptr, where, block.x, block.y,
               block.z, thread.x, thread.y, thread.z);
  if (!write_fault(line, length)) _exit(140);
  _exit(139);
}

}  // namespace

bool is_poison(const char *from, const char *to) { return holds(from, to, POISON); }

unsigned char unset_filler(const Launch &launch) {
  constexpr unsigned char left[] = {POISON, 0x7b, 0xfb};
  return left[static_cast<unsigned>(launch.order) % sizeof left];
}

bool describe_address(const Launch &launch, const void *address, char *text, size_t capacity) {
  const char *byte = static_cast<const char *>(address);
  for (const Buffer &buffer : buffers) {
    if (byte < buffer.map || byte >= buffer.map + buffer.map_bytes) continue;
    const std::string name = describe_buffer(launch, buffer);
    if (byte >= buffer.end()) {
      const size_t past = byte - buffer.end();
      snprintf(text, capacity, "%zu byte%s past the end of %s", past, past == 1 ? "" : "s",
               name.c_str());
    } else if (byte < buffer.start) {
      const size_t before = buffer.start - byte;
      snprintf(text, capacity, "%zu byte%s before the start of %s", before, before == 1 ? "" : "s",
               name.c_str());
    } else {
      snprintf(text, capacity, "inside %s", name.c_str());
    }
    return true;
  }
  return false;
}

const char *start_of_buffer(const void *address) {
  const char *byte = static_cast<const char *>(address);
  for (const Buffer &buffer : buffers) {
    if (byte >= buffer.start && byte < buffer.end()) return buffer.start;
  }
  return nullptr;
}

void fill_margins(const Launch &launch) {
  for (const Buffer &buffer : buffers) fill(buffer, unset_filler(launch));
}

void check_margins(const Launch &launch) {
  const unsigned char filler = unset_filler(launch);
  for (const Buffer &buffer : buffers) {
    if (!holds(buffer.margin_before(), buffer.start, filler)) {
      const std::string text = "wrote before the start of " + describe_buffer(launch, buffer);
      diagnose_line(text, text);
    }
    if (!holds(buffer.end(), buffer.guard_after(), filler)) {
      const std::string text = "wrote past the end of " + describe_buffer(launch, buffer);
      diagnose_line(text, text);
    }
    fill(buffer, POISON);
  }
}

void use_signal_stack() {
  static thread_local bool done = false;
  if (done) return;
  done = true;
  constexpr size_t bytes = 64 << 10;
  stack_t stack = {};
  stack.ss_sp = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack.ss_size = bytes;
  if (stack.ss_sp != MAP_FAILED) sigaltstack(&stack, nullptr);
}

}  // namespace cudaemu

using namespace cudaemu;

extern "C" {
#pragma GCC visibility push(default)

// Allocates a buffer of zeros that starts `misalign` bytes past a multiple of 16 and ends less than 16
// bytes before a guard page. `cell_bytes` is the size of a shadow cell for race detection, 0 without.
// Returns null if there is no memory.
void *cudaemu_allocate(size_t bytes, size_t misalign, unsigned cell_bytes) {
  char *start = make_buffer(bytes, misalign % ALIGNMENT, GUARD);
  if (start != nullptr && cell_bytes != 0) races::watch_buffer(start, bytes, cell_bytes);
  return start;
}

// Reserves address space for a buffer of zeros that will mostly stay untouched. It has no race
// detection.
void *cudaemu_reserve(size_t bytes) { return make_buffer(bytes, 0, FAR_GUARD); }

void cudaemu_release(void *start) {
  const auto found = std::find_if(buffers.begin(), buffers.end(),
                                  [&](const Buffer &buffer) { return buffer.start == start; });
  if (found == buffers.end()) return;
  races::forget_buffer(found->start);
  munmap(found->map, found->map_bytes);
  buffers.erase(found);
}

// From now on an invalid access of a kernel prints a line to stderr and ends the process with status
// 139. The line starts with the code address as {library+offset}. Call it in child processes only.
void cudaemu_catch_faults() {
  use_signal_stack();
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  struct sigaction present = {};
  sigaction(SIGSEGV, nullptr, &present);
  if (present.sa_sigaction == on_fault) return;
  sigaction(SIGSEGV, &action, &previous_segv);
  sigaction(SIGBUS, &action, &previous_bus);
}

#pragma GCC visibility pop
}
