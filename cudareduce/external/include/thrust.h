// Thrust, as far as it holds, fills and copies memory. Its other algorithms are logged as calls of a
// library; their results are made up.
#pragma once
#include <algorithm>
#include <functional>
#include <iterator>
#include <system_error>
#include <tuple>
#include <vector>

#include "cuda_runtime.h"

namespace thrust {

template <class T>
struct device_reference {
  T *address;

  operator T() const {
    T value;
    recorder::copy(&value, address, sizeof(T), cudaMemcpyDeviceToHost);
    return value;
  }
  device_reference &operator=(const T &value) {
    *address = value;
    recorder::touch(address);
    return *this;
  }
  device_reference &operator=(const device_reference &other) { return *this = T(other); }
  device_reference &operator+=(const T &value) { return *this = T(*this) + value; }
  T *operator&() const { return address; }
};

// A random access iterator over device memory.
template <class T>
struct device_ptr {
  using value_type = std::remove_cv_t<T>;
  using difference_type = std::ptrdiff_t;
  using pointer = device_ptr;
  using reference = device_reference<T>;
  using iterator_category = std::random_access_iterator_tag;

  T *address = nullptr;

  device_ptr() = default;
  explicit device_ptr(T *address) : address(address) {}
  T *get() const { return address; }
  device_reference<T> operator*() const { return {address}; }
  device_reference<T> operator[](std::ptrdiff_t i) const { return {address + i}; }
  device_ptr operator+(std::ptrdiff_t i) const { return device_ptr(address + i); }
  device_ptr operator-(std::ptrdiff_t i) const { return device_ptr(address - i); }
  std::ptrdiff_t operator-(device_ptr other) const { return address - other.address; }
  device_ptr &operator++() { return ++address, *this; }
  device_ptr &operator+=(std::ptrdiff_t i) { return address += i, *this; }
  bool operator==(device_ptr other) const { return address == other.address; }
  bool operator!=(device_ptr other) const { return address != other.address; }
};

template <class T>
T *raw_pointer_cast(T *pointer) {
  return pointer;
}
template <class T>
T *raw_pointer_cast(device_ptr<T> pointer) {
  return pointer.address;
}
template <class T>
device_ptr<T> device_pointer_cast(T *pointer) {
  return device_ptr<T>(pointer);
}
template <class T>
device_ptr<T> device_malloc(size_t count) {
  return device_ptr<T>(static_cast<T *>(
      recorder::allocate(count * sizeof(T), recorder::kDevice, "", recorder::name_holder<T>())));
}
template <class T>
void device_free(device_ptr<T> pointer) {
  recorder::release(pointer.address);
}

// The address of an iterator, and whether it is one of the device.
template <class T>
T *raw(device_ptr<T> iterator) {
  return iterator.address;
}
template <class I>
auto *raw(I iterator) {
  return &*iterator;
}
template <class T>
constexpr bool is_device(device_ptr<T>) {
  return true;
}
template <class I>
bool is_device(I iterator) {
  return std::is_pointer_v<I> && recorder::is_device(raw(iterator));
}

template <class From, class To>
To copy(From first, From last, To to) {
  const auto count = last - first;
  if (count <= 0) return to;
  const auto kind = is_device(first) ? (is_device(to) ? cudaMemcpyDeviceToDevice
                                                      : cudaMemcpyDeviceToHost)
                                     : (is_device(to) ? cudaMemcpyHostToDevice
                                                      : cudaMemcpyHostToHost);
  recorder::copy(raw(to), raw(first), count * sizeof(*raw(to)), kind);
  return to + count;
}
template <class From, class N, class To>
To copy_n(From first, N count, To to) {
  return copy(first, first + count, to);
}
template <class I, class V>
void fill(I first, I last, const V &value) {
  if (last - first <= 0) return;
  auto *data = raw(first);
  std::fill(data, data + (last - first), value);
  if (is_device(first)) recorder::set_device(data, (last - first) * sizeof(*data));
}
template <class I, class N, class V>
I fill_n(I first, N count, const V &value) {
  return fill(first, first + count, value), first + count;
}
template <class I, class V = int>
void sequence(I first, I last, V start = 0, V step = 1) {
  if (last - first <= 0) return;
  auto *data = raw(first);
  for (auto i = last - first; i-- > 0;) data[i] = start + i * step;
  if (is_device(first)) recorder::set_device(data, (last - first) * sizeof(*data));
}
template <class I, class F>
void generate(I first, I last, F function) {
  if (last - first <= 0) return;
  auto *data = raw(first);
  if (!is_device(first)) std::generate(data, data + (last - first), function);
  if (is_device(first)) recorder::set_device(data, (last - first) * sizeof(*data));
}

template <class T>
struct host_vector : std::vector<T> {
  using std::vector<T>::vector;
  host_vector() = default;
  template <class V, class = decltype(std::declval<const V &>().get_allocator_of_device())>
  host_vector(const V &other) {
    *this = other;
  }
  template <class V, class = decltype(std::declval<const V &>().get_allocator_of_device())>
  host_vector &operator=(const V &other) {
    this->resize(other.size());
    thrust::copy(other.begin(), other.end(), this->data());
    return *this;
  }
};

template <class T, class Allocator = void>
class device_vector {
 public:
  using value_type = T;
  using iterator = device_ptr<T>;
  using const_iterator = device_ptr<T>;
  using pointer = device_ptr<T>;
  using reference = device_reference<T>;
  using size_type = size_t;

