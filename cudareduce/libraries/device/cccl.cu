// C functions that call CUB and Thrust for one reduction. Macros define the types of elements and
// results, PEER_IN and PEER_ACC, and the operator, such as PEER_OP_SUM. Every function returns a
// cudaError_t; without `tmp` it stores the bytes of workspace that it needs.
#define CCCL_DISABLE_NVTX
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/functional>
#include <cuda/std/functional>
#include <cuda/std/limits>
#include <cuda/std/utility>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_segmented_reduce.cuh>
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/reduce.h>
#if CCCL_VERSION >= 3005000
#include <cuda/memory_resource>
#include <cuda/std/execution>
#include <cuda/stream_ref>
#endif

using In = PEER_IN;
using Acc = PEER_ACC;
using Limits = cuda::std::numeric_limits<Acc>;
[[maybe_unused]] constexpr bool same = cuda::std::is_same_v<In, Acc>;
// Workspace of calls that take an allocator.
[[maybe_unused]] constexpr size_t workspace_bytes = 16 << 20;

#if defined(PEER_OP_SUM) || defined(PEER_OP_MEAN)
using Op = cuda::std::plus<Acc>;
static Acc init() { return Acc(0); }
#elif defined(PEER_OP_PROD)
using Op = cuda::std::multiplies<Acc>;
static Acc init() { return Acc(1); }
#elif defined(PEER_OP_MIN)
using Op = cuda::minimum<Acc>;
static Acc init() { return Limits::has_infinity ? Limits::infinity() : Limits::max(); }
#elif defined(PEER_OP_MAX)
using Op = cuda::maximum<Acc>;
static Acc init() { return Limits::has_infinity ? -Limits::infinity() : Limits::lowest(); }
#endif

struct Widen {
    __host__ __device__ Acc operator()(In x) const { return static_cast<Acc>(x); }
};

struct RowStart {
    long long n;
    __host__ __device__ long long operator()(long long row) const { return row * n; }
};

// An output iterator that converts each assigned value by `Store` to its type `Target` in memory.
template <class Store>
struct ConvertingOutput {
    using Target = typename Store::Target;
    struct Reference {
        Target *out;
        Store store;
        template <class Value>
        __host__ __device__ Reference &operator=(const Value &value)
        {
            *out = store(value);
            return *this;
        }
    };
    using iterator_category = cuda::std::random_access_iterator_tag;
    using value_type = void;
    using difference_type = cuda::std::ptrdiff_t;
    using pointer = void;
    using reference = Reference;

    Target *out;
    Store store;
    __host__ __device__ Reference operator*() const { return {out, store}; }
    __host__ __device__ Reference operator[](difference_type k) const { return {out + k, store}; }
    __host__ __device__ ConvertingOutput operator+(difference_type k) const { return {out + k, store}; }
    __host__ __device__ ConvertingOutput &operator+=(difference_type k)
    {
        out += k;
        return *this;
    }
};

struct Mean {
    using Target = Acc;
    Acc count;
    __host__ __device__ Acc operator()(Acc sum) const { return sum / count; }
};

struct Key {
    using Target = long long;
    template <class K, class V>
    __host__ __device__ long long operator()(const cub::KeyValuePair<K, V> &pair) const
    {
        return pair.key;
    }
    template <class K, class V>
    __host__ __device__ long long operator()(const cuda::std::pair<K, V> &pair) const
    {
        return pair.first;
    }
};

#if defined(PEER_OP_MEAN)
static ConvertingOutput<Mean> target(Acc *out, long long n) { return {out, Mean{static_cast<Acc>(n)}}; }
#else
[[maybe_unused]] static Acc *target(Acc *out, long long) { return out; }
#endif

extern "C" int cccl_version() { return CCCL_VERSION; }

// Calls a function of Thrust and returns its exception as a cudaError_t.
template <class Call> static int catch_errors(Call call)
{
    try {
        call();
    } catch (const std::bad_alloc &) {
        return cudaErrorMemoryAllocation;
    } catch (const thrust::system_error &error) {
        return error.code().value();
    }
    return cudaSuccess;
}

#if defined(PEER_OP_ARGMIN) || defined(PEER_OP_ARGMAX)

// The first bytes of the workspace receive the extremum, which CUB stores with its index.
constexpr size_t value_bytes = 256;

extern "C" int run_to_run(char *tmp, size_t *bytes, const In *in, long long *out, long long n,
                          long long, cudaStream_t stream)
{
    size_t left = tmp ? *bytes - value_bytes : 0;
    In *value = reinterpret_cast<In *>(tmp);
    char *rest = tmp ? tmp + value_bytes : nullptr;
#if defined(PEER_OP_ARGMIN)
    cudaError_t code = cub::DeviceReduce::ArgMin(rest, left, in, value, out, n, stream);
#else
    cudaError_t code = cub::DeviceReduce::ArgMax(rest, left, in, value, out, n, stream);
#endif
    if (!tmp)
        *bytes = left + value_bytes;
    return code;
}

