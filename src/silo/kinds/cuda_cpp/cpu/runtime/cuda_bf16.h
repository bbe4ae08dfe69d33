#pragma once
#include "emulator/small_floats.h"
#include <silo_cuda.h>
