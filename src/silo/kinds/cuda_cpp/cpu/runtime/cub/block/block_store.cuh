#pragma once
#include <cub/primitives.h>
