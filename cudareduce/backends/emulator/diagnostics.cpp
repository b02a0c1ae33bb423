#include "diagnostics.h"

#include <atomic>
#include <mutex>
#include <set>

#include "block.h"

namespace cudaemu {
namespace {

constexpr unsigned SHOWN = 12;

std::mutex mutex;
std::set<std::string> keys;
std::string text;
std::atomic<unsigned> count{0};
std::set<std::string> notes;
std::string taken_notes;
constexpr size_t MOST_NOTES = 8;

std::string describe_index(const uint3 &index) {
  if (index.y == 0 && index.z == 0) return std::to_string(index.x);
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " +
         std::to_string(index.z) + ")";
}

}  // namespace

std::string describe_position(const uint3 &block, const uint3 &thread) {
  return "block " + describe_index(block) + ", thread " + describe_index(thread);
}

std::string describe_site(Site site) {
  return std::string(site.file) + ":" + std::to_string(site.line);
}

void diagnose(Site site, const std::string &what) {
  const std::string place = describe_site(site) + ": " + what;
  const std::string position = describe_position(this_block.index, this_thread->index);
  diagnose_line(place, place + " (" + position + ")");
}

void diagnose_line(const std::string &key, const std::string &line) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!keys.insert(key).second) return;
  if (count.fetch_add(1) < SHOWN) text += line + "\n";
}

void note(const std::string &line) {
  std::lock_guard<std::mutex> lock(mutex);
  if (notes.size() < MOST_NOTES) notes.insert(line);
}

void clear_diagnostics() {
  keys.clear();
  text.clear();
  count = 0;
}

bool any_diagnostics() { return count.load(std::memory_order_relaxed) != 0; }
unsigned count_diagnostics() { return count; }
const std::string &diagnostics_text() { return text; }

}  // namespace cudaemu

extern "C" __attribute__((visibility("default"))) const char *cudaemu_take_notes() {
  using namespace cudaemu;
  taken_notes.clear();
  for (const std::string &line : notes) taken_notes += line + "\n";
  notes.clear();
  return taken_notes.c_str();
}
