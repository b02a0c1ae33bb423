// Times a call with the tool's method, but without its code.
//
// Before each call: a kernel of 128 KiB, which evicts the call's instructions as the other kernels of a
// table do; up to 7 empty kernels; and a read of 512 MiB, which evicts the data. The call runs between two
// events, and the host waits for the second. A sample is the mean of 8 calls; the result is the median over
// 9 rounds of the median of a round's samples. Each round allocates its buffers at other addresses.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <type_traits>
#include <vector>

namespace alone
{

inline void checked(cudaError_t code)
{
    if (code != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(code));
        exit(1);
    }
}

__global__ void empty_kernel() {}

// 128 KiB of instructions, the capacity of an SM's instruction cache.
#define FMA asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(a));
#define EIGHT(x) x x x x x x x x
__global__ void other_code(unsigned *never)
{
    float a = 1;
    EIGHT(EIGHT(EIGHT(EIGHT(FMA FMA))))
    if (a == 3)
        *never = 1;
}
#undef FMA
#undef EIGHT

template <typename T> __global__ void fill(T *x, long long n)
{
    long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long k = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; k < n; k += stride) {
        unsigned long long h = (k + 1) * 0x9E3779B97F4A7C15ull;
        h = (h ^ (h >> 31)) * 0xBF58476D1CE4E5B9ull;
        int integer = static_cast<int>(h >> 40);
        x[k] = std::is_integral<T>::value ? static_cast<T>(integer)
                                          : static_cast<T>(integer * (1.0f / 8388608.0f) - 1.0f);
    }
}

__global__ void read_over(const uint4 *x, long long words, unsigned *never)
{
    unsigned seen = 0;
    long long stride = static_cast<long long>(gridDim.x) * blockDim.x * 4;
    for (long long at = static_cast<long long>(blockIdx.x) * blockDim.x * 4 + threadIdx.x; at < words; at += stride)
        for (int k = 0; k < 4; ++k) {
            long long index = at + static_cast<long long>(k) * blockDim.x;
            if (index < words) {
                uint4 v = x[index];
                seen |= v.x ^ v.y ^ v.z ^ v.w;
            }
        }
    if (seen == 0x12345678u)
        *never = seen;
}

// The buffers of a round.
class Memory
{
    std::vector<void *> buffers;

  public:
    template <typename T = char> T *of(size_t count)
    {
        void *pointer;
        checked(cudaMalloc(&pointer, sizeof(T) * count));
        buffers.push_back(pointer);
        return static_cast<T *>(pointer);
    }
    template <typename T> T *filled(long long count, cudaStream_t stream)
    {
        T *pointer = of<T>(count);
        fill<<<512, 512, 0, stream>>>(pointer, count);
        return pointer;
    }
    ~Memory()
    {
        for (void *buffer : buffers)
            checked(cudaFree(buffer));
    }
};

inline float median(std::vector<float> values)
{
    std::sort(values.begin(), values.end());
    size_t n = values.size();
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// The time in us of the call that `prepare` returns; it is prepared again for each round.
inline float timed(const std::function<std::function<void()>(Memory &, cudaStream_t)> &prepare)
{
    const size_t flush_bytes = 512u << 20;
    const int rounds = 9, launches = 96, size = 8;
    std::mt19937 random(std::random_device{}());
    int sms = 0;
    checked(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    cudaStream_t stream;
    checked(cudaStreamCreate(&stream));
    cudaEvent_t start, end;
    checked(cudaEventCreate(&start));
    checked(cudaEventCreate(&end));
    Memory always;
    uint4 *flush = always.of<uint4>(flush_bytes / sizeof(uint4));
    unsigned *never = always.of<unsigned>(1);
    checked(cudaMemset(flush, 0xff, flush_bytes));
    std::vector<float> of_rounds;
    for (int round = 0; round <= rounds; ++round) { // the first is a warm-up
        Memory memory;
        memory.of(512 * (1 + random() % 2047));
        const std::function<void()> call = prepare(memory, stream);
        std::vector<float> samples, cycle;
        for (int k = 0; k < launches; ++k) {
            other_code<<<sms, 32, 0, stream>>>(never);
            for (unsigned skip = random() % 8; skip; --skip)
                empty_kernel<<<1, 32, 0, stream>>>();
            read_over<<<4 * sms, 512, 0, stream>>>(flush, flush_bytes / 16, never);
            checked(cudaEventRecord(start, stream));
            call();
            bool late = cudaEventQuery(start) == cudaSuccess;
            checked(cudaEventRecord(end, stream));
            checked(cudaStreamSynchronize(stream));
            checked(cudaGetLastError());
            float ms;
            checked(cudaEventElapsedTime(&ms, start, end));
            if (late)
                continue;
            cycle.push_back(1e3f * ms);
            if (static_cast<int>(cycle.size()) == size) {
                float sum = 0;
                for (float us : cycle)
                    sum += us;
                samples.push_back(sum / size);
                cycle.clear();
            }
        }
        if (round && !samples.empty())
            of_rounds.push_back(median(samples));
    }
    if (of_rounds.empty()) {
        fprintf(stderr, "all calls were enqueued too late: the host is too busy to time them\n");
        exit(1);
    }
    return median(of_rounds);
}

} // namespace alone
