// Nothing but a barrier: all GPUs leave it within the time that a flag needs to travel, and what is timed
// behind it begins for all of them then.
extern "C" __global__ void __launch_bounds__(32) align(size_t flags, size_t number) { meet(flags, number); }
