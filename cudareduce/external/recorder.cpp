// The log, the registry of device memory, and the limits of the recorded program.
#include "recorder.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace recorder {

void describe(const char *name, char kind);
void again();
void *parameter(const char *name, size_t bytes, const char *element);

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kMostCopied = size_t(16) << 20;  // what a longer copy holds does not matter
constexpr int kMostAlike = 256;
constexpr int kMostRepeated = 1 << 14;  // a loop that repeats a step more often has no end of use
constexpr size_t kMostShared = 232448;  // per block, after cudaFuncSetAttribute
constexpr size_t kDeviceMemory = size_t(80) << 30;

struct Range {
  size_t bytes;
  Kind kind;
  bool live = true;
  bool mapped = false;     // pinned memory that a kernel was given
  bool protected_ = false;  // the next access by the host is caught
  bool read_only = false;   // the host has read it since the last synchronization
  bool dirty = false;       // the host has written it since the last launch
};

struct Config {
  bool set = false;
  dim3 grid, block, cluster;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
  bool cooperative = false;
};

// Never destroyed: the program's own static objects may still use them.
std::map<const char *, Range> &ranges() {
  static auto &map = *new std::map<const char *, Range>;
  return map;
}
std::map<std::string, void *> &symbols() {
  static auto &map = *new std::map<std::string, void *>;
  return map;
}
std::map<const void *, Invoker> &invokers() {
  static auto &map = *new std::map<const void *, Invoker>;
  return map;
}

std::recursive_mutex &mutex() {
  static auto &instance = *new std::recursive_mutex;
  return instance;
}
using Lock = std::lock_guard<std::recursive_mutex>;

int log_file = -1;
size_t copied_bytes_left, steps_left;
size_t allocated = 0;
size_t most_shared = 48 << 10;
bool launched = false;  // since the last synchronization
cudaError_t error = cudaSuccess;
thread_local Config config;
thread_local std::string launch_lines;  // of the kernel stub that is running
thread_local int launch_line = 0;

// While a stream is captured, or a node is added, lines go to the graph and not to the log.
std::vector<std::string *> &graphs() {
  static auto &vector = *new std::vector<std::string *>;
  return vector;
}
std::string *sink = nullptr;

size_t setting(const char *name, size_t otherwise) {
  const char *text = getenv(name);
  return text ? strtoull(text, nullptr, 10) : otherwise;
}

void write_all(const char *data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = write(log_file, data, bytes);
    if (written <= 0) return;
    data += written;
    bytes -= written;
  }
}

void write_line(const std::string &line) {
  if (sink) {
    *sink += line + '\n';
  } else {
    write_all((line + '\n').data(), line.size() + 1);
  }
}

void end(const char *why) {
  sink = nullptr;
  write_line(std::string("ended\t") + why);
  _exit(0);
}

// Whether a step is one of the first that are alike: loops that measure repeat the same launch.
bool is_kept(const std::string &line) {
  static auto &seen = *new std::unordered_map<std::string, int>;
  const int count = ++seen[line];
  if (count > kMostRepeated) end("it repeated a step without end");
  return count <= kMostAlike;
}

void step() {
  if (steps_left-- == 0) end("it took more steps than are recorded");
}

std::string text(const char *format, ...) {
  char buffer[512];
  va_list list;
  va_start(list, format);
  vsnprintf(buffer, sizeof(buffer), format, list);
  va_end(list);
  return buffer;
}

std::string hex(const void *data, size_t bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string result(2 * bytes, 0);
  for (size_t i = 0; i < bytes; ++i) {
    const unsigned char byte = static_cast<const unsigned char *>(data)[i];
    result[2 * i] = digits[byte >> 4];
    result[2 * i + 1] = digits[byte & 15];
  }
  return result;
}

// The bytes of a copy, or nothing if they are too many.
std::string contents(const void *data, size_t bytes) {
  static const size_t most = setting("RECORDER_COPY_BYTES", 0);
  if (bytes > most || bytes > copied_bytes_left) return "-";
  copied_bytes_left -= bytes;
  return hex(data, bytes);
}

std::map<const char *, Range>::iterator find(const void *address) {
  const char *at = static_cast<const char *>(address);
  auto next = ranges().upper_bound(at);
  if (next == ranges().begin()) return ranges().end();
  --next;
  return at <= next->first + next->second.bytes ? next : ranges().end();
}

// Whether all of it is in one live buffer.
bool holds(const void *address, size_t bytes) {
  auto found = find(address);
  return found != ranges().end() && found->second.live &&
         static_cast<const char *>(address) + bytes <= found->first + found->second.bytes;
}

bool host_sees(const Range &range) { return range.kind == kManaged || range.mapped; }

