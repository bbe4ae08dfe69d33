#pragma once
#error "cub does not run on the CPU"
