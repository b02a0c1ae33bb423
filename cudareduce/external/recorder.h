// The recorder's side of a host program: memory, copies and launches are written to a log.
//
// Kernels are rewritten to stubs that report their own arguments:
//   template <class T> __global__ void sum(const T *x, int n) {
//     recorder::Stub stub(__PRETTY_FUNCTION__, "T");
//     stub.argument<decltype(x)>("x", x); stub.argument<decltype(n)>("n", n);
//   }
// and `sum<<<grid, block>>>(x, n)` to `(recorder::configure(line, grid, block), sum(x, n))`.
#pragma once
#include <cstddef>
#include <type_traits>
#include <utility>

#include "runtime_types.h"

namespace recorder {

// What an address range is: device memory, managed memory, pinned host memory, a buffer passed to a
// host function (used on either side), a __device__ or __constant__ variable, a managed variable.
enum Kind : char {
  kDevice = 'd',
  kManaged = 'm',
  kPinned = 'p',
  kParameter = 'a',
  kSymbol = 's',
  kManagedSymbol = 'S'
};

void *allocate(size_t bytes, Kind kind, const char *name = "", const char *element = "");
void release(void *address);
bool is_device(const void *address);
Kind kind_of(const void *address);  // kPinned for memory that the recorder does not know
size_t bytes_of(const void *address);
void *base_of(const void *address);
void *symbol_named(const char *name);
// Where a variable of the device holds this pointer to a function; nullptr if none does.
const void *variable_with(const void *function);

cudaError_t copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t fill(void *address, int byte, size_t bytes);
void set_device(const void *address, size_t bytes);  // the host or a library wrote device memory
void touch(const void *address);                     // as set_device(), before the next launch
void library_call(const char *name);                 // a launch inside a library, not recorded
void synchronize();
void raise_shared_memory();      // launches may ask for more than 48 KiB from now on
void option(const char *name);  // a sample asks its command line for this option

void begin_capture(cudaStream_t stream);
cudaGraph_t end_capture(cudaStream_t stream);
void begin_node(cudaGraph_t graph);
void end_node();
void replay(cudaGraph_t graph);
cudaGraph_t new_graph();

cudaError_t last_error(bool reset);
cudaError_t set_error(cudaError_t error);

// The line of the launch that follows.
void at(int line);
void configure(dim3 grid, dim3 block, size_t shared, cudaStream_t stream, bool cooperative,
               dim3 cluster);
inline void configure(int line, dim3 grid, dim3 block, size_t shared = 0,
                      cudaStream_t stream = nullptr) {
  at(line);
  configure(grid, block, shared, stream, false, dim3(1));
}

template <class T>
const char *name_holder() {
  return __PRETTY_FUNCTION__;  // "const char* recorder::name_holder() [with T = ...]"
}

// A type without reference, const, volatile and __restrict__.
template <class T>
struct Unqualified {
  using type = std::remove_cv_t<std::remove_reference_t<T>>;
};
template <class T>
struct Unqualified<T *__restrict__> {
  using type = T *;
};
template <class T>
struct Unqualified<T *__restrict__ const> {
  using type = T *;
};

template <class T>
constexpr size_t size_of() {
  if constexpr (std::is_void_v<T> || std::is_function_v<T>) {
    return 0;
  } else {
    return sizeof(T);
  }
}

class Stub {
 public:
  Stub(const char *function, const char *template_parameters);
  ~Stub();

  template <class T>
  void argument(const char *name, const std::remove_reference_t<T> &value) {
    using Plain = typename Unqualified<T>::type;
    if constexpr (std::is_pointer_v<Plain>) {
      using Element = std::remove_cv_t<std::remove_pointer_t<Plain>>;
      const void *address = (const void *)value;
      if constexpr (std::is_function_v<Element>) address = variable_with(address);
      write(name, name_holder<Plain>(), name_holder<Element>(), size_of<Element>(), &address,
            sizeof(address));
    } else if constexpr (std::is_array_v<Plain>) {  // a parameter pack can hold none; be safe
      write(name, name_holder<Plain>(), "", 0, &value, sizeof(value));
    } else {
      const char number = std::is_same_v<Plain, bool>       ? 'b'
                          : std::is_floating_point_v<Plain> ? 'f'
                          : std::is_unsigned_v<Plain>       ? 'u'
                          : std::is_integral_v<Plain>       ? 'i'
                          : std::is_enum_v<Plain>           ? 'i'
                                                            : '-';
      const char kind[] = {number, 0};
      write(name, name_holder<Plain>(), kind, 0, &value, sizeof(value));
    }
  }

 private:
  void write(const char *name, const char *type, const char *element, size_t element_size,
             const void *data, size_t bytes);

  bool active_;
};

struct Symbol {
  Symbol(const char *name, const char *type, const void *address, size_t bytes, bool managed);
};

// Launches by address: a kernel whose address is taken is kept with what unpacks its arguments.
using Invoker = void (*)(const void *kernel, void **arguments);
void remember(const void *kernel, Invoker invoker);
cudaError_t launch(const void *kernel, void **arguments);

template <class... Parameters, size_t... I>
void unpack(void (*kernel)(Parameters...), void **arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_reference_t<Parameters> *>(arguments[I])...);
}

template <class... Parameters>
void *function_address(void (*kernel)(Parameters...)) {
  remember(reinterpret_cast<void *>(kernel), [](const void *address, void **arguments) {
    unpack(reinterpret_cast<void (*)(Parameters...)>(const_cast<void *>(address)), arguments,
           std::index_sequence_for<Parameters...>());
  });
  return reinterpret_cast<void *>(kernel);
}
inline void *function_address(const void *kernel) { return const_cast<void *>(kernel); }

// The value of a constant that sets the size: as in the file, or from RECORDER_KNOB_<index>.
long long knob_value(int index, long long value);
template <class T>
T knob(int index, T value) {
  return static_cast<T>(knob_value(index, static_cast<long long>(value)));
}

}  // namespace recorder
