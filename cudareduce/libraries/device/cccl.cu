// CUB and Thrust behind plain C calls, for one reduction: nvcc is given PEER_IN and PEER_ACC, the
// types of elements and answers, and PEER_OP_SUM or another operator. Every call returns a
// cudaError_t; one without `tmp` asks how many bytes of workspace it needs.
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
// What the calls that allocate for themselves are given instead.
[[maybe_unused]] constexpr size_t piece_bytes = 16 << 20;

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

struct Times {
    long long n;
    __host__ __device__ long long operator()(long long row) const { return row * n; }
};

// Where answers are stored, as something else than what was found: what is assigned goes through
// `Store`, whose `Target` is the type in memory.
template <class Store>
struct Stored {
    using Target = typename Store::Target;
    struct Place {
        Target *out;
        Store store;
        template <class Found>
        __host__ __device__ Place &operator=(const Found &found)
        {
            *out = store(found);
            return *this;
        }
    };
    using iterator_category = cuda::std::random_access_iterator_tag;
    using value_type = void;
    using difference_type = cuda::std::ptrdiff_t;
    using pointer = void;
    using reference = Place;

    Target *out;
    Store store;
    __host__ __device__ Place operator*() const { return {out, store}; }
    __host__ __device__ Place operator[](difference_type k) const { return {out + k, store}; }
    __host__ __device__ Stored operator+(difference_type k) const { return {out + k, store}; }
    __host__ __device__ Stored &operator+=(difference_type k)
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
    __host__ __device__ long long operator()(const cub::KeyValuePair<K, V> &found) const
    {
        return found.key;
    }
    template <class K, class V>
    __host__ __device__ long long operator()(const cuda::std::pair<K, V> &found) const
    {
        return found.first;
    }
};

#if defined(PEER_OP_MEAN)
static Stored<Mean> target(Acc *out, long long n) { return {out, Mean{static_cast<Acc>(n)}}; }
#else
[[maybe_unused]] static Acc *target(Acc *out, long long) { return out; }
#endif

extern "C" int cccl_version() { return CCCL_VERSION; }

#if defined(PEER_OP_ARGMIN) || defined(PEER_OP_ARGMAX)

// The value found lies at the head of the workspace.
constexpr size_t head = 256;

extern "C" int run_to_run(char *tmp, size_t *bytes, const In *in, long long *out, long long n,
                          long long, cudaStream_t stream)
{
    size_t left = tmp ? *bytes - head : 0;
    In *value = reinterpret_cast<In *>(tmp);
    char *rest = tmp ? tmp + head : nullptr;
#if defined(PEER_OP_ARGMIN)
    cudaError_t code = cub::DeviceReduce::ArgMin(rest, left, in, value, out, n, stream);
#else
    cudaError_t code = cub::DeviceReduce::ArgMax(rest, left, in, value, out, n, stream);
#endif
    if (!tmp)
        *bytes = left + head;
    return code;
}

using Answer = long long;

extern "C" int rows(void *tmp, size_t *bytes, const In *in, long long *out, long long n,
                    long long rows, cudaStream_t stream)
{
    Stored<Key> keys{out, Key{}};
#if CCCL_VERSION >= 3002000
    auto wide = cuda::std::int64_t(rows);
#define PEER_SEGMENTS wide, int(n)
#else
    auto starts = thrust::make_transform_iterator(thrust::counting_iterator<long long>(0), Times{n});
#define PEER_SEGMENTS int(rows), starts, starts + 1
#endif
#if defined(PEER_OP_ARGMIN)
    return cub::DeviceSegmentedReduce::ArgMin(tmp, *bytes, in, keys, PEER_SEGMENTS, stream);
#else
    return cub::DeviceSegmentedReduce::ArgMax(tmp, *bytes, in, keys, PEER_SEGMENTS, stream);
#endif
}

// As people call it: the place of an extremum comes back to the host.
extern "C" int thrust_as_called(const In *in, long long *answer, long long n, cudaStream_t stream)
{
    try {
        auto first = thrust::device_pointer_cast(in);
        auto policy = thrust::cuda::par.on(stream);
#if defined(PEER_OP_ARGMIN)
        *answer = thrust::min_element(policy, first, first + n) - first;
#else
        *answer = thrust::max_element(policy, first, first + n) - first;
#endif
    } catch (const std::bad_alloc &) {
        return cudaErrorMemoryAllocation;
    } catch (const thrust::system_error &error) {
        return error.code().value();
    }
    return cudaSuccess;
}

#else

using Answer = Acc;

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

