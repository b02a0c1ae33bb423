#pragma once
#include "curand.h"

struct curandStateXORWOW {
  unsigned words[12];
};
typedef curandStateXORWOW curandState, curandState_t, curandStateXORWOW_t;
struct curandStatePhilox4_32_10 {
  unsigned words[16];
};
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;
