// CUB's sum of float32, timed without this tool: `cub N...` prints a median in us for each N.
//
// As the tool does it: other code before, as other rows of a table are, so that instructions come from
// memory, too; a cold cache by reading 512 MiB, behind up to 7 empty launches; the call between two
// events; a wait behind each; the mean of 8 launches is a sample; the median of samples of a round, the
// median of rounds, with buffers elsewhere in each.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>
#include <cub/device/device_reduce.cuh>

static void checked(cudaError_t code)
{
    if (code != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(code));
        exit(1);
    }
}

__global__ void empty_kernel() {}

// 128 KiB of instructions, which is what an SM keeps.
#define FMA asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(a));
#define EIGHT(x) x x x x x x x x
__global__ void other_code(unsigned *never)
{
    float a = 1;
    EIGHT(EIGHT(EIGHT(EIGHT(FMA FMA))))
    if (a == 3)
        *never = 1;
}

__global__ void fill(float *x, long long n)
{
    long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long k = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; k < n; k += stride) {
        unsigned long long h = (k + 1) * 0x9E3779B97F4A7C15ull;
        h = (h ^ (h >> 31)) * 0xBF58476D1CE4E5B9ull;
        x[k] = static_cast<int>(h >> 40) * (1.0f / 8388608.0f) - 1.0f;
    }
}

__global__ void read_over(const uint4 *x, long long words, unsigned *never)
{
    unsigned seen = 0;
    long long stride = static_cast<long long>(gridDim.x) * blockDim.x * 4;
    for (long long at = static_cast<long long>(blockIdx.x) * blockDim.x * 4 + threadIdx.x; at < words; at += stride)
        for (int k = 0; k < 4; ++k) {
            long long place = at + static_cast<long long>(k) * blockDim.x;
            if (place < words) {
                uint4 v = x[place];
                seen |= v.x ^ v.y ^ v.z ^ v.w;
            }
        }
    if (seen == 0x12345678u)
        *never = seen;
}

static float median(std::vector<float> values)
{
    std::sort(values.begin(), values.end());
    size_t n = values.size();
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

int main(int count, char **words)
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
    uint4 *flush;
    unsigned *never;
    checked(cudaMalloc(&flush, flush_bytes));
    checked(cudaMalloc(&never, 4));
    checked(cudaMemset(flush, 0xff, flush_bytes));
    for (int word = 1; word < count; ++word) {
        int n = atoi(words[word]);
        std::vector<float> of_rounds;
        for (int round = 0; round <= rounds; ++round) { // the first warms up
            char *step, *tmp;
            float *x, *out;
            size_t bytes = 0;
            checked(cudaMalloc(&step, 512 * (1 + random() % 2047)));
            checked(cudaMalloc(&x, sizeof(float) * n));
            checked(cudaMalloc(&out, 4));
            checked(cub::DeviceReduce::Sum(nullptr, bytes, x, out, n, stream));
            checked(cudaMalloc(&tmp, bytes));
            fill<<<4 * sms, 512, 0, stream>>>(x, n);
            std::vector<float> samples, cycle;
            for (int k = 0; k < launches; ++k) {
                other_code<<<sms, 32, 0, stream>>>(never);
                for (unsigned skip = random() % 8; skip; --skip)
                    empty_kernel<<<1, 32, 0, stream>>>();
                read_over<<<4 * sms, 512, 0, stream>>>(flush, flush_bytes / 16, never);
                checked(cudaEventRecord(start, stream));
                checked(cub::DeviceReduce::Sum(tmp, bytes, x, out, n, stream));
                bool late = cudaEventQuery(start) == cudaSuccess;
                checked(cudaEventRecord(end, stream));
                checked(cudaStreamSynchronize(stream));
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
            for (void *held : {static_cast<void *>(step), static_cast<void *>(tmp), static_cast<void *>(x), static_cast<void *>(out)})
                checked(cudaFree(held));
        }
        if (of_rounds.empty()) {
            fprintf(stderr, "every launch was enqueued too late\n");
            return 1;
        }
        printf("%d %.4f\n", n, median(of_rounds));
    }
    return 0;
}