using HostResult = long long;

extern "C" int rows(void *tmp, size_t *bytes, const In *in, long long *out, long long n,
                    long long rows, cudaStream_t stream)
{
    ConvertingOutput<Key> keys{out, Key{}};
#if CCCL_VERSION >= 3002000
    auto wide = cuda::std::int64_t(rows);
#define PEER_SEGMENTS wide, int(n)
#else
    auto starts = thrust::make_transform_iterator(thrust::counting_iterator<long long>(0), RowStart{n});
#define PEER_SEGMENTS int(rows), starts, starts + 1
#endif
#if defined(PEER_OP_ARGMIN)
    return cub::DeviceSegmentedReduce::ArgMin(tmp, *bytes, in, keys, PEER_SEGMENTS, stream);
#else
    return cub::DeviceSegmentedReduce::ArgMax(tmp, *bytes, in, keys, PEER_SEGMENTS, stream);
#endif
}

#else

using HostResult = Acc;

template <class N>
static cudaError_t reduce(void *tmp, size_t &bytes, const In *in, Acc *out, N n, cudaStream_t stream)
{
    auto to = target(out, n);
    if constexpr (same) {
#if defined(PEER_OP_SUM) || defined(PEER_OP_MEAN)
        return cub::DeviceReduce::Sum(tmp, bytes, in, to, n, stream);
#else
        return cub::DeviceReduce::Reduce(tmp, bytes, in, to, n, Op{}, init(), stream);
#endif
    } else
        return cub::DeviceReduce::TransformReduce(tmp, bytes, in, to, n, Op{}, Widen{}, init(),
                                                  stream);
}

// CUB is compiled for the type of the count: 32 bits if they are sufficient.
extern "C" int run_to_run(void *tmp, size_t *bytes, const In *in, Acc *out, long long n, long long,
                          cudaStream_t stream)
{
    if (n < (1ll << 31))
        return reduce(tmp, *bytes, in, out, static_cast<int>(n), stream);
    return reduce(tmp, *bytes, in, out, n, stream);
}

extern "C" int rows(void *tmp, size_t *bytes, const In *in, Acc *out, long long n, long long rows,
                    cudaStream_t stream)
{
    auto wide = cuda::std::int64_t(rows);
    auto to = target(out, n);
#if CCCL_VERSION >= 3002000
    if constexpr (same)
        return cub::DeviceSegmentedReduce::Reduce(tmp, *bytes, in, to, wide, int(n), Op{}, init(),
                                                  stream);
    else {
        auto wider = thrust::make_transform_iterator(in, Widen{});
        return cub::DeviceSegmentedReduce::Reduce(tmp, *bytes, wider, to, wide, int(n), Op{},
                                                  init(), stream);
    }
#else
    // Before 3.2 CUB takes rows only by offsets.
    auto starts = thrust::make_transform_iterator(thrust::counting_iterator<long long>(0), RowStart{n});
    if constexpr (same)
        return cub::DeviceSegmentedReduce::Reduce(tmp, *bytes, in, to, wide, starts, starts + 1,
                                                  Op{}, init(), stream);
    else {
        auto wider = thrust::make_transform_iterator(in, Widen{});
        return cub::DeviceSegmentedReduce::Reduce(tmp, *bytes, wider, to, wide, starts, starts + 1,
                                                  Op{}, init(), stream);
    }
#endif
}

#if defined(PEER_PACKED)
// Four 16-bit elements in an 8-byte word, so that CUB loads eight elements in 16 bytes.
struct Unpack {
    __host__ __device__ Acc operator()(unsigned long long word) const
    {
        Acc sum[4];
        for (int k = 0; k < 4; ++k) {
            unsigned short bits = static_cast<unsigned short>(word >> 16 * k);
            In x;
            memcpy(&x, &bits, 2);
            sum[k] = static_cast<Acc>(x);
        }
        return Op{}(Op{}(sum[0], sum[1]), Op{}(sum[2], sum[3]));
    }
};

extern "C" int packed(void *tmp, size_t *bytes, const In *in, Acc *out, long long n, long long,
                      cudaStream_t stream)
{
    auto words = reinterpret_cast<const unsigned long long *>(in);
    return cub::DeviceReduce::TransformReduce(tmp, *bytes, words, target(out, n), int(n / 4),
                                              Op{}, Unpack{}, init(), stream);
}
#endif

#if CCCL_VERSION >= 3005000 && defined(PEER_OP_SUM)
// A memory resource that always returns the same workspace, so that a call allocates nothing.
struct FixedWorkspace {
    void *start;
    void *allocate(cuda::stream_ref, size_t bytes, size_t = 256)
    {
        if (bytes > workspace_bytes)
            throw std::bad_alloc{};
        return start;
    }
    void deallocate(cuda::stream_ref, void *, size_t, size_t = 256) {}
    void *allocate_sync(size_t bytes, size_t = 256) { return allocate(cuda::stream_ref{cudaStream_t{}}, bytes); }
    void deallocate_sync(void *, size_t, size_t = 256) {}
    bool operator==(const FixedWorkspace &other) const { return start == other.start; }
    bool operator!=(const FixedWorkspace &other) const { return start != other.start; }
    friend void get_property(const FixedWorkspace &, cuda::mr::device_accessible) {}
};

