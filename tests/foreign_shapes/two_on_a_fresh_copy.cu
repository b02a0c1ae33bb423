// expected: right  shape: two kernels, each on the same array, which the host copies anew before the second
__global__ void by_halves(int *data, int n) {
    for (int i = threadIdx.x + 256; i < n; i += 256) data[threadIdx.x] += data[i];
    for (int step = 128; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step && threadIdx.x + step < n) data[threadIdx.x] += data[threadIdx.x + step];
    }
}

__global__ void by_neighbours(int *data, int n) {
    for (int i = threadIdx.x + 256; i < n; i += 256) data[threadIdx.x] += data[i];
    for (int step = 1; step < 256; step *= 2) {
        __syncthreads();
        if (threadIdx.x % (2 * step) == 0 && threadIdx.x + step < n) data[threadIdx.x] += data[threadIdx.x + step];
    }
}

int main() {
    const int n = 1024;
    int host[n], *data, sum;
    for (int k = 0; k < n; k++) host[k] = k % 20;
    cudaMalloc(&data, sizeof(host));
    cudaMemcpy(data, host, sizeof(host), cudaMemcpyHostToDevice);
    by_halves<<<1, 256>>>(data, n);
    cudaMemcpy(&sum, data, sizeof(int), cudaMemcpyDeviceToHost);
    cudaMemcpy(data, host, sizeof(host), cudaMemcpyHostToDevice);
    by_neighbours<<<1, 256>>>(data, n);
    cudaMemcpy(&sum, data, sizeof(int), cudaMemcpyDeviceToHost);
}
