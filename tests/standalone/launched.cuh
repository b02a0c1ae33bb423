// A launch that is timed. Before this stand the kernels, and the types IN and OUT, the COUNT of elements,
// and the LAUNCH itself: of in, in2, out, two arrays of partials a and b, n and stream.
int main()
{
    const float us = alone::timed([](alone::Memory &memory, cudaStream_t stream) {
        const int n = COUNT;
        IN *in = memory.filled<IN>(n, stream), *in2 = memory.filled<IN>(n, stream);
        OUT *out = memory.of<OUT>(1), *a = memory.of<OUT>(n / 32 + 1), *b = memory.of<OUT>(n / 32 + 1);
        return [=] { LAUNCH; };
    });
    printf("%.4f\n", us);
    return 0;
}
