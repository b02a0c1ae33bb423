// assert() of a kernel. As in C, including this again takes notice of NDEBUG, hence no guard.
#undef assert
#ifdef NDEBUG
#define assert(...) ((void)0)
#else
#define assert(...) \
  ((__VA_ARGS__) ? (void)0 : cudaemu::assertion_failed(#__VA_ARGS__, cudaemu::Site::here()))
#endif
