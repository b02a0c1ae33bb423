// expected: right  if: one of its elements is finite and none of its elements is NaN and of equal extremes any will do  shape: the place of an extreme, which of equal ones is the last and not the first
__global__ void argminKernel(const float *x, int *result, int n)
{
    __shared__ float value[128];
    __shared__ int place[128];
    int t = threadIdx.x, at = 0x7fffffff;
    float least = INFINITY;
    for (int i = t; i < n; i += 128)
        if (x[i] < least) {
            least = x[i];
            at = i;
        }
    value[t] = least;
    place[t] = at;
    __syncthreads();
    for (int s = 64; s > 0; s /= 2) {
        bool smaller = t < s && value[t + s] <= value[t];
        if (smaller) {
            value[t] = value[t + s];
            place[t] = place[t + s];
        }
        __syncthreads();
    }
    if (t == 0)
        result[0] = place[0];
}
int main()
{
    float *x;
    int *result;
    argminKernel<<<1, 128>>>(x, result, 1000);
}
