// expected: wrong
#include <climits>
__global__ void extremes(const int *values, int *lowest, int *highest, int n)
{
    __shared__ int low[128], high[128];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    low[t] = i < n ? values[i] : INT_MAX;
    high[t] = i < n ? values[i] : INT_MIN;
    for (int stride = 64; stride > 0; stride >>= 1) {
        if (t < stride) {
            low[t] = min(low[t], low[t + stride]);
            high[t] = max(high[t], high[t + stride]);
        }
    }
    if (t == 0) {
        atomicMin(lowest, low[0]);
        atomicMax(highest, high[0]);
    }
}

int main() { extremes<<<(n + 127) / 128, 128>>>(values, lowest, highest, n); }
