// expected: refused  shape: what to do comes in a struct
struct Shape { int count; int factor; };

__global__ void add_all(const int *values, int *total, Shape shape)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < shape.count) atomicAdd(total, values[place] * shape.factor);
}
