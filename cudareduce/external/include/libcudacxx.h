// cuda::std and the types of <cuda/...> that appear in signatures.
#pragma once
#include <array>
#include <atomic>
#include <complex>
#include <functional>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_runtime.h"

namespace cuda {
namespace std = ::std;
enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };
template <class T, thread_scope scope = thread_scope_system>
using atomic = ::std::atomic<T>;
template <class T, thread_scope scope = thread_scope_system>
struct atomic_ref;
template <thread_scope scope>
struct barrier;
template <thread_scope scope>
class pipeline;
template <class T>
using minimum = ::std::less<T>;
template <class T>
using maximum = ::std::greater<T>;
}  // namespace cuda