size_t pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void protect(const char *address, Range &range, int access) {
  mprotect(const_cast<char *>(address), pages(range.bytes), access);
  range.protected_ = access != (PROT_READ | PROT_WRITE);
  range.read_only = access == PROT_READ;
}

bool is_resident(const char *address, size_t bytes) {
  std::vector<unsigned char> resident(pages(bytes) / kPage);
  if (mincore(const_cast<char *>(address), pages(bytes), resident.data()) != 0) return true;
  for (unsigned char page : resident) {
    if (page & 1) return true;
  }
  return false;
}

// The first access by the host to managed memory after a launch.
void on_fault(int number, siginfo_t *info, void *context) {
  auto found = find(info->si_addr);
  if (found == ranges().end() || !found->second.protected_) {
    signal(number, SIG_DFL);
    return;
  }
#if defined(__x86_64__)
  const bool writes = static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_ERR] & 2;
#else
  const bool writes = found->second.read_only;
#endif
  Range &range = found->second;
  if (writes) {
    range.dirty = true;
    protect(found->first, range, PROT_READ | PROT_WRITE);
  } else {
    protect(found->first, range, PROT_READ);
    write_line(text("read\t%p\t%zu", found->first, range.bytes));
  }
}

// Before a launch: what the host has written to managed memory becomes a copy.
void publish_host_writes() {
  for (auto &[address, range] : ranges()) {
    if (range.kind == kManagedSymbol && range.live) {
      write_line(text("copy\tin\t%p\t0\t%zu\t", address, range.bytes) +
                 contents(address, range.bytes));
    }
    const bool touched = range.kind == kDevice && range.dirty;
    if (!(host_sees(range) || touched) || !range.live || range.bytes == 0) continue;
    if (range.dirty) {
      if (is_resident(address, range.bytes)) {
        write_line(text("copy\tin\t%p\t0\t%zu\t", address, range.bytes) +
                   contents(address, range.bytes));
      }
      range.dirty = false;
    }
    if (!touched) protect(address, range, PROT_NONE);
  }
}

void open_host_access(const void *address) {
  auto found = find(address);
  if (found != ranges().end() && found->second.protected_) {
    protect(found->first, found->second, PROT_READ | PROT_WRITE);
  }
}

int stream_number(cudaStream_t stream) {
  const size_t value = reinterpret_cast<size_t>(stream);
  return value <= 2 ? 0 : static_cast<int>(value >> 4);
}

void limit(__rlimit_resource resource, size_t value) {
  const rlimit both = {value, value};
  setrlimit(resource, &both);
}

// Reads anywhere, writes below the working folder only (Landlock, Linux 5.13 and later).
void restrict_files() {
  landlock_ruleset_attr rules = {};
  rules.handled_access_fs = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                            LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |
                            LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                            LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM;
  const int set = syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0);
  if (set < 0) return;
  for (const char *folder : {".", "/dev/null"}) {
    landlock_path_beneath_attr below = {};
    below.parent_fd = open(folder, O_PATH | O_CLOEXEC);
    below.allowed_access = folder[0] == '.'
                               ? static_cast<__u64>(rules.handled_access_fs)
                               : static_cast<__u64>(LANDLOCK_ACCESS_FS_WRITE_FILE);
    syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &below, 0);
    close(below.parent_fd);
  }
  syscall(SYS_landlock_restrict_self, set, 0);
  close(set);
}

// No network, no other programs, no signals to other processes.
void restrict_calls() {
#if defined(__x86_64__)
  const unsigned denied[] = {SYS_socket, SYS_execve, SYS_execveat, SYS_fork, SYS_vfork,
                             SYS_ptrace, SYS_kill,   SYS_io_uring_setup};
  const unsigned thread = 0x10000;  // CLONE_THREAD: a thread, not a process
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 38),  // ENOSYS: use clone()
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, thread, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1)};
  for (unsigned call : denied) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
#endif
}

// Before the program's own static objects are made.
__attribute__((constructor(101))) void start() {
  const char *path = getenv("RECORDER_LOG");
  log_file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  copied_bytes_left = setting("RECORDER_ALL_COPY_BYTES", 0);
  steps_left = setting("RECORDER_STEPS", 10000);
  signal(SIGXFSZ, SIG_IGN);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, setting("RECORDER_CPU_S", 5));
  limit(RLIMIT_FSIZE, setting("RECORDER_FILE_BYTES", 64 << 20));
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  restrict_files();
  restrict_calls();
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace

