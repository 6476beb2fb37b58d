// The machine that a kernel is compiled for. Nothing else in the kernels asks which it is.
#pragma once

#ifdef __CUDACC__
#include "device.h"
#else
#include "shim.h"
#endif