// Counts of 32 bits where they do: CUB is instantiated for the type of the count.
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
    // Before 3.2 rows of one length are rows between offsets, as any others.
    auto starts = thrust::make_transform_iterator(thrust::counting_iterator<long long>(0), Times{n});
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
// Four elements of 16 bits in one load of eight bytes, which CUB makes two of in one of 16.
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
// Hands out one piece of memory again and again, so that a call allocates nothing.
struct Piece {
    void *start;
    void *allocate(cuda::stream_ref, size_t bytes, size_t = 256)
    {
        if (bytes > piece_bytes)
            throw std::bad_alloc{};
        return start;
    }
    void deallocate(cuda::stream_ref, void *, size_t, size_t = 256) {}
    void *allocate_sync(size_t bytes, size_t = 256) { return allocate(cuda::stream_ref{cudaStream_t{}}, bytes); }
    void deallocate_sync(void *, size_t, size_t = 256) {}
    bool operator==(const Piece &other) const { return start == other.start; }
    bool operator!=(const Piece &other) const { return start != other.start; }
    friend void get_property(const Piece &, cuda::mr::device_accessible) {}
};

template <class Determinism>
static cudaError_t chosen(void *tmp, size_t *bytes, const In *in, Acc *out, long long n,
                          cudaStream_t stream, Determinism determinism)
{
    if (!tmp) {
        *bytes = piece_bytes;
        return cudaSuccess;
    }
    Piece piece{tmp};
    auto env = cuda::std::execution::env{
        cuda::stream_ref{stream},
        cuda::std::execution::prop{cuda::mr::get_memory_resource, piece},
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
    return chosen(tmp, bytes, in, out, n, stream, cuda::execution::determinism::not_guaranteed);
}
#endif
#if defined(PEER_CHOSEN_FLOAT)
extern "C" int gpu_to_gpu(void *tmp, size_t *bytes, const In *in, Acc *out, long long n, long long,
                          cudaStream_t stream)
{
    return chosen(tmp, bytes, in, out, n, stream, cuda::execution::determinism::gpu_to_gpu);
}
#endif
#endif

#if CCCL_VERSION >= 3002000
// Thrust's own calls ask an allocator for bytes.
struct Pool {
    using value_type = char;
    char *start;
    char *allocate(std::ptrdiff_t bytes)
    {
        if (bytes > std::ptrdiff_t(piece_bytes))
            throw std::bad_alloc{};
        return start;
    }
    void deallocate(char *, size_t) {}
};

extern "C" int reduce_into(char *tmp, size_t *bytes, const In *in, Acc *out, long long n, long long,
                           cudaStream_t stream)
{
    if (!tmp) {
        *bytes = piece_bytes;
        return cudaSuccess;
    }
    Pool pool{tmp};
    try {
        auto first = thrust::device_pointer_cast(in);
#if defined(PEER_OP_MEAN)
        auto to = target(out, n);
#else
        auto to = thrust::device_pointer_cast(out);
#endif
        auto policy = thrust::cuda::par_nosync(pool).on(stream);
        if constexpr (same)
            thrust::reduce_into(policy, first, first + n, to, init(), Op{});
        else {
            auto wide = thrust::make_transform_iterator(first, Widen{});
            thrust::reduce_into(policy, wide, wide + n, to, init(), Op{});
        }
    } catch (const std::bad_alloc &) {
        return cudaErrorMemoryAllocation;
    } catch (const thrust::system_error &error) {
        return error.code().value();
    }
    return cudaSuccess;
}
#endif

// As people call it: the answer comes back to the host.
extern "C" int thrust_as_called(const In *in, Acc *answer, long long n, cudaStream_t stream)
{
    try {
        auto first = thrust::device_pointer_cast(in);
        auto policy = thrust::cuda::par.on(stream);
        if constexpr (same)
            *answer = thrust::reduce(policy, first, first + n, init(), Op{});
        else {
            auto wide = thrust::make_transform_iterator(first, Widen{});
            *answer = thrust::reduce(policy, wide, wide + n, init(), Op{});
        }
#if defined(PEER_OP_MEAN)
        *answer /= static_cast<Acc>(n);
#endif
    } catch (const std::bad_alloc &) {
        return cudaErrorMemoryAllocation;
    } catch (const thrust::system_error &error) {
        return error.code().value();
    }
    return cudaSuccess;
}

#endif

// As people call it: the workspace is asked for, allocated and given back, and the answer is copied.
extern "C" int cub_as_called(const In *in, Answer *answer, long long n, cudaStream_t stream)
{
    size_t bytes = 0;
    char *tmp = nullptr;
    Answer *out = nullptr;
    int code = cudaMalloc(&out, sizeof(Answer));
    if (!code)
        code = run_to_run(nullptr, &bytes, in, out, n, 1, stream);
    if (!code)
        code = cudaMalloc(&tmp, bytes);
    if (!code)
        code = run_to_run(tmp, &bytes, in, out, n, 1, stream);
    if (!code)
        code = cudaMemcpyAsync(answer, out, sizeof(Answer), cudaMemcpyDeviceToHost, stream);
    if (!code)
        code = cudaStreamSynchronize(stream);
    cudaFree(tmp);
    cudaFree(out);
    return code;
}