void *allocate(size_t bytes, Kind kind, const char *name, const char *element) {
  Lock lock(mutex());
  if (allocated + bytes > kDeviceMemory) return nullptr;
  void *address = mmap(nullptr, pages(bytes + 1) + kPage, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  mprotect(address, pages(bytes), PROT_READ | PROT_WRITE);
  allocated += bytes;
  Range range{bytes, kind};
  range.dirty = kind != kDevice;
  ranges()[static_cast<char *>(address)] = range;
  std::string *current = sink;
  sink = nullptr;
  write_line(text("buffer\t%c\t%p\t%zu\t%s %s", kind, address, bytes, name, element));
  sink = current;
  return address;
}

// The address range stays reserved, so that an address names one buffer in the whole log.
void release(void *address) {
  Lock lock(mutex());
  auto found = find(address);
  if (found == ranges().end() || !found->second.live) return;
  found->second.live = false;
  allocated -= found->second.bytes;
  mprotect(address, pages(found->second.bytes), PROT_READ | PROT_WRITE);
  found->second.protected_ = false;
  madvise(address, pages(found->second.bytes), MADV_DONTNEED);
}

Kind kind_of(const void *address) {
  Lock lock(mutex());
  auto found = find(address);
  return found == ranges().end() ? kPinned : found->second.kind;
}

bool is_device(const void *address) { return kind_of(address) != kPinned; }

size_t bytes_of(const void *address) {
  Lock lock(mutex());
  auto found = find(address);
  return found == ranges().end() ? 0 : found->second.bytes;
}

void *base_of(const void *address) {
  Lock lock(mutex());
  auto found = find(address);
  return const_cast<char *>(found == ranges().end() ? nullptr : found->first);
}

void *symbol_named(const char *name) {
  auto found = symbols().find(name);
  return found == symbols().end() ? nullptr : found->second;
}

const void *variable_with(const void *function) {
  for (const auto &[address, range] : ranges()) {
    if (range.kind != kSymbol) continue;
    for (size_t at = 0; function && at + sizeof(function) <= range.bytes; at += sizeof(function)) {
      if (memcmp(address + at, &function, sizeof(function)) == 0) return address + at;
    }
  }
  return nullptr;
}

cudaError_t copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  Lock lock(mutex());
  if (bytes == 0) return cudaSuccess;
  bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind == cudaMemcpyDefault) {
    to_device = is_device(to) && kind_of(to) != kParameter;
    from_device = is_device(from) && kind_of(from) != kParameter;
  }
  if ((to_device && !holds(to, bytes)) || (from_device && !holds(from, bytes))) {
    return set_error(cudaErrorInvalidValue);
  }
  open_host_access(to);
  open_host_access(from);
  if (to_device || from_device) {
    const char *way = to_device && from_device ? "within" : to_device ? "in" : "out";
    const std::string line = text("copy\t%s\t%p\t%p\t%zu\t", way, to, from, bytes);
    if (sink || is_kept(line)) {
      step();
      write_line(line + (from_device ? "-" : contents(from, bytes)));
    }
  }
  if (bytes <= kMostCopied || !(to_device || from_device)) memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t fill(void *address, int byte, size_t bytes) {
  Lock lock(mutex());
  if (bytes == 0) return cudaSuccess;
  if (!holds(address, bytes)) return set_error(cudaErrorInvalidValue);
  open_host_access(address);
  const std::string line = text("fill\t%p\t%zu\t%d", address, bytes, byte & 255);
  if (sink || is_kept(line)) {
    step();
    write_line(line);
  }
  memset(address, byte, bytes < kMostCopied ? bytes : kMostCopied);
  return cudaSuccess;
}

void set_device(const void *address, size_t bytes) {
  Lock lock(mutex());
  step();
  write_line(text("copy\tin\t%p\t0\t%zu\t", address, bytes) + contents(address, bytes));
}

void touch(const void *address) {
  Lock lock(mutex());
  auto found = find(address);
  if (found != ranges().end()) found->second.dirty = true;
}

void library_call(const char *name) {
  Lock lock(mutex());
  step();
  write_line(text("library\t%d\t%s", launch_line, name));
}

void synchronize() {
  Lock lock(mutex());
  if (!launched || sink) return;
  launched = false;
  for (auto &[address, range] : ranges()) {
    if (range.kind == kManagedSymbol) write_line(text("read\t%p\t%zu", address, range.bytes));
  }
}

void describe(const char *name, char kind) { write_line(text("parameter\t%s\t%c", name, kind)); }

void raise_shared_memory() { most_shared = kMostShared; }

void again() { write_line("again"); }

void *parameter(const char *name, size_t bytes, const char *element) {
  static auto &kept = *new std::unordered_map<std::string, void *>;
  void *&address = kept[name];
  if (address == nullptr) address = allocate(bytes, kParameter, name, element);
  return address;
}

void option(const char *name) { write_line(text("option\t%s", name)); }

void begin_capture(cudaStream_t) {
  graphs().push_back(new std::string);
  sink = graphs().back();
}

