// assert() for kernels. No include guard: as in C, each inclusion depends on the current NDEBUG.
#undef assert
#ifdef NDEBUG
#define assert(...) ((void)0)
#else
#define assert(...) \
  ((__VA_ARGS__) ? (void)0 : cudaemu::assertion_failed(#__VA_ARGS__, cudaemu::Site::here()))
#endif