template <class Determinism>
static cudaError_t sum_with(void *tmp, size_t *bytes, const In *in, Acc *out, long long n,
                          cudaStream_t stream, Determinism determinism)
{
    if (!tmp) {
        *bytes = workspace_bytes;
        return cudaSuccess;
    }
    FixedWorkspace workspace{tmp};
    auto env = cuda::std::execution::env{
        cuda::stream_ref{stream},
        cuda::std::execution::prop{cuda::mr::get_memory_resource, workspace},
        cuda::execution::require(determinism)};
    try {
        if (n < (1ll << 31))
            return cub::DeviceReduce::Sum(in, out, static_cast<int>(n), env);
        return cub::DeviceReduce::Sum(in, out, n, env);
    } catch (const std::bad_alloc &) {
        return cudaErrorMemoryAllocation;
    }
}

#if defined(PEER_CHOSEN)
extern "C" int not_guaranteed(void *tmp, size_t *bytes, const In *in, Acc *out, long long n,
                              long long, cudaStream_t stream)
{
    return sum_with(tmp, bytes, in, out, n, stream, cuda::execution::determinism::not_guaranteed);
}
#endif
#if defined(PEER_CHOSEN_FLOAT)
extern "C" int gpu_to_gpu(void *tmp, size_t *bytes, const In *in, Acc *out, long long n, long long,
                          cudaStream_t stream)
{
    return sum_with(tmp, bytes, in, out, n, stream, cuda::execution::determinism::gpu_to_gpu);
}
#endif
#endif

#if CCCL_VERSION >= 3002000
// An allocator for Thrust that always returns the same workspace.
struct FixedAllocator {
    using value_type = char;
    char *start;
    char *allocate(std::ptrdiff_t bytes)
    {
        if (bytes > std::ptrdiff_t(workspace_bytes))
            throw std::bad_alloc{};
        return start;
    }
    void deallocate(char *, size_t) {}
};

extern "C" int reduce_into(char *tmp, size_t *bytes, const In *in, Acc *out, long long n, long long,
                           cudaStream_t stream)
{
    if (!tmp) {
        *bytes = workspace_bytes;
        return cudaSuccess;
    }
    FixedAllocator allocator{tmp};
    return catch_errors([&] {
        auto first = thrust::device_pointer_cast(in);
#if defined(PEER_OP_MEAN)
        auto to = target(out, n);
#else
        auto to = thrust::device_pointer_cast(out);
#endif
        auto policy = thrust::cuda::par_nosync(allocator).on(stream);
        if constexpr (same)
            thrust::reduce_into(policy, first, first + n, to, init(), Op{});
        else {
            auto wide = thrust::make_transform_iterator(first, Widen{});
            thrust::reduce_into(policy, wide, wide + n, to, init(), Op{});
        }
    });
}
#endif

#endif

// The usual call of Thrust: it allocates its workspace and returns the result to the host.
extern "C" int thrust_as_called(const In *in, HostResult *result, long long n, cudaStream_t stream)
{
    return catch_errors([&] {
        auto first = thrust::device_pointer_cast(in);
        auto policy = thrust::cuda::par.on(stream);
#if defined(PEER_OP_ARGMIN)
        *result = thrust::min_element(policy, first, first + n) - first;
#elif defined(PEER_OP_ARGMAX)
        *result = thrust::max_element(policy, first, first + n) - first;
#else
        if constexpr (same)
            *result = thrust::reduce(policy, first, first + n, init(), Op{});
        else {
            auto wide = thrust::make_transform_iterator(first, Widen{});
            *result = thrust::reduce(policy, wide, wide + n, init(), Op{});
        }
#endif
#if defined(PEER_OP_MEAN)
        *result /= static_cast<Acc>(n);
#endif
    });
}

// The usual call of CUB: query and allocate the workspace, reduce, copy the result to the host, free.
extern "C" int cub_as_called(const In *in, HostResult *result, long long n, cudaStream_t stream)
{
    size_t bytes = 0;
    char *tmp = nullptr;
    HostResult *out = nullptr;
    int code = cudaMalloc(&out, sizeof(HostResult));
    if (!code)
        code = run_to_run(nullptr, &bytes, in, out, n, 1, stream);
    if (!code)
        code = cudaMalloc(&tmp, bytes);
    if (!code)
        code = run_to_run(tmp, &bytes, in, out, n, 1, stream);
    if (!code)
        code = cudaMemcpyAsync(result, out, sizeof(HostResult), cudaMemcpyDeviceToHost, stream);
    if (!code)
        code = cudaStreamSynchronize(stream);
    cudaFree(tmp);
    cudaFree(out);
    return code;
}
