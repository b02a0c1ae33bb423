#include "../reduce.h"