cudaGraph_t end_capture(cudaStream_t) {
  auto *graph = reinterpret_cast<cudaGraph_t>(sink);
  sink = nullptr;
  return graph;
}

cudaGraph_t new_graph() {
  graphs().push_back(new std::string);
  return reinterpret_cast<cudaGraph_t>(graphs().back());
}

void begin_node(cudaGraph_t graph) { sink = reinterpret_cast<std::string *>(graph); }
void end_node() { sink = nullptr; }

void replay(cudaGraph_t graph) {
  Lock lock(mutex());
  step();
  if (!graph) return;
  launched = true;
  const std::string lines = *reinterpret_cast<std::string *>(graph);
  if (sink) {
    *sink += lines;
  } else {
    write_all(lines.data(), lines.size());
  }
}

cudaError_t last_error(bool reset) {
  const cudaError_t result = error;
  if (reset) error = cudaSuccess;
  return result;
}

cudaError_t set_error(cudaError_t value) {
  if (value != cudaSuccess) error = value;
  return value;
}

void at(int line) { launch_line = line; }

void configure(dim3 grid, dim3 block, size_t shared, cudaStream_t stream, bool cooperative,
               dim3 cluster) {
  config = {true, grid, block, cluster, shared, stream, cooperative};
}

Stub::Stub(const char *function, const char *template_parameters) : active_(false) {
  mutex().lock();
  if (!config.set) return;
  config.set = false;
  const dim3 &grid = config.grid, &block = config.block, &cluster = config.cluster;
  const bool fits = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= 0x7fffffff &&
                    grid.y <= 65535 && grid.z <= 65535 && block.x > 0 && block.y > 0 &&
                    block.z > 0 && block.z <= 64 && config.shared <= most_shared &&
                    size_t(block.x) * block.y * block.z <= 1024;
  if (!fits) {
    set_error(cudaErrorInvalidConfiguration);
    write_line(text("refused\t%d\t%u,%u,%u\t%u,%u,%u\t%zu\t", launch_line, grid.x, grid.y, grid.z,
                    block.x, block.y, block.z, config.shared) +
               function);
    return;
  }
  active_ = true;
  launch_lines =
      (text("launch\t%d\t%u,%u,%u\t%u,%u,%u\t%zu\t%d\t%d\t%u,%u,%u\t%s\t", launch_line,
                  grid.x, grid.y, grid.z, block.x, block.y, block.z, config.shared,
                  config.cooperative, stream_number(config.stream), cluster.x, cluster.y,
                  cluster.z, template_parameters) +
       function);
}

Stub::~Stub() {
  if (active_) {
    publish_host_writes();
    launched = true;
    if (sink || is_kept(launch_lines)) {
      step();
      write_line(launch_lines);
    }
  }
  mutex().unlock();
}

void Stub::write(const char *name, const char *type, const char *element, size_t element_size,
                 const void *data, size_t bytes) {
  if (!active_) return;
  if (element_size > 0 || bytes == sizeof(void *)) {
    auto found = find(*static_cast<void *const *>(data));
    if (found != ranges().end() && found->second.kind == kPinned && !found->second.mapped) {
      found->second.mapped = true;
    }
  }
  launch_lines += std::string("\nargument\t") + name + '\t' + type + '\t' + element + '\t' +
             std::to_string(element_size) + '\t' + hex(data, bytes);
}

Symbol::Symbol(const char *name, const char *type, const void *address, size_t bytes,
               bool managed) {
  Lock lock(mutex());
  Range range{bytes, managed ? kManagedSymbol : kSymbol};
  ranges()[static_cast<const char *>(address)] = range;
  symbols()[name] = const_cast<void *>(address);
  write_line(text("buffer\t%c\t%p\t%zu\t%s %s", range.kind, address, bytes, name, type));
}

void remember(const void *kernel, Invoker invoker) { invokers()[kernel] = invoker; }

cudaError_t launch(const void *kernel, void **arguments) {
  auto found = invokers().find(kernel);
  if (found == invokers().end()) return set_error(cudaErrorInvalidDeviceFunction);
  found->second(kernel, arguments);
  return error;
}

long long knob_value(int index, long long value) {
  const std::string name = "RECORDER_KNOB_" + std::to_string(index);
  const char *text = getenv(name.c_str());
  return text ? strtoll(text, nullptr, 10) : value;
}

}  // namespace recorder

// A program's random numbers, at a tenth of the time that the C library takes.
extern "C" {
// Stands for functions that the file declares and another one defines.
long recorder_missing() { return 0; }

static unsigned long long random_state = 0x9e3779b97f4a7c15ull;
void srand(unsigned seed) noexcept { random_state = (seed + 1) * 0x9e3779b97f4a7c15ull; }
int rand() noexcept {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return static_cast<int>(random_state >> 33);
}
}
