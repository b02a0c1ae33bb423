#include "traffic.h"

#include <string.h>

#include <map>
#include <set>
#include <vector>

#include "diagnostics.h"
#include "memory.h"

namespace cudaemu {
namespace traffic {

bool counting = false;

namespace {

constexpr size_t SECTOR = 32, BANKS = 32, BANK_BYTES = 4;
// Most bytes of one wavefront; a request of more bytes is split into parts of the warp.
constexpr size_t WAVEFRONT_BYTES = BANKS * BANK_BYTES;
constexpr uint64_t LOOKS_IN_VAIN = 1'000'000;

enum class Space { Global, Shared, Own };

struct Place {
  Space space;
  size_t offset;  // from the start of the buffer, which is aligned on a GPU
};

struct Lane {
  unsigned lane;
  size_t offset;
  size_t bytes;
};

// The k-th accesses of the lanes of a warp at one code address.
struct Site {
  Space space;
  unsigned times[WARP] = {};
  std::vector<std::vector<Lane>> requests;
};

struct Counted {
  std::map<std::pair<unsigned, const void *>, Site> sites;  // by warp and code address
  bool fenced = false;
  bool stored = false;  // since its last fence
  uint32_t barriers = 0;
  uint32_t collectives[MAX_THREADS / WARP] = {};
};

Totals totals;
Segments library;
std::map<uint64_t, Counted> blocks;  // blocks that have begun and not ended
uint64_t looks = 0;
constexpr size_t MAX_EVENTS = 1 << 16;
std::vector<Event> events;  // of block 0

Counted &own() { return blocks[running_block->number()]; }

Place place_of(const char *address) {
  if (library.shared.contains(address)) {
    return {Space::Shared, static_cast<size_t>(address - library.shared.start)};
  }
  const Segment dynamic = {static_cast<char *>(this_block.dynamic_shared),
                           running_block->launch().dynamic_shared};
  if (dynamic.start != nullptr && dynamic.contains(address)) {
    return {Space::Shared, static_cast<size_t>(address - dynamic.start)};
  }
  for (const Segment &variables : library.variables) {
    if (variables.contains(address)) {
      return {Space::Global, static_cast<size_t>(address - variables.start)};
    }
  }
  const char *start = start_of_buffer(address);
  if (start == nullptr) return {Space::Own, 0};
  return {Space::Global, static_cast<size_t>(address - start)};
}

void note(Event::Kind kind, unsigned thread, uint64_t offset, uint64_t bytes) {
  if (running_block->number() != 0 || events.size() == MAX_EVENTS) return;
  const Counted &counted = own();
  events.push_back({kind, thread, counted.barriers, counted.collectives[thread / WARP], offset, bytes});
}

uint64_t sectors_of(const std::vector<Lane> &request) {
  std::set<size_t> touched;
  for (const Lane &lane : request) {
    for (size_t at = lane.offset / SECTOR; at <= (lane.offset + lane.bytes - 1) / SECTOR; at++) {
      touched.insert(at);
    }
  }
  return touched.size();
}

// The number of wavefronts for these lanes: the largest number of different words in one bank.
uint64_t wavefronts_together(const std::vector<Lane> &request, unsigned first, unsigned last) {
  std::set<size_t> words[BANKS];
  uint64_t most = 0;
  for (const Lane &lane : request) {
    if (lane.lane < first || lane.lane >= last) continue;
    for (size_t word = lane.offset / BANK_BYTES;
         word <= (lane.offset + lane.bytes - 1) / BANK_BYTES; word++) {
      std::set<size_t> &bank = words[word % BANKS];
      bank.insert(word);
      if (bank.size() > most) most = bank.size();
    }
  }
  return most;
}

uint64_t wavefronts_of(const std::vector<Lane> &request) {
  size_t widest = 1;
  for (const Lane &lane : request) widest = lane.bytes > widest ? lane.bytes : widest;
  size_t together = WAVEFRONT_BYTES / widest;
  if (together > WARP) together = WARP;
  if (together == 0) together = 1;
  uint64_t sum = 0;
  for (unsigned first = 0; first < WARP; first += together) {
    sum += wavefronts_together(request, first, first + static_cast<unsigned>(together));
  }
  return sum;
}

void add(const Site &site) {
  for (const std::vector<Lane> &request : site.requests) {
    if (site.space == Space::Shared) {
      totals.accesses++;
      totals.wavefronts += wavefronts_of(request);
    } else {
      totals.requests++;
      totals.sectors += sectors_of(request);
    }
  }
}

void together(Counted &counted, unsigned first, unsigned last) {
  const auto begin = counted.sites.lower_bound({first, nullptr});
  const auto end = counted.sites.lower_bound({last, nullptr});
  for (auto site = begin; site != end; ++site) add(site->second);
  counted.sites.erase(begin, end);
}

}  // namespace

void launch_begins(const Launch &launch, const Segments &segments) {
  (void)launch;
  library = segments;
  blocks.clear();
  looks = 0;
  counting = true;
}

void launch_ends() { counting = false; }

void block_ends(const Block &block) {
  Counted &counted = blocks[block.number()];
  together(counted, 0, MAX_THREADS / WARP);
  totals.fenced_blocks += counted.fenced;
  blocks.erase(block.number());
}

void access(const void *pointer, size_t bytes, bool writes, bool polls, const void *return_address) {
  if (this_thread == nullptr || bytes == 0) return;
  const Place place = place_of(static_cast<const char *>(pointer));
  if (place.space == Space::Own) return;
  if (writes) looks = 0;
  if (polls && !writes) polled();
  if (place.space == Space::Global) (writes ? totals.written_bytes : totals.read_bytes) += bytes;
  if (place.space == Space::Global && writes) {
    if (!polls) own().stored = true;
    if (polls && own().stored) totals.unfenced++;
  }
  const bool shared = place.space == Space::Shared;
  note(shared ? (writes ? Event::SharedWrite : Event::SharedRead)
              : (writes ? Event::GlobalWrite : Event::GlobalRead),
       this_thread->rank, place.offset, bytes);
  const unsigned lane = this_thread->rank % WARP;
  Site &site = own().sites[{this_thread->rank / WARP, return_address}];
  site.space = place.space;
  const unsigned time = site.times[lane]++;
  if (site.requests.size() <= time) site.requests.resize(time + 1);
  site.requests[time].push_back({lane, place.offset, bytes});
}

void atomic() {
  totals.atomics++;
  totals.unfenced += own().stored;
  looks = 0;
}

// Counts a polling load; reports a hang after too many.
void polled() {
  if (++looks > LOOKS_IN_VAIN) {
    diagnose_line("waits", "every thread waits for a value that none changes");
    running_block->abandon();
  }
  running_block->polled();
}

void fenced() {
  own().fenced = true;
  own().stored = false;
}

void barrier_released() {
  totals.barriers++;
  own().barriers++;
  together(own(), 0, MAX_THREADS / WARP);
}

void warp_together(unsigned warp, unsigned lanes, bool exchanges) {
  totals.collectives++;
  if (exchanges) note(Event::Exchange, warp * WARP, 0, lanes);
  own().collectives[warp]++;
  together(own(), warp, warp + 1);
}

}  // namespace traffic
}  // namespace cudaemu

extern "C" {
#pragma GCC visibility push(default)

// Returns the totals since the last call.
void cudaemu_take_traffic(cudaemu::traffic::Totals *taken) {
  *taken = cudaemu::traffic::totals;
  memset(&cudaemu::traffic::totals, 0, sizeof cudaemu::traffic::totals);
}

// Returns the number of events of block 0 since the last call; *first points to them until the next
// call.
size_t cudaemu_take_events(const cudaemu::traffic::Event **first) {
  static std::vector<cudaemu::traffic::Event> taken;
  taken.swap(cudaemu::traffic::events);
  cudaemu::traffic::events.clear();
  *first = taken.data();
  return taken.size();
}

#pragma GCC visibility pop
}
