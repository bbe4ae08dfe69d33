#pragma once
#include <silo_cuda.h>