  device_vector() = default;
  explicit device_vector(size_t count) { resize(count); }
  device_vector(size_t count, const T &value) { resize(count, value); }
  device_vector(const device_vector &other) { *this = other; }
  device_vector(std::initializer_list<T> values) { assign(values.begin(), values.end()); }
  template <class A>
  device_vector(const std::vector<T, A> &other) {
    *this = other;
  }
  template <class I, class = decltype(*std::declval<I>())>
  device_vector(I first, I last) {
    assign(first, last);
  }
  ~device_vector() { recorder::release(start_.address); }

  device_vector &operator=(const device_vector &other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  template <class A>
  device_vector &operator=(const std::vector<T, A> &other) {
    return assign(other.data(), other.data() + other.size()), *this;
  }
  template <class I>
  void assign(I first, I last) {
    reserve(last - first);
    count_ = last - first;
    thrust::copy(first, last, start_);
  }
  void resize(size_t count, const T &value = T()) {
    const size_t old = count_;
    reserve(count);
    count_ = count;
    if (count > old) thrust::fill(start_ + old, start_ + count, value);
  }
  void reserve(size_t count) {
    if (count <= capacity_) return;
    const device_ptr<T> larger = device_malloc<T>(count);
    thrust::copy(begin(), end(), larger);
    recorder::release(start_.address);
    start_ = larger;
    capacity_ = count;
  }
  void push_back(const T &value) { resize(count_ + 1, value); }
  void clear() { count_ = 0; }
  void swap(device_vector &other) {
    std::swap(start_, other.start_);
    std::swap(count_, other.count_);
    std::swap(capacity_, other.capacity_);
  }
  void get_allocator_of_device() const {}
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  device_ptr<T> data() const { return start_; }
  device_ptr<T> begin() const { return start_; }
  device_ptr<T> end() const { return start_ + count_; }
  device_ptr<T> cbegin() const { return begin(); }
  device_ptr<T> cend() const { return end(); }
  device_reference<T> operator[](size_t i) const { return start_[i]; }
  device_reference<T> front() const { return start_[0]; }
  device_reference<T> back() const { return start_[count_ - 1]; }

 private:
  device_ptr<T> start_;
  size_t count_ = 0, capacity_ = 0;
};

struct execution_policy {
  template <class... T>
  execution_policy on(T...) const {
    return {};
  }
  template <class... T>
  execution_policy operator()(T &&...) const {
    return {};
  }
};
constexpr execution_policy device, host, seq;
namespace cuda {
constexpr execution_policy par, par_nosync;
}
template <class From, class To>
To copy(execution_policy, From first, From last, To to) {
  return thrust::copy(first, last, to);
}
template <class I, class V>
void fill(execution_policy, I first, I last, const V &value) {
  thrust::fill(first, last, value);
}
template <class I, class... V>
void sequence(execution_policy, I first, I last, V... values) {
  thrust::sequence(first, last, values...);
}

// What an algorithm returns: its initial value if it is given one, else an element or an iterator.
template <class I>
using value_of = typename std::iterator_traits<I>::value_type;
template <class I>
value_of<I> reduce(I first, I last) {
  recorder::library_call("thrust::reduce");
  return value_of<I>();
}
template <class I, class T, class... Op>
T reduce(I, I, T initial, Op...) {
  return recorder::library_call("thrust::reduce"), initial;
}
template <class I, class F, class T, class Op>
T transform_reduce(I, I, F, T initial, Op) {
  return recorder::library_call("thrust::transform_reduce"), initial;
}
template <class I, class J, class T, class... Op>
T inner_product(I, I, J, T initial, Op...) {
  return recorder::library_call("thrust::inner_product"), initial;
}
template <class I, class... T>
auto reduce(execution_policy, I first, I last, T... rest) {
  return thrust::reduce(first, last, rest...);
}
template <class I, class... T>
auto transform_reduce(execution_policy, I first, I last, T... rest) {
  return thrust::transform_reduce(first, last, rest...);
}
template <class I, class... T>
auto inner_product(execution_policy, I first, I last, T... rest) {
  return thrust::inner_product(first, last, rest...);
}
#define RECORDER_ALGORITHM(name)                                   \
  template <class I, class... T>                                   \
  I name(I first, T...) {                                          \
    return recorder::library_call("thrust::" #name), first;        \
  }                                                                \
  template <class I, class... T>                                   \
  I name(execution_policy, I first, T... rest) {                   \
    return thrust::name(first, rest...);                           \
  }
RECORDER_ALGORITHM(max_element)
RECORDER_ALGORITHM(min_element)
RECORDER_ALGORITHM(sort)
RECORDER_ALGORITHM(stable_sort)
RECORDER_ALGORITHM(sort_by_key)
RECORDER_ALGORITHM(transform)
RECORDER_ALGORITHM(tabulate)
RECORDER_ALGORITHM(for_each)
RECORDER_ALGORITHM(inclusive_scan)
RECORDER_ALGORITHM(exclusive_scan)
RECORDER_ALGORITHM(reduce_by_key)
RECORDER_ALGORITHM(unique)
#undef RECORDER_ALGORITHM
template <class... T>
long count(T &&...) {
  return recorder::library_call("thrust::count"), 0;
}
template <class... T>
long count_if(T &&...) {
  return recorder::library_call("thrust::count_if"), 0;
}

template <class T = void>
using plus = std::plus<T>;
template <class T = void>
using minus = std::minus<T>;
template <class T = void>
using multiplies = std::multiplies<T>;
template <class T = void>
using less = std::less<T>;
template <class T = void>
using greater = std::greater<T>;
template <class T = void>
using negate = std::negate<T>;
template <class T>
struct maximum {
  T operator()(const T &a, const T &b) const { return a < b ? b : a; }
};
template <class T>
struct minimum {
  T operator()(const T &a, const T &b) const { return b < a ? b : a; }
};
template <class T>
struct identity {
  const T &operator()(const T &a) const { return a; }
};
template <class T>
struct square {
  T operator()(const T &a) const { return a * a; }
};
template <class A, class R>
struct unary_function {
  typedef A argument_type;
  typedef R result_type;
};
template <class A, class B, class R>
struct binary_function {
  typedef A first_argument_type;
  typedef B second_argument_type;
  typedef R result_type;
};
using std::get;
using std::make_pair;
using std::make_tuple;
using std::pair;
using std::system_error;
using std::tuple;
inline const std::error_category &cuda_category() { return std::system_category(); }

// A random access iterator that has no memory.
template <class T>
struct counting_iterator {
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using pointer = const T *;
  using reference = T;
  using iterator_category = std::random_access_iterator_tag;

  T value;

  counting_iterator(T value = T()) : value(value) {}
  T operator*() const { return value; }
  counting_iterator operator+(std::ptrdiff_t i) const { return T(value + i); }
  std::ptrdiff_t operator-(counting_iterator other) const { return value - other.value; }
};
template <class T>
counting_iterator<T> make_counting_iterator(T value) {
  return value;
}
template <class T>
counting_iterator<T> make_constant_iterator(T value) {
  return value;
}
template <class F, class I>
I make_transform_iterator(I iterator, F) {
  return iterator;
}
template <class T>
T make_zip_iterator(T iterators) {
  return iterators;
}

}  // namespace thrust
