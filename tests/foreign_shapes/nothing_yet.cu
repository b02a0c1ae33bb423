// expected: refused  shape: a kernel that somebody has yet to write
__global__ void sum(float parts[])
{
    // here
}
